"""A network for 2 to 4 workers on one machine: network namespaces joined by veth pairs, shaped by token buckets.

Needs root and the tools ip and tc. Addresses are those of a private range, in namespaces that nothing else can see;
no other address is ever used. All namespaces are deleted again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

PREFIX = "makespan-testbed"
SUBNET = "10.77.0"
UNTHROTTLED = "none"
BURST = "128kb"
"""Larger bursts beat their label, smaller ones than a 64 kB segment fall short of it."""
QUEUE = "4mb"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker runs: the command that enters its namespace, its address, and its network device."""

    enter: tuple[str, ...]
    address: str
    device: str


def works_here() -> str:
    """Empty where namespaces can be made, else why not."""
    if os.geteuid() != 0:
        return "namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"no {' and no '.join(missing)} here" if missing else ""


@contextmanager
def network(workers: int) -> Generator[list[Place]]:
    """Places for `workers` workers; on loopback, unshaped, where namespaces can't be made."""
    reason = works_here()
    if reason:
        print(f"testbed: {reason}; workers share the loopback device and rates can't be set", flush=True)
        yield [Place((), "127.0.0.1", "lo") for _ in range(workers)]
        return
    names = [f"{PREFIX}-{number}" for number in range(workers)]
    hub = f"{PREFIX}-hub"
    _delete([*names, hub])
    try:
        for name in (*names, hub):
            _run("ip", "netns", "add", name)
            # The default congestion control of some machines (bbr) probes for bandwidth, and loses packets doing so.
            _run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
        if workers > 2:
            _run("ip", "-n", hub, "link", "add", "hub", "type", "bridge")
            _run("ip", "-n", hub, "link", "set", "hub", "up")
        for number, name in enumerate(names):
            other, end = (names[1], "w1") if workers == 2 else (hub, f"h{number}")
            if workers > 2 or number == 0:
                _run(
                    "ip",
                    "link",
                    "add",
                    f"w{number}",
                    "netns",
                    name,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    end,
                    "netns",
                    other,
                )
            if workers > 2:
                _run("ip", "-n", hub, "link", "set", end, "master", "hub", "up")
            _run("ip", "-n", name, "addr", "add", f"{SUBNET}.{number + 1}/24", "dev", f"w{number}")
            for device in ("lo", f"w{number}"):
                _run("ip", "-n", name, "link", "set", device, "up")
        yield [
            Place(("ip", "netns", "exec", name), f"{SUBNET}.{number + 1}", f"w{number}")
            for number, name in enumerate(names)
        ]
    finally:
        _delete([*names, hub])


def set_rate(device: str, rate: str) -> None:
    """Limit what leaves through `device`, from within its namespace; UNTHROTTLED takes the limit away."""
    if device == "lo":
        return
    if rate == UNTHROTTLED:
        subprocess.run(["tc", "qdisc", "del", "dev", device, "root"], capture_output=True, check=False)
        return
    _run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", BURST, "limit", QUEUE)


def _delete(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
