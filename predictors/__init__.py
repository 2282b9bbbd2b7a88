"""How long an op or a collective takes: models that are measured, analytic and learned, found by scanning this folder.

A module `alpha_beta.py` is the model `alpha-beta` when it offers a class of its name:

- with `latency_ns`, a `makespan.protocols.CostModel` of ops;
- with `transfer_ns`, a `makespan.protocols.CommunicationModel` of collectives. If it rests on a communication table it
  is made by `fit(table)`, or by its constructor where that takes a `table`, and `load(path)` reads the table itself;
  otherwise its constructor needs no arguments. A larger message is never faster, and no answer depends on what else
  is asked, now or before.

Other modules here help these. `tests/conformance` holds every member to its contract.
"""
