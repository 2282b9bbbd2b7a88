"""Flow: the messages and sums of an exchange as ops on the streams of links, with the edges that make them flow.

A message is one op on each station of its route, of its bytes over the rate there. With l the latency of station i,
station i + 1 begins no earlier than l after the beginning of station i and ends no earlier than l after its end
(start→start and finish→finish edges), so that an idle route takes the sum of its latencies and the time of its
slowest link. What waits for the message waits for the last station's end and latency. Stored and forwarded instead,
a station begins when the one before has ended and its latency is over, as dPRO's rule and its NCCL setting have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import EdgeKind, Edges, Evidence, OpKind, Relation
from makespan.simulator.expansion.exchange import Exchange
from makespan.simulator.expansion.wires import Wires

NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """k ops, in the order in which a link serves them: by round, then by station, then as they were told.

    `kind`: SEND on every station of a message but the last, RECV there, COMPUTE for a sum. `stream` (k,) is into the
    streams of the wires; `duration_ns`, `size_bytes` (k,); `source`, `target` (k,) int32 are the ranks of the message.
    `edges` are among these ops. Op `begin_op[i]` waits for rank `begin_rank[i]` to have come; the collective of rank
    `end_rank[i]` is not over before op `end_op[i]` has ended and `end_lag_ns[i]` has passed.
    """

    kind: NDArray[np.uint8]
    stream: NDArray[np.int32]
    duration_ns: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    edges: Edges
    begin_op: NDArray[np.int64]
    begin_rank: NDArray[np.int64]
    end_op: NDArray[np.int64]
    end_rank: NDArray[np.int64]
    end_lag_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kind)


def lay_out(
    exchange: Exchange,
    wires: Wires,
    route_of: Mapping[tuple[int, int], int],
    *,
    come_together: bool = False,
    stored_and_forwarded: bool = False,
) -> Flow:
    """The ops and edges of `exchange` over `wires`, whose route from rank a to b is number `route_of[a, b]`.

    A message begins when both its ranks have come; where all `come_together` that goes without saying for the target.
    """
    source, target = np.array(exchange.source, np.int64), np.array(exchange.target, np.int64)
    pairs = zip(exchange.source, exchange.target, strict=True)
    routes = np.fromiter((route_of[pair] for pair in pairs), np.int64, len(exchange))
    is_sum = source == target
    waits = np.fromiter(map(len, exchange.after), np.int64, len(exchange))
    later = np.repeat(np.arange(len(exchange)), waits)
    earlier = np.fromiter((part for parts in exchange.after for part in parts), np.int64, int(waits.sum()))

    stations = np.diff(wires.pointer)[routes]
    part = np.repeat(np.arange(len(exchange)), stations)
    hop = np.arange(len(part)) - np.repeat(np.cumsum(stations) - stations, stations)
    # A half-duplex link sends what a round gives it before it receives, else ranks would take turns around a ring.
    order = np.lexsort((part, hop, np.array(exchange.round, np.int64)[part]))
    part, hop = part[order], hop[order]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first, last = place[np.cumsum(stations) - stations], place[np.cumsum(stations) - 1]
    station = wires.pointer[routes[part]] + hop
    size_bytes = np.array(exchange.size_bytes, np.int64)[part]
    ends = hop == stations[part] - 1
    kind = np.where(is_sum[part], OpKind.COMPUTE, np.where(ends, OpKind.RECV, OpKind.SEND))
    latency_ns = wires.latency_ns[station]

    # In the order of parts, where the stations of each stand side by side.
    passed_on = np.flatnonzero(~ends[place])
    inner, following = place[passed_on], place[passed_on + 1]
    relations = (Relation.FINISH_START,) if stored_and_forwarded else (Relation.START_START, Relation.FINISH_FINISH)
    edges = [_edges(inner, following, latency_ns[inner], relation) for relation in relations]
    edges.append(_edges(last[earlier], first[later], latency_ns[last[earlier]], Relation.FINISH_START))

    begins = waits == 0
    meets = np.zeros(len(exchange), np.bool_) if come_together else ~is_sum
    goes_on = np.zeros(len(exchange), np.bool_)
    goes_on[earlier] = True
    sent = np.flatnonzero(~is_sum)
    # The end of a part that another at the same rank waits for is implied by that other's.
    final = np.flatnonzero(~goes_on)
    return Flow(
        kind.astype(np.uint8),
        wires.stream[station],
        np.rint(size_bytes * NS_PER_S / wires.bytes_per_s[station]).astype(np.int64),
        size_bytes,
        source[part].astype(np.int32),
        target[part].astype(np.int32),
        Edges.concatenate(edges),
        np.concatenate([first[begins], first[meets]]),
        np.concatenate([source[begins], target[meets]]),
        np.concatenate([first[sent], last[final]]),
        np.concatenate([source[sent], target[final]]),
        np.concatenate([np.zeros(len(sent), np.int64), latency_ns[last[final]]]),
    )


def _edges(
    source: NDArray[np.int64], target: NDArray[np.int64], lag_ns: NDArray[np.int64], relation: Relation
) -> Edges:
    return Edges.of(source, target, lag_ns, relation, EdgeKind.COLLECTIVE, Evidence.INFERRED)
