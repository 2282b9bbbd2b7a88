"""Collectives: one module for each algorithm that carries out collectives, found by scanning this folder.

A module `tree_of_trees.py` is the algorithm `tree-of-trees` when it offers a function of its name:

`tree_of_trees(collective: Collective, exchange: Exchange) -> None`
    Tells `exchange` all messages and sums that `collective` takes, in any order in which each comes after those it
    waits for: `exchange.send(source, target, size_bytes, after)` and `exchange.add(rank, size_bytes, after)` return
    what a later call gives as its `after`, when it needs that message or sum to be over. What `after` names must end
    at the rank that goes on; with none, a rank begins when it has come to the collective.

    `collective` says what is exchanged among which ranks, their hosts, and how far messages are to be cut into
    slices (`collective.slices`). First comes `collective.expect(name, kinds...)`, which refuses the collectives
    that the algorithm doesn't know. The result depends on the collective alone, not on chance.

Everything else (the links a message takes, how long it holds each, how the ops of a graph begin and end) is the
business of `makespan.simulator.expansion`. Every rank must in the end depend on all whose data it gets, and receive
at least those bytes: `tests/conformance` holds every module to that. Outside code is named `package.module:name`.
"""
