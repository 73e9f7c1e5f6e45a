"""Which backwards of custom functions are recorded: the proof, and what it depends on (CAG-30).

A recorded backward is run once, on fakes. So its code must compute only, and all that it reads
must be in the key of the graph: variables of its functions, attributes of `ctx`, the metas of
gradients and saved tensors. Anything else is called, and `Called` says why.
Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import attrs
import numpy as np

from aotlite.compiled_autograd.node_signatures import is_plain
from aotlite.eager.autograd.custom_function.context import FunctionCtx
from aotlite.eager.autograd.custom_function.function import once_differentiable
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.stages.s1_capture.environment.access_search import is_users
from aotlite.stages.s1_capture.environment.bytecode_reads import steps_of
from aotlite.stages.s1_capture.hooks.purity import Loads, loads_of
from aotlite.stages.s1_capture.hooks.reachable import article, variables_of

_VALUES = (
    bool, int, str, bytes, range, types.NoneType, types.EllipsisType, DType, Device, MemoryFormat,
    np.dtype, np.ufunc,
)  # fmt: skip
_NUMBERS = (float, complex, np.generic)
_HISTORY = frozenset(
    "requires_grad requires_grad_ is_leaf retain_grad retains_grad grad output_nr register_hook "
    "backward enable_grad set_grad_enabled inference_mode is_grad_enabled is_inference autograd "
    "checkpoint func compile".split()
)
"""Attributes that ask for the history of a tensor, which a fake has not, or that make one."""
_MEMORY = frozenset(
    "data data_ptr storage untyped_storage storage_offset offset version array numpy set_ resize_ "
    "is_shared is_pinned names".split()
)
_QUESTIONS = frozenset("is_tracing is_running is_enabled compiled_autograd_enabled".split())
_CLASSES = frozenset(("isinstance", "issubclass", "type", "repr", "str", "format"))
"""Builtins that tell a fake from a tensor of a class."""
_OWN_ATTRIBUTES = frozenset(vars(FunctionCtx("", ()))) - {"needs_input_grad"}


class Called(Exception):
    """Raised for a backward that is called: its text says why."""


class Again(Exception):
    """Raised by a recording in which a backward turned out to be one that is called: its ops may
    have changed the fakes of others."""


_MOST = 256
"""The largest number of backwards whose proofs are kept."""


@attrs.frozen(eq=False)
class BackwardReader:
    """What the backward of one `Function` reads beside its arguments."""

    loads: Loads
    proved: Hashable
    """The variables with which it was proven to compute only."""

    @classmethod
    def of(cls, backward: Callable[..., Any]) -> BackwardReader:
        """The reader of a backward. Raises Called unless its code is proven to compute only."""
        function = _inner(backward)
        loads = loads_of(function)
        if loads.against is not None:
            raise Called(f"it {loads.against}")
        for names, what in ((_HISTORY, "history"), (_MEMORY, "memory"), (_QUESTIONS, "mode")):
            asked = sorted(loads.attributes & names)
            if asked:
                raise Called(f"it asks for a {what}: {asked[0]!r}")
        for each in loads.functions:
            _check_code(each)
        return cls(loads, _variables_of(loads))

    def is_current(self) -> bool:
        """Whether all variables are those of the proof."""
        try:
            return _variables_of(self.loads) == self.proved
        except Called:
            return False

    def attributes(self, ctx: FunctionCtx) -> Hashable:
        """The values of the attributes of `ctx` that the code may read. Raises Called."""
        held = vars(ctx)
        names = [each for each in self.loads.attributes if each in held]
        found = []
        for name in sorted(names):
            if name in _OWN_ATTRIBUTES:
                raise Called(f"it reads ctx.{name}")
            if isinstance(held[name], Tensor):
                raise Called(f"ctx.{name} is a tensor that save_for_backward has not saved")
            found.append((name, _key_of(f"ctx.{name}", held[name], {})))
        return tuple(found)


def _variables_of(loads: Loads) -> Hashable:
    """The values of all variables, by function, and of the attributes of Python modules.
    Raises Called for one that may change without being bound anew."""
    numbers = {id(each): k for k, each in enumerate(loads.functions)}
    rows: list[Hashable] = [dtypes.default_dtype]
    for each in loads.functions:
        found = [(name, _key_of(name, value, numbers)) for name, value in variables_of(each)]
        rows.append((each.__code__, tuple(found)))
    for module in loads.modules:
        for name in sorted(loads.attributes):
            if hasattr(module, name):
                rows.append((name, _key_of(name, getattr(module, name), numbers)))
    return tuple(rows)


class BackwardReaders:
    """The readers of one compiler, by backward; a text says why one is called."""

    def __init__(self) -> None:
        self._known: dict[types.FunctionType, BackwardReader | str] = {}

    def key_of(self, node: CustomNode) -> Hashable:
        """All that the ops of a recorded backward depend on, beside gradients and values. Raises
        Called."""
        backward = node._backward
        if not isinstance(backward, types.FunctionType):
            raise Called(f"it is {article(backward)}")
        ctx = node.ctx
        if type(ctx) is not FunctionCtx or ctx._kept is None:
            raise Called("its saved values are freed")
        reader = self._reader_of(backward)
        saved = tuple(_saved_by(ctx))
        rest = ctx._materialize_grads, tuple(node._given), tuple(node.metas)
        return reader.proved, reader.attributes(ctx), saved, rest

    def _reader_of(self, backward: types.FunctionType) -> BackwardReader:
        known = self._known.get(backward)
        if known is None or (isinstance(known, BackwardReader) and not known.is_current()):
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            try:
                known = BackwardReader.of(backward)
            except Called as reason:
                known = str(reason)
            self._known[backward] = known
        if isinstance(known, BackwardReader):
            return known
        raise Called(known)


def _saved_by(ctx: FunctionCtx) -> Iterator[Hashable]:
    tensors = set()
    for each in ctx._kept or ():
        if each is None:
            yield None
            continue
        tensor = each.record.tensor
        if tensor is None:
            raise Called("its saved values are packed")
        if not is_plain(tensor) or id(tensor) in tensors:
            raise Called("it has saved a wrapper, or one tensor twice")
        tensors.add(id(tensor))
        yield tensor.meta, each.index


def _inner(backward: types.FunctionType | Callable[..., Any]) -> Callable[..., Any]:
    """The function that `once_differentiable` decorates: without history it is called as it is."""
    if getattr(backward, "__code__", None) is _DECORATED:
        inner: Callable[..., Any] = backward.__wrapped__  # type: ignore[union-attr]
        return _inner(inner)
    return backward


_DECORATED = once_differentiable(lambda ctx: None).__code__


def _check_code(function: types.FunctionType) -> None:
    """Raises Called for code that compares identities, or asks for classes of tensors."""
    stack = [function.__code__]
    while stack:
        code = stack.pop()
        stack += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        steps = steps_of(code)
        for place, step in enumerate(steps):
            if step.opname == "IS_OP" and not _is_none(steps[place - 1]):
                raise Called("it compares identities")
            if step.opname == "MATCH_CLASS" or step.argval in _CLASSES and _loads(step):
                raise Called("it asks for the class or the text of a value")
            if step.opname == "FORMAT_VALUE":
                raise Called("it makes a text of a value")
            if step.opname == "CONTAINS_OP":
                raise Called("it looks for a value by identity")


def _is_none(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_CONST" and step.argval is None


def _loads(step: dis.Instruction) -> bool:
    return step.opname in ("LOAD_GLOBAL", "LOAD_NAME")


def _key_of(name: str, value: Any, functions: dict[int, int]) -> Hashable:
    """A key that is equal only for values that no code tells apart, now or later."""
    kind = type(value)
    if isinstance(value, _VALUES) and not is_users(kind):
        return kind, value
    if isinstance(value, _NUMBERS) and not is_users(kind):
        return kind, repr(value)
    if kind in (tuple, frozenset):
        parts = value if kind is tuple else sorted(value, key=repr)
        return kind, tuple([_key_of(name, each, functions) for each in parts])
    if kind is slice:
        return kind, _key_of(name, (value.start, value.stop, value.step), functions)
    if kind is functools.partial:
        given = value.args, tuple(value.keywords), tuple(value.keywords.values())
        return kind, _key_of(name, value.func, functions), _key_of(name, given, functions)
    if isinstance(value, types.FunctionType) and is_users(value):
        if id(value) not in functions:
            raise Called(f"{name} is a function that was not there before")
        return functions[id(value)]
    if isinstance(value, Tensor):
        raise Called(f"it reads a tensor, {name}, that save_for_backward has not saved")
    if isinstance(value, (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)):
        return value
    raise Called(f"it reads {name}, {article(value)}")
