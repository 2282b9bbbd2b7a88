"""A table of a TOML file, read key by key, so that what nobody asked for is an error with a suggestion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from makespan.errors import ClusterError, MakespanError
from makespan.resolve import did_you_mean

T = TypeVar("T")


class Table:
    """One table at `key` of the file `source`; every getter raises ClusterError naming both."""

    def __init__(self, values: Any, source: str, key: str = "") -> None:
        self.source = source
        self._key = key
        self._asked: set[str] = set()
        if not isinstance(values, dict):
            raise ClusterError(f"{source}: {key} is {values!r}, expected a table")
        self._values: dict[str, Any] = values

    def fault(self, key: str, told: str) -> ClusterError:
        """The error for a wrong value at `key` of this table."""
        return ClusterError(f"{self.source}: {self.path(key)} {told}")

    def path(self, key: str) -> str:
        """The full name of `key`."""
        return f"{self._key}.{key}" if self._key else key

    def has(self, key: str) -> bool:
        """True where the file states `key`."""
        return key in self._values

    def value(self, key: str) -> Any:
        """The raw value of `key`; raises where it is missing."""
        self._asked.add(key)
        if key not in self._values:
            raise self.fault(key, "is missing")
        return self._values[key]

    def text(self, key: str, default: str | None = None) -> str:
        """Text at `key`."""
        if default is not None and not self.has(key):
            self._asked.add(key)
            return default
        value = self.value(key)
        if not isinstance(value, str):
            raise self.fault(key, f"is {value!r}, expected text")
        return value

    def choice(self, key: str, *choices: str) -> str:
        """One of `choices` at `key`, the first if it is missing."""
        value = self.text(key, choices[0])
        if value not in choices:
            raise self.fault(key, f"is {value!r}{did_you_mean(value, choices)}")
        return value

    def count(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number of at least `least` at `key`."""
        if default is not None and not self.has(key):
            self._asked.add(key)
            return default
        value = self.value(key)
        if type(value) is not int or value < least:
            raise self.fault(key, f"is {value!r}, expected a whole number from {least} on")
        return value

    def measure(self, key: str, parse: Callable[[str], T], default: T | None = None) -> T:
        """Text with a unit at `key`, as `parse` understands it."""
        if default is not None and not self.has(key):
            self._asked.add(key)
            return default
        text = self.text(key)
        try:
            return parse(text)
        except MakespanError as error:
            raise self.fault(key, f"is not understood: {error}") from None

    def list(self, key: str) -> list[Any]:
        """A list at `key`, empty if it is missing."""
        self._asked.add(key)
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise self.fault(key, f"is {value!r}, expected a list")
        return value

    def table(self, key: str) -> Table:
        """The table at `key`, empty if it is missing."""
        self._asked.add(key)
        return Table(self._values.get(key, {}), self.source, self.path(key))

    def tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """All tables within the table at `key`, by name."""
        inner = self.table(key)
        for name in inner:
            yield name, inner.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def numbers(self, key: str) -> Mapping[str, float]:
        """The table at `key` as finite numbers by name, empty if it is missing."""
        inner = self.table(key)
        found: dict[str, float] = {}
        for name in inner:
            value = inner.value(name)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise inner.fault(name, f"is {value!r}, expected a number")
            found[name] = float(value)
        return found

    def finish(self) -> None:
        """Raise for the first key that nobody asked for."""
        for key in self._values:
            if key not in self._asked:
                raise self.fault(key, f"is unknown{did_you_mean(key, self._asked)}")
