"""Errors that users meet: each text says what, where, what was expected and what to do."""

from __future__ import annotations


class MakespanError(Exception):
    """Any fault in what a user gave us; the command line prints it as one sentence and exits with code 2."""


class TraceError(MakespanError):
    """A trace file can't be read as what it claims to be.

    The text names the file, and the event and field where one is to blame.
    """


class GraphError(MakespanError):
    """A dataflow graph breaks an invariant (named in the text, with the ops), or waits on itself in a cycle."""


class SelectorError(MakespanError):
    """A `--scale SELECTOR=FACTOR` expression has a wrong form or selects nothing."""


class ClusterError(MakespanError):
    """A cluster file is incomplete or contradictory; the text names the key."""


class PredictionError(MakespanError):
    """A cost model was asked about something outside its validity range."""


class PassError(MakespanError):
    """A pass failed or left an illegal graph; the text names the pass and those that ran before it."""


class PlanError(MakespanError):
    """A plan file doesn't hold what it should; the text carries the JSON path."""
