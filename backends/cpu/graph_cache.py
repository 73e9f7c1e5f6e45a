"""The graph cache on disk: a graph's key -> its C text and the data for calling it.

A hit skips lowering, fusion and printing, which take longer than loading a library. Records are
JSON, which runs no code when it is read; an extern's op stands there by its name. The loop program
is not kept, but made again for users who print it. Spec: `specs/cpu_backend.md` (CPU-9).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from aotlite.backends.cpu.emit.c_text import PrintedC, ProgramText
from aotlite.backends.loops.program import BufferKind, Extern, LoopProgram, Placed, ProgramBuffer
from aotlite.backends.native.cache import artifact_cache
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import BackendError
from aotlite.ir.graph.compare import MOST_BYTES
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import PureOp, op_named


def remembered(key: str | None) -> ProgramText | None:
    """Returns the record of a key, its bytes checked; None if there is none.

    A record that cannot be read is removed, so that a new one takes its place.
    """
    if key is None:
        return None
    data = artifact_cache.contents(key)
    if data is None:
        return None
    try:
        return _text(json.loads(data))
    except Exception:  # a field is missing or of another type
        artifact_cache.removed(key)
        return None


def remember(key: str | None, text: ProgramText) -> None:
    """Writes the record of a key, unless its constants are large or it cannot be expressed."""
    constants = [b.value for b in text.program.buffers if b.kind is BufferKind.CONSTANT]
    if key is None or sum([value.nbytes for value in constants]) > MOST_BYTES:
        return
    # A cache that cannot be written was reported when the library was stored, or nobody waits.
    with suppress(_Unwritten, BackendError):
        artifact_cache.kept(key, "graph", ".json", json.dumps(_record(text)).encode())


class _Unwritten(Exception):
    """Raised for a value that a record cannot express."""


# ----------------------------------------------------------------------------------------- records
def _record(text: ProgramText) -> dict[str, object]:
    program, printed = text.program, text.printed
    held = {buffer.number for buffer in text.held}
    kept = [b for b in program.buffers if b.kind is not BufferKind.TEMPORARY or b.number in held]
    return {
        "name": program.name,
        "buffers": [_buffer_record(buffer) for buffer in kept],
        "inputs": program.inputs,
        "outputs": [_word(placed) for placed in program.outputs],
        "held": [buffer.number for buffer in text.held],
        "arena": text.arena_bytes,
        "segments": [_segment_record(each) for each in printed.segments],
        "slots": printed.slots,
        "nanoseconds": printed.nanoseconds,
        "kernels": [printed.kernels, printed.different],
        "text": printed.text,
    }


def _text(record: Mapping[str, Any]) -> ProgramText:
    buffers = tuple([_buffer(*each) for each in record["buffers"]])
    outputs = tuple([_value(placed) for placed in record["outputs"]])
    program = LoopProgram(record["name"], buffers, (), tuple(record["inputs"]), outputs)
    segments = tuple([_segment(each) for each in record["segments"]])
    numbers = record["nanoseconds"], *record["kernels"]
    printed = PrintedC(record["text"], segments, tuple(record["slots"]), *numbers)
    held = {buffer.number: buffer for buffer in buffers}
    return ProgramText(program, printed, record["arena"], tuple([held[n] for n in record["held"]]))


def _buffer_record(buffer: ProgramBuffer) -> list[object]:
    value = None if buffer.value is None else base64.b64encode(buffer.value.tobytes()).decode()
    return [buffer.number, buffer.dtype.name, buffer.size, buffer.kind.value, value]


def _buffer(number: int, dtype: str, size: int, kind: str, value: str | None) -> ProgramBuffer:
    of = dtypes.by_name(dtype)
    data = None if value is None else np.frombuffer(base64.b64decode(value), of.numpy)
    return ProgramBuffer(number, of, size, _KINDS[kind], value=data)


_KINDS = {kind.value: kind for kind in BufferKind}


def _segment_record(segment: str | Extern) -> object:
    if type(segment) is str:
        return segment
    assert isinstance(segment, Extern)
    return [segment.op.name, *map(_word, (segment.args, segment.results, segment.meta))]


def _segment(record: Any) -> str | Extern:
    if type(record) is str:
        return record
    name, *values = record
    op = op_named(name)
    assert isinstance(op, (PureOp, TokenOp))
    return Extern(op, *map(_value, values))


# ------------------------------------------------------------------------------------------ values
def _word(value: object) -> object:
    """Returns the JSON of an argument: itself, or a list that begins with its kind."""
    if type(value) in _PLAIN:
        return value
    match value:
        case tuple():
            return ["tuple", *map(_word, value)]
        case Placed():
            return ["placed", value.buffer, value.start, _word(value.meta)]
        case TensorMeta():
            return ["meta", value.dtype.name, value.shape, value.stride]
        case DType():
            return ["dtype", value.name]
        case complex():
            return ["complex", value.real, value.imag]
    raise _Unwritten


_PLAIN = frozenset((type(None), bool, int, float, str))


def _value(word: object) -> Any:
    """Returns the argument of a piece of JSON."""
    if type(word) is not list:
        return word
    kind, *parts = word
    match kind:
        case "tuple":
            return tuple(map(_value, parts))
        case "placed":
            return Placed(parts[0], parts[1], _value(parts[2]))
        case "meta":
            return tensor_meta(parts[1], parts[2], dtypes.by_name(parts[0]))
        case "dtype":
            return dtypes.by_name(parts[0])
        case "complex":
            return complex(*parts)
    raise AssertionError(f"a record has the word {kind!r}")
