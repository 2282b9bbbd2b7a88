"""Cluster: devices, hosts, links and how they are wired, in a compressed form, and where each rank is placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from makespan.errors import ClusterError

Facts = Mapping[str, float]
"""Free numeric facts by name, with the unit in the name (`power_watts`, `cost_per_hour`, `failures_per_day`)."""

NO_FACTS: Final[Facts] = {}


@dataclass(frozen=True, slots=True)
class DeviceType:
    """What one kind of device can do. Rates are data-sheet peaks, 0 where not known.

    `flops_per_s`: dense peak by precision ("fp32", "bf16", ...), a multiply-add counted as two.
    """

    name: str
    kind: str
    memory_bytes: int = 0
    memory_bytes_per_s: float = 0.0
    flops_per_s: Facts = field(default_factory=lambda: NO_FACTS)
    clock_hz: float = 0.0
    multiprocessors: int = 0
    facts: Facts = field(default_factory=lambda: NO_FACTS)


@dataclass(frozen=True, slots=True)
class LinkType:
    """What one kind of link can carry: bytes per second in each direction, and the latency of a first byte.

    A link that is not `full_duplex` shares its rate between both directions. `fair`: transfers at the same
    time share the rate equally; otherwise they go one after another.
    """

    name: str
    bytes_per_s: float
    latency_ns: int
    full_duplex: bool = True
    fair: bool = False
    facts: Facts = field(default_factory=lambda: NO_FACTS)


@dataclass(frozen=True, slots=True)
class Wiring:
    """Links of one kind between parts of an enclosure, `lanes` side by side.

    `source` and `target` are paths of part names, from the enclosure inward. `pairs` says which numbers of the
    last part are joined: every pair of numbers ("all"), each source number with its share of the target numbers
    ("match": the same number where there are as many of both), or just those listed.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    link: str
    pairs: Literal["all", "match"] | tuple[tuple[int, int], ...] = "all"
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A host, or a group of hosts: how many of each part it holds, and how those are wired.

    `devices` counts by device type, `switches` counts by name (anything a link can end at: a switch, a network
    card), `inner` the enclosures within, each with a count.
    """

    name: str
    is_host: bool
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    switches: Mapping[str, int] = field(default_factory=dict[str, int])
    inner: tuple[tuple[Enclosure, int], ...] = ()
    wirings: tuple[Wiring, ...] = ()
    facts: Facts = field(default_factory=lambda: NO_FACTS)

    @property
    def device_count(self) -> int:
        """Devices in here and in all enclosures within; own devices are numbered first."""
        return sum(self.devices.values()) + sum(part.device_count * count for part, count in self.inner)


@dataclass(frozen=True, slots=True)
class Device:
    """One device: its number in the cluster, its place ("pod[3]/dgx[12]/a100[5]"), its type, and its host's place."""

    number: int
    place: str
    type: DeviceType
    host: str


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its place, what it is made of, and the numbers of its devices."""

    place: str
    enclosure: Enclosure
    devices: range


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as its file states it; nothing is expanded until it is asked for.

    `ranks` (w,) gives the device number of each rank: a range where ranks fill host after host.
    """

    name: str
    source: str
    devices: Mapping[str, DeviceType]
    links: Mapping[str, LinkType]
    root: Enclosure
    ranks: Sequence[int]
    about: str = ""
    facts: Facts = field(default_factory=lambda: NO_FACTS)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def device_count(self) -> int:
        """Number of devices, with or without a rank."""
        return self.root.device_count

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, {self.device_count:,} devices, {self.world_size:,} ranks)"

    def hosts(self) -> list[Host]:
        """All hosts, in the order of their devices' numbers."""
        return list(find_hosts(self.root))

    def device(self, number: int) -> Device:
        """The device of that number; raises ClusterError where there is none."""
        if not 0 <= number < self.device_count:
            raise ClusterError(f"{self.source}: no device {number}; expected 0 to {self.device_count - 1}")
        enclosure, place, host, rest = self.root, "", "", number
        while True:
            for name, count in enclosure.devices.items():
                if rest < count:
                    return Device(number, f"{place}{name}[{rest}]", self.devices[name], host)
                rest -= count
            for inner, count in enclosure.inner:
                if rest < inner.device_count * count:
                    index, rest = divmod(rest, inner.device_count)
                    place += f"{inner.name}[{index}]"
                    host = place if inner.is_host else host
                    place, enclosure = place + "/", inner
                    break
                rest -= inner.device_count * count

    def device_of(self, rank: int) -> Device:
        """The device that `rank` runs on; raises ClusterError where there is no such rank."""
        if not 0 <= rank < self.world_size:
            raise ClusterError(f"{self.source}: no rank {rank}; expected 0 to {self.world_size - 1}")
        return self.device(self.ranks[rank])


def find_hosts(root: Enclosure) -> Iterator[Host]:
    """All hosts within `root`, in the order of their devices' numbers."""
    waiting: list[tuple[Enclosure, str, int]] = [(root, "", 0)]
    while waiting:
        enclosure, place, first = waiting.pop()
        if enclosure.is_host:
            yield Host(place, enclosure, range(first, first + enclosure.device_count))
            continue
        found: list[tuple[Enclosure, str, int]] = []
        for inner, count in enclosure.inner:
            for index in range(count):
                found.append((inner, f"{place}/{inner.name}[{index}]".lstrip("/"), first))
                first += inner.device_count
        waiting += reversed(found)
