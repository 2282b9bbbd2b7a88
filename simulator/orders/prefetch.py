"""Prefetch: ask the processor for a far element of an array before a compiled loop needs it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_item_pointer
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


def _compile_prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """The signature of `prefetch` for an array and an index type, and what emits its instruction."""
    signature = types.void(array, index)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        pointer = get_item_pointer(
            context, builder, kind, make_array(kind)(context, builder, arguments[0]), [arguments[1]]
        )
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [byte_pointer],
            ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number]),
        )
        # A read (0) of data that will be used again soon (3), through the data cache (1).
        builder.call(hint, [builder.bitcast(pointer, byte_pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, emit


prefetch: Any = intrinsic(_compile_prefetch)
"""`prefetch(array, index)` in a kernel: a hint to load `array[index]` (1-d) into the cache; never faults.

A sweep over an irregular graph waits for memory at every predecessor; the predecessors of later ops are known in
advance, and asking for their times early makes the sweep about three times as fast.
"""
