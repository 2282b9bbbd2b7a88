"""Communication tables made by a law that tests know, small and complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from makespan.communication_table import COLLECTIVES, CommunicationTable, Measured

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)
LATENCY_NS = 3_000
NS_PER_BYTE = 2.0


def made_table(
    sizes: Iterable[int] = SIZES,
    counts: Iterable[int] = (2, 4),
    law: Callable[[str, int, int], float] | None = None,
    dtypes: Iterable[str] = ("float32",),
    collectives: Iterable[str] = COLLECTIVES,
    host: bool = True,
) -> CommunicationTable:
    """Each of `collectives` among each of `counts` ranks, and host work if wanted.

    `law` gives nanoseconds from collective, ranks and bytes, by default 3 µs a rank and 2 ns a byte. Beside computing
    transfers take half as long again and leave 0.6.
    """
    law = law or (lambda _, count, size: LATENCY_NS * count + NS_PER_BYTE * size)
    rows: list[Measured] = []
    for dtype in dtypes:
        for size in sizes:
            for collective in collectives:
                for count in [2] if collective == "send" else counts:
                    alone = round(law(collective, count, size))
                    # One repeat of three is disturbed, which a median doesn't see.
                    repeats = [alone, 9 * alone, alone]
                    contended = [round(1.5 * alone)] * 2
                    rows.append(Measured(collective, count, dtype, size, repeats, contended, [0.6, 0.6]))
    if host:
        rows.append(Measured("launch", 1, "float32", 0, [20_000]))
        rows += [Measured("copy", 1, "float32", size, [1_000 + size // 8]) for size in sizes]
    return CommunicationTable(network="made up", measured=rows)
