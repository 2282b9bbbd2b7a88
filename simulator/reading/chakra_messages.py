"""Chakra's protobuf messages as nodes and metadata.

Source: the schema of MLCommons Chakra (messages GlobalMetadata, Node, AttributeProto and their field numbers).
"""

from __future__ import annotations

from typing import Any, Final

from makespan.simulator.reading.chakra_nodes import ChakraNode
from makespan.simulator.reading.protobuf_wire import (
    FIXED_32,
    FIXED_64,
    LENGTH,
    VARINT,
    WireError,
    fields,
    fixed,
    signed,
    varints,
    zigzag,
)

_NODE_WIRE: Final = {
    1: (VARINT,), 2: (LENGTH,), 3: (VARINT,), 4: (VARINT, LENGTH), 5: (VARINT, LENGTH), 6: (VARINT,), 7: (VARINT,),
    8: (LENGTH,), 9: (LENGTH,), 10: (LENGTH,), 11: (LENGTH,),
}  # fmt: skip
# Field numbers of an attribute's value; a list has the number after its element's.
_UNSIGNED: Final = (11, 13)
_SIGNED: Final = (7, 9)
_ZIGZAG: Final = (15, 17)
_BOOL: Final = 27
_FIXED: Final = {3: "d", 5: "f", 19: "I", 21: "Q", 23: "i", 25: "q"}
_STRING: Final = 29


def is_node(message: bytes) -> bool:
    """Whether a protobuf message has the fields of a node, and a name or a type among them."""
    try:
        found = [(number, wire) for number, wire, _ in fields(message)]
    except WireError:
        return False
    return all(wire in _NODE_WIRE.get(number, ()) for number, wire in found) and any(n in (2, 3) for n, _ in found)


def is_metadata(message: bytes) -> bool:
    """Whether a protobuf message has the fields of the metadata that every file begins with."""
    try:
        return all(number in (1, 2) and wire == LENGTH for number, wire, _ in fields(message))
    except WireError:
        return False


def node_of_message(message: bytes) -> ChakraNode:
    """A node from its protobuf message; raises WireError where it is none."""
    node = ChakraNode(number=0)
    for number, wire, value in fields(message):
        if wire not in _NODE_WIRE.get(number, (wire,)):
            raise WireError(f"node field {number} of wire type {wire}")
        if number in (4, 5):
            node.dependencies.extend(varints(value))
        elif isinstance(value, int):
            if number == 1:
                node.number = value
            elif number == 3:
                node.type = value
            elif number == 6:
                node.start_us = value
            elif number == 7:
                node.duration_us = value
        elif number == 2:
            node.name = _text(value)
        elif number == 8:
            texts = {at: _text(part) for at, _, part in fields(value) if isinstance(part, bytes)}
            node.shapes, node.types = texts.get(2, ""), texts.get(3, "")
        elif number == 10:
            name, told = attribute_of_message(value)
            node.attributes[name] = told
    return node


def metadata_of_message(message: bytes) -> dict[str, Any]:
    """The file's metadata by name; attributes are field 2, in older schemas field 1, which is now the version."""
    found: dict[str, Any] = {}
    for number, wire, value in fields(message):
        if wire != LENGTH or not isinstance(value, bytes):
            continue
        try:
            name, told = attribute_of_message(value)
        except WireError:
            name, told = ("version" if number == 1 else ""), _text(value)
        if name:
            found[name] = told
    return found


def attribute_of_message(message: bytes) -> tuple[str, Any]:
    """Name and value of an attribute; raises WireError where it is none."""
    name, told = "", None
    for number, wire, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            name = _text(value)
        elif number > 2:
            told = _scalar(number, wire, value)
            if told is None and number % 2 == 0 and isinstance(value, bytes):
                told = [
                    part
                    for at, inner, packed in fields(value)
                    if at == 1
                    for part in _elements(number - 1, inner, packed)
                ]
    return name, told


def _scalar(number: int, wire: int, value: int | bytes) -> Any:
    if isinstance(value, int):
        if number in _SIGNED:
            return signed(value)
        if number in _ZIGZAG:
            return zigzag(value)
        return bool(value) if number == _BOOL else value if number in _UNSIGNED else None
    if wire in (FIXED_32, FIXED_64):
        return fixed(value, _FIXED[number]) if number in _FIXED else None
    return _text(value) if number == _STRING else None


def _elements(number: int, wire: int, value: int | bytes) -> list[Any]:
    """The elements of a list of what field `number` is a single one of: packed, or one of several occurrences."""
    if number in _FIXED and isinstance(value, bytes):
        width = 4 if _FIXED[number] in "fIi" else 8
        return [fixed(value[at : at + width], _FIXED[number]) for at in range(0, len(value), width)]
    if number in (*_SIGNED, *_ZIGZAG, *_UNSIGNED, _BOOL):
        return [_scalar(number, VARINT, part) for part in varints(value)]
    return [_scalar(number, wire, value)]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
