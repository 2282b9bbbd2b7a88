"""Every module of simulator/collectives carries out what it knows: everybody's data comes to whoever needs it."""

from collections.abc import Callable, Iterator

import pytest
from contracts import check_module, expect_parameters
from small_clusters import rails, star

from makespan.cluster import Cluster
from makespan.errors import GraphError
from makespan.resolve import find_module, member_names, offered, resolve
from makespan.simulator.expansion.collective import KINDS, Collective
from makespan.simulator.expansion.exchange import Exchange, Parts

FOLDER = "makespan.simulator.collectives"
NAMES = member_names(FOLDER)

Algorithm = Callable[[Collective, Exchange], None]


def collectives() -> Iterator[Collective]:
    """One of each kind on several clusters, whole and in slices, with sizes that divide evenly and that don't."""
    places: list[tuple[Cluster, tuple[int, ...]]] = [
        (star(5), (0, 1)), (star(5), (3, 0, 4)), (star(8), tuple(range(8))), (rails(3, 2, 10, 10), tuple(range(6))),
    ]  # fmt: skip
    for kind in KINDS:
        for cluster, ranks in places:
            for size_bytes, slice_bytes in ((960, 0), (1001, 0), (1001, 64), (1, 0), (0, 0)):
                yield Collective(kind, size_bytes, ranks, cluster, slice_bytes, root=ranks[-1])
    yield Collective("allreduce", 1001, (0, 1, 2), star(5), servers=(4, 1))


def needed_bytes(collective: Collective, rank: int) -> int:
    """The least that `rank` must receive."""
    count, size_bytes = len(collective.ranks), collective.size_bytes
    # Each slice may be dealt out in shares that differ by a byte.
    rounding = len(collective.slices())
    if collective.kind == "broadcast":
        return 0 if rank == collective.from_root()[0] else size_bytes
    return {
        "allreduce": size_bytes,
        "allgather": (count - 1) * size_bytes,
        "reducescatter": size_bytes // count - rounding,
        "alltoall": (count - 1) * (size_bytes // count - rounding),
    }[collective.kind]


def check(algorithm: Algorithm, collective: Collective, with_sums: bool) -> bool:
    """Whether the algorithm knows the collective; raises AssertionError where it carries it out wrongly."""
    exchange, again = Exchange(with_sums), Exchange(with_sums)
    try:
        algorithm(collective, exchange)
    except GraphError as error:
        assert str(error).strip()
        return False
    algorithm(collective, again)
    assert exchange == again, "the same collective, the same messages"
    depends = {rank: {rank} for rank in collective.ranks}
    received = dict.fromkeys(collective.ranks, 0)
    of_part: list[set[int]] = []
    for number in range(len(exchange)):
        source, target = exchange.source[number], exchange.target[number]
        on = {source}
        for before in exchange.after[number]:
            assert before < number, "a part waits for earlier ones only"
            assert exchange.target[before] == source, "what a rank waits for ends there"
            on |= of_part[before]
        of_part.append(on)
        assert {source, target} <= {*collective.ranks, *collective.servers}, "only those that take part"
        if target in depends:
            depends[target] |= on
            received[target] += exchange.size_bytes[number] if source != target else 0
        if collective.slice_bytes:
            assert exchange.size_bytes[number] <= collective.slice_bytes, "a message is no longer than a slice"
    for rank in collective.ranks:
        giving = set(collective.from_root()[:1]) if collective.kind == "broadcast" else set(collective.ranks)
        assert giving <= depends[rank] | set(collective.servers), f"rank {rank} does without some rank's data"
        assert received[rank] >= needed_bytes(collective, rank), f"rank {rank} gets too few bytes"
    return True


def test_there_are_algorithms() -> None:
    assert {"ring", "tree", "hierarchical", "all-to-all", "parameter-server"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_members(name: str) -> None:
    module = find_module(FOLDER, name)
    check_module(module)
    algorithm = offered(module)
    assert algorithm is resolve(FOLDER, name) and algorithm.__doc__
    expect_parameters(algorithm, "collective", "exchange")
    known = {asked.kind for asked in collectives() for sums in (False, True) if check(algorithm, asked, sums)}
    assert known, "an algorithm carries out at least one collective"
    for kind in set(KINDS) - known:
        with pytest.raises(GraphError, match=f"the algorithm {name} knows no {kind}: expected"):
            algorithm(Collective(kind, 10, (0, 1), star(2)), Exchange())


def does_nothing(collective: Collective, exchange: Exchange) -> None:
    """Forgets to send."""


def forgets_one(collective: Collective, exchange: Exchange) -> None:
    """Leaves out the last rank."""
    for source in collective.ranks[:-1]:
        for target in collective.ranks[:-1]:
            if source != target:
                exchange.send(source, target, collective.size_bytes)


def sends_too_little(collective: Collective, exchange: Exchange) -> None:
    """Sends single bytes."""
    for source in collective.ranks:
        for target in collective.ranks:
            if source != target:
                exchange.send(source, target, 1)


def waits_for_others(collective: Collective, exchange: Exchange) -> None:
    """Lets a rank wait for what happens elsewhere."""
    held: Parts = ()
    for source in collective.ranks:
        for target in collective.ranks:
            if source != target:
                held = exchange.send(source, target, collective.size_bytes, held)


def sends_to_itself(collective: Collective, exchange: Exchange) -> None:
    """Sends from a rank to the same."""
    exchange.send(collective.ranks[0], collective.ranks[0], 1)


@pytest.mark.parametrize("bad", [does_nothing, forgets_one, sends_too_little, waits_for_others])
def test_bad_algorithms_are_noticed(bad: Algorithm) -> None:
    with pytest.raises(AssertionError):
        for asked in collectives():
            check(bad, asked, with_sums=False)


def test_a_message_to_oneself_is_refused() -> None:
    with pytest.raises(GraphError, match="to itself"):
        sends_to_itself(Collective("alltoall", 10, (0, 1), star(2)), Exchange())
