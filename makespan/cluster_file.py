"""Cluster files: a cluster from TOML, by path or by the name of a bundled file; every key is checked.

    about = "where the figures come from"
    format = 1

    [device.a100]                     # [device.NAME.flops] by precision, [device.NAME.facts] any numbers
    kind = "gpu"
    memory = "80GB"
    memory_bandwidth = "2039GB/s"
    clock = "1410MHz"
    multiprocessors = 108
    flops = { bf16 = "312TFLOP/s" }

    [link.nvlink]                     # rate of each direction; half duplex: of both together
    bandwidth = "300GB/s"
    latency = "1us"
    duplex = "full"                   # or "half"
    sharing = "exclusive"             # or "fair"

    [host.dgx]
    devices = { a100 = 8 }
    switches = { nvswitch = 1 }       # whatever a link can end at: switches, network cards
    connect = [{ from = "a100", to = "nvswitch", link = "nvlink" }]

    [cluster]                         # [group.NAME] likewise: hosts, groups, switches, connect
    hosts = { dgx = 16 }
    switches = { spine = 1 }
    connect = [{ from = "dgx.nvswitch", to = "spine", link = "nvlink" }]

    [placement]                       # optional; all devices in order if left out
    order = "fill"                    # host after host, or "spread": one on each host in turn
    ranks = 128                       # or devices = [0, 8, 1, ...], one for each rank

In `connect`, `pairs` is "all", "match" (same number with same number, or its share of them) or a list such as
[[0, 1], [2, 3]], and `lanes` counts links side by side.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

from makespan.cluster import Cluster, DeviceType, Enclosure, LinkType, Wiring, find_hosts
from makespan.errors import ClusterError
from makespan.resolve import did_you_mean
from makespan.toml_table import Table
from makespan.units import parse_bytes, parse_duration, parse_quantity, parse_rate

FORMAT: Final = 1
MAX_FILE_BYTES: Final = 1_000_000
MAX_DEVICES: Final = 10_000_000
MAX_DEPTH: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def cluster_names() -> list[str]:
    """Names of the bundled cluster files."""
    folder = files("makespan") / "datasets" / "clusters"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Read a cluster by the name of a bundled file, or from a path that ends in .toml.

    Raises ClusterError with the file and key for anything that is missing, unknown or contradictory.
    """
    told = str(name_or_path)
    if told.endswith(".toml"):
        try:
            with Path(told).open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ClusterError(f"{told}: can't be read ({error.strerror}); expected a cluster file") from None
        return parse_cluster(content, Path(told).stem, told)
    if told not in cluster_names():
        told = f"no bundled cluster {told!r} (a file of yours is named by its path, with .toml)"
        raise ClusterError(told + did_you_mean(str(name_or_path), cluster_names()))
    content = (files("makespan") / "datasets" / "clusters" / f"{told}.toml").read_bytes()
    return parse_cluster(content, told, f"{told}.toml")


def parse_cluster(content: bytes, name: str, source: str) -> Cluster:
    """The cluster in `content` (TOML); `source` is what messages call the file. Raises ClusterError."""
    if len(content) > MAX_FILE_BYTES:
        raise ClusterError(f"{source}: larger than {MAX_FILE_BYTES:,} bytes, more than any cluster file holds")
    try:
        values = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterError(f"{source}: not a TOML file ({error})") from None
    top = Table(values, source)
    if top.count("format") != FORMAT:
        raise top.fault("format", f"is {top.value('format')}, but this makespan reads format {FORMAT}")
    devices = {label: _device(label, table) for label, table in top.tables("device")}
    links = {label: _link(label, table) for label, table in top.tables("link")}
    root = _Enclosures(top, devices, links).root()
    cluster = Cluster(
        name=name,
        source=source,
        devices=devices,
        links=links,
        root=root,
        ranks=_ranks(top.table("placement"), root),
        about=top.text("about", ""),
        facts=top.numbers("facts"),
    )
    top.finish()
    return cluster


def _device(name: str, table: Table) -> DeviceType:
    flops = table.table("flops")
    device = DeviceType(
        name=name,
        kind=table.text("kind"),
        memory_bytes=table.measure("memory", parse_bytes, 0),
        memory_bytes_per_s=table.measure("memory_bandwidth", parse_rate, 0.0),
        flops_per_s={
            precision: flops.measure(precision, lambda text: parse_quantity(text, "FLOP/s")) for precision in flops
        },
        clock_hz=table.measure("clock", lambda text: parse_quantity(text, "Hz"), 0.0),
        multiprocessors=table.count("multiprocessors", 0),
        facts=table.numbers("facts"),
    )
    table.finish()
    return device


def _link(name: str, table: Table) -> LinkType:
    link = LinkType(
        name=name,
        bytes_per_s=table.measure("bandwidth", parse_rate),
        latency_ns=table.measure("latency", parse_duration),
        full_duplex=table.choice("duplex", "full", "half") == "full",
        fair=table.choice("sharing", "exclusive", "fair") == "fair",
        facts=table.numbers("facts"),
    )
    table.finish()
    return link


class _Enclosures:
    """Hosts and groups of a file, built when they are first named, each once."""

    def __init__(self, top: Table, devices: Mapping[str, DeviceType], links: Mapping[str, LinkType]) -> None:
        self._top = top
        self._devices = devices
        self._links = links
        self._hosts = dict(top.tables("host"))
        self._groups = dict(top.tables("group"))
        self._cluster = top.table("cluster")
        self._built: dict[str, Enclosure] = {}
        for label in (*devices, *self._hosts, *self._groups):
            if not _NAME.fullmatch(label):
                raise top.fault(label, "is no good name: expected letters, digits, hyphens and underscores")
        for label in self._hosts.keys() & self._groups.keys():
            raise top.fault(f"host.{label}", "is the name of a group as well; give each its own")

    def root(self) -> Enclosure:
        """The whole cluster; hosts and groups that it doesn't hold are errors too."""
        root = self._enclosure("cluster", self._cluster, is_host=False, within=())
        for key, known in (("host", self._hosts), ("group", self._groups)):
            for label in known:
                if label not in self._built:
                    raise self._top.fault(f"{key}.{label}", "is never used: count it in [cluster] or in a group")
        if not 0 < root.device_count <= MAX_DEVICES:
            raise self._cluster.fault("hosts", f"give {root.device_count:,} devices, expected 1 to {MAX_DEVICES:,}")
        return root

    def _enclosure(self, name: str, table: Table, *, is_host: bool, within: tuple[str, ...]) -> Enclosure:
        if name in within or len(within) > MAX_DEPTH:
            raise table.fault("groups", f"lead back to {name}, or are nested deeper than {MAX_DEPTH}")
        devices = self._counts(table, "devices", self._devices) if is_host else {}
        inner: list[tuple[Enclosure, int]] = []
        if not is_host:
            for kind, known, host in (("hosts", self._hosts, True), ("groups", self._groups, False)):
                for label, count in self._counts(table, kind, known).items():
                    if label not in self._built:
                        self._built[label] = self._enclosure(label, known[label], is_host=host, within=(*within, name))
                    inner.append((self._built[label], count))
        switches = self._counts(table, "switches", None)
        for label in switches.keys() & {*devices, *(part.name for part, _ in inner)}:
            raise table.fault(f"switches.{label}", "is the name of another part as well; give each its own")
        bare = Enclosure(name, is_host, devices, switches, tuple(inner))
        wirings = tuple(
            self._wiring(Table(values, table.source, table.path(f"connect[{place}]")), bare)
            for place, values in enumerate(table.list("connect"))
        )
        enclosure = Enclosure(name, is_host, devices, switches, tuple(inner), wirings, table.numbers("facts"))
        table.finish()
        return enclosure

    def _counts(self, table: Table, key: str, known: Mapping[str, Any] | None) -> dict[str, int]:
        """Counts by name; each name must be one of the `known` ones, where those are given."""
        inner = table.table(key)
        for label in inner:
            if known is not None and label not in known:
                raise inner.fault(label, f"is not described{did_you_mean(label, known)}")
            if not _NAME.fullmatch(label):
                raise inner.fault(label, "is no good name: expected letters, digits, hyphens and underscores")
        return {label: inner.count(label, least=1) for label in inner}

    def _wiring(self, table: Table, enclosure: Enclosure) -> Wiring:
        source, source_count = _path(table, "from", enclosure)
        target, target_count = _path(table, "to", enclosure)
        link = table.text("link")
        if link not in self._links:
            raise table.fault("link", f"is {link!r}, which is not described{did_you_mean(link, self._links)}")
        pairs: Literal["all", "match"] | tuple[tuple[int, int], ...]
        if isinstance(table.value("pairs") if table.has("pairs") else "", list):
            pairs = tuple(_pair(table, pair, source_count, target_count) for pair in table.list("pairs"))
        else:
            pairs = "match" if table.choice("pairs", "all", "match") == "match" else "all"
        lanes = table.count("lanes", 1, least=1)
        table.finish()
        return Wiring(source, target, link, pairs, lanes)


def _path(table: Table, key: str, enclosure: Enclosure) -> tuple[tuple[str, ...], int]:
    """The parts' names from `enclosure` inward, and the count of the last part."""
    names = tuple(table.text(key).split("."))
    for name in names[:-1]:
        parts = {part.name: part for part, _ in enclosure.inner}
        if name not in parts:
            raise table.fault(key, f"names {name!r}, no host or group of {enclosure.name}{did_you_mean(name, parts)}")
        enclosure = parts[name]
    counts = {**enclosure.devices, **enclosure.switches}
    if names[-1] not in counts:
        told = f"names {names[-1]!r}, no device or switch of {enclosure.name}"
        raise table.fault(key, told + did_you_mean(names[-1], counts))
    return names, counts[names[-1]]


def _pair(table: Table, pair: Any, source_count: int, target_count: int) -> tuple[int, int]:
    if isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair):
        source, target = pair
        if 0 <= source < source_count and 0 <= target < target_count:
            return source, target
    raise table.fault("pairs", f"holds {pair!r}, expected two numbers below {source_count} and {target_count}")


def _ranks(table: Table, root: Enclosure) -> Sequence[int]:
    """The device number of each rank."""
    total = root.device_count
    if table.has("devices"):
        ranks = table.list("devices")
        for number in ranks:
            if type(number) is not int or not 0 <= number < total:
                raise table.fault("devices", f"holds {number!r}, expected device numbers from 0 to {total - 1}")
        table.finish()
        return tuple(ranks)
    order = table.choice("order", "fill", "spread")
    count = table.count("ranks", total, least=1)
    table.finish()
    if count > total:
        raise table.fault("ranks", f"is {count}, but there are {total} devices; list `devices` to share some")
    if order == "fill":
        return range(count)
    rounds: list[tuple[int, int, int]] = []
    for place, host in enumerate(find_hosts(root)):
        rounds += [(turn, place, number) for turn, number in enumerate(host.devices)]
    return tuple(number for _, _, number in sorted(rounds)[:count])
