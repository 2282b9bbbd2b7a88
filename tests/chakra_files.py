"""Small Chakra files: an independent writer of the wire format, and nodes in their three spellings."""

from __future__ import annotations

import json
import struct
from typing import Any


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def number_field(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def bytes_field(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(name: str, value: Any) -> bytes:
    """An AttributeProto: integers as int64, lists as bool_list, everything else by its type."""
    if isinstance(value, bool):
        told = number_field(27, value)
    elif isinstance(value, int):
        told = number_field(9, value)
    elif isinstance(value, float):
        told = varint(3 << 3 | 1) + struct.pack("<d", value)
    elif isinstance(value, list):
        told = bytes_field(28, bytes_field(1, bytes(value)))
    else:
        told = bytes_field(29, value)
    return bytes_field(1, name) + told


def node_message(
    number: int, name: str, kind: int, data: Any = (), ctrl: Any = (), start: int = 0, duration: int = 0, **attrs: Any
) -> bytes:
    """A Node; dependencies packed, zeros left out, as protobuf writes them."""
    parts = [number_field(1, number)] if number else []
    parts += [bytes_field(2, name), number_field(3, kind)]
    parts += [bytes_field(4, b"".join(map(varint, ctrl)))] if ctrl else []
    parts += [bytes_field(5, b"".join(map(varint, data)))] if data else []
    parts += [number_field(6, start)] if start else []
    parts += [number_field(7, duration)] if duration else []
    parts += [bytes_field(10, attribute(key, value)) for key, value in attrs.items()]
    return b"".join(parts)


def metadata_message(**attrs: Any) -> bytes:
    return bytes_field(1, "0.0.4") + b"".join(bytes_field(2, attribute(key, value)) for key, value in attrs.items())


def prefixed(*messages: bytes) -> bytes:
    return b"".join(varint(len(message)) + message for message in messages)


def json_node(
    number: int, name: str, kind: str, data: Any = (), ctrl: Any = (), start: int = 0, duration: int = 0, **attrs: Any
) -> str:
    """The JSON form of a message: camel case, 64-bit integers as text, zeros left out."""
    told: dict[str, Any] = {"id": str(number)} if number else {}
    told |= {"name": name, "type": kind}
    told |= {"ctrlDeps": list(map(str, ctrl))} if ctrl else {}
    told |= {"dataDeps": list(map(str, data))} if data else {}
    told |= {"startTimeMicros": str(start)} if start else {}
    told |= {"durationMicros": str(duration)} if duration else {}
    told["attr"] = [{"name": key, **json_value(value)} for key, value in attrs.items()]
    return json.dumps(told, indent=2)


def json_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolVal": value}
    if isinstance(value, list):
        return {"boolList": {"values": value}}
    return {"int64Val": str(value)} if isinstance(value, int) else {"stringVal": value}
