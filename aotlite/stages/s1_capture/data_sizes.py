"""Sizes that depend on values: `nonzero`, masks, `item()` of integers (DYN-30 to DYN-32).

The number of elements is a symbol. In the graph it is an argument of ops; a 0-d tensor of the graph
is its value, and one more result of it. Here it gets its hint: what it is in the call that is
captured. So the recorded nodes run on copies of the inputs. Spec: `specs/data_sizes.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotlite.eager.base.modes import STATE, recording
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import note_refusal
from aotlite.eager.dispatch.pure import run_pure
from aotlite.eager.rng.generator import current
from aotlite.ir.arrays import array_over, copied, host_array
from aotlite.ir.dtypes import int64, uint8
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import AotliteError, UnsupportedError, in_words, noted
from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.graph.role import Seed
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import DataOp, InplaceOp, MultiViewOp, PureOp, RandomOp, ViewOp
from aotlite.ir.ops.shape.copies import CLONE
from aotlite.ir.ops.structure import ResultOp
from aotlite.ir.provenance.location import place_of
from aotlite.ir.run.interpreter import ArrayValue, Interpreter, array_value, computed
from aotlite.ir.symbols.assumption import Texts, at_places, concrete, printing
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.user_code import CountSymbols, asked_outside, held_symbol, symbols_in
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.shared.user_frames import describe, user_location

WAYS_OUT = (
    "Say what holds, which is checked in each call: al.check(n > 0). (DYN-32)",
    "Or state a default, which may be asked from then on, and is captured anew where the answer is "
    "another one: al.size_hint(n, 8).",
    "Or compute the number outside of the compiled function, and pass it in.",
)


def _read(text: object) -> object:
    recorder = STATE.recorder
    return text if recorder is None or not asked_outside(3) else recorder.data.read(text)


AotliteError.reading = _read


class DataSizes:
    """The symbols of one capture that depend on values, and the results that are their values."""

    _values: PrefixValues | None = None
    _own: SymbolTable | None = None
    """The table, if the capture has no other symbols."""

    _results: tuple[Tensor, ...] = ()
    """The values of the symbols, in their order."""
    _counted: tuple[tuple[Node, Any], ...] = ()
    """The nodes of these values, with their symbols."""
    _kept: tuple[Callable[..., object], ...] = ()
    """The hooks and callbacks of the function."""

    def __init__(self, recorder: CaptureTrace) -> None:
        self.recorder = recorder

    def end(self) -> tuple[Tensor, ...]:
        """The function has returned: the values of the symbols, which become results."""
        for function in self._kept:  # by now they hold what later calls find there
            self._check_kept(function)
        self._kept = ()
        self._values = None  # the recorder may live on, for derivatives of a backward
        if self._own is not None:
            self._own.texts, self._own.shown_as_ints = Texts.SYMBOLS, False
        return self._results

    def _sizes(self) -> SymbolicSizes:
        """The symbols of the capture; made here if no size of an argument is one."""
        found = self.recorder.sizes
        if found is None:
            found = self.recorder.sizes = SymbolicSizes({})
            self._own, found.table.texts = found.table, Texts.HINTS
        if found.table.counts is None:
            found.table.show_as_ints()
            found.table.counts = CountSymbols(self._refusal)
        return found

    def count(self, op: DataOp, args: tuple[Any, ...]) -> int:
        """The size of an op's results that depends on values, as a symbol."""
        self._check_place(
            f"{op.name} (the shape of whose result depends on values that are not known)", op.advice
        )
        found: Any = run_pure(op.number, args, self.recorder)
        return self._symbol(found, f"count of {op.name}", 0)

    def number(self, tensor: Tensor) -> int:
        """The only element of a tensor of integers, as a symbol."""
        self._check_place(
            "item() of a tensor (whose value is not known)", "use a tensor operation such as where"
        )
        with recording(self.recorder):
            scalar = tensor.detach().reshape(()).to(int64)
            found: Tensor = scalar._apply(CLONE, (scalar,))
        return self._symbol(found, "item()", None)

    @property
    def keeps(self) -> bool:
        """Whether later calls run a hook or callback."""
        return bool(self._kept)

    def keep(self, function: Callable[..., object]) -> None:
        """Notes a hook or callback, which later calls run: it must hold no symbol (DYN-23).

        Raises UnsupportedError for a number that depends on values, which no capture has.
        """
        self._kept += (function,)
        if self.recorder.sizes is not None and self.recorder.sizes.counts:
            self._check_kept(function)

    def _check_kept(self, function: Callable[..., object]) -> None:
        """Has the function captured with numbers if this hook or callback holds a symbol."""
        sizes = self.recorder.sizes
        found = None if sizes is None else held_symbol(function)
        if sizes is None or found is None:
            return
        if symbols_in(found) & set(sizes.counts):
            raise noted(
                UnsupportedError(
                    "capture: a hook or callback holds a number that depends on values, expected "
                    "one that computes it from a tensor"
                ),
                "Or compute the number outside of the compiled function, and pass it in. (DYN-32)",
            )
        sizes.kept.append(function)

    def read(self, text: object) -> object:
        """The text of an error that the function reads: its numbers are assumed (DYN-23)."""
        sizes = self.recorder.sizes
        if sizes is None:
            return text
        for number in (*sizes.table.printed, *sizes.floats.arguments.values()):
            number.plain()
        return at_places(text, sizes.table.hints) if type(text) is str else text

    def _check_place(self, what: str, advice: str) -> None:
        recorder = self.recorder
        inside = recorder.origin is not None or recorder.phase is not Phase.FORWARD
        if inside or recorder.recompute is not None or recorder.wrapped:
            raise recorder.refuse(what, advice)

    def _symbol(self, found: Tensor, what: str, least: int | None) -> Any:
        sizes = self._sizes()
        at = user_location()
        text = what if at is None else f"{what} at {place_of(at)}"
        values = self._values = self._values or PrefixValues(self.recorder)
        hint = int(host_array(values.of(found.value).array))
        for node, known in self._counted:
            if values.are_equal(node, found.value):
                return known
        self._results += (found,)
        made = sizes.count(hint, text, least)
        self._counted += ((found.value, made),)
        assert sizes.table.counts is not None
        sizes.table.counts.open.add(sizes.table.expression(made))
        return made

    def _refusal(self, fact: object, names: set[str]) -> Exception:
        sizes = self.recorder.sizes
        assert sizes is not None
        found = "; ".join(f"{name} is {sizes.counts[name]}" for name in sorted(names))
        with printing(sizes.table, Texts.SYMBOLS):
            asked = str(fact)
        error = UnsupportedError(
            f"capture: the function asks for {asked}, which depends on values and has no stated "
            f"default, expected a function of every size ({found})"
        )
        return note_refusal(noted(error, describe(user_location()), *WAYS_OUT), self.recorder)


# ----------------------------------------------------------------------------- values of this call
class PrefixValues:
    """Runs the nodes that are recorded so far, on copies of the call's inputs."""

    def __init__(self, recorder: CaptureTrace) -> None:
        self.recorder = recorder
        self._run = _Prefix(recorder)
        self._done = 0

    def of(self, node: Node) -> Any:
        """The value of a node in this call."""
        nodes, prefix = self.recorder.nodes, self._run
        with recording(None):
            for each in nodes[self._done :]:
                prefix.node = each
                try:
                    prefix.env[each] = prefix.run_node(each)
                except UnsupportedError:
                    raise
                except Exception as error:
                    told = in_words(getattr(each.target, "name", ""), each.args, error)
                    # The code may catch this error, and would take that branch in each call then.
                    raise note_refusal(told, self.recorder) from None
        self._done = len(nodes)
        return prefix.env[node]

    def are_equal(self, first: Node, second: Node) -> bool:
        """Whether two nodes that have run have one value in each call: they are the same pure ops
        of values that nothing has written in between."""
        operands: set[Node] = set()
        if not _is_one_value(first, second, operands):
            return False
        place = {node: k for k, node in enumerate(self.recorder.nodes)}
        later = self.recorder.nodes[min([place.get(node, -1) for node in operands]) + 1 :]
        read = {id(buffer) for node in operands for buffer in self._buffers(node)}
        written = [each for each in later if not isinstance(each.target, (*_PURE, RandomOp))]
        return all(
            isinstance(each.target, InplaceOp)
            and not read.intersection(map(id, self._buffers(each.args[0])))
            for each in written
        )

    def _buffers(self, node: Any) -> list[object]:
        value = self._run.env[node]
        return [each.buffer for each in (value if isinstance(value, tuple) else (value,))]


_PURE = (PureOp, ViewOp, MultiViewOp, ResultOp)


def _is_one_value(a: object, b: object, operands: set[Node]) -> bool:
    """Whether two arguments are one, or are computed by the same pure ops; notes the nodes."""
    if isinstance(a, Node) and isinstance(b, Node):
        operands.update((a, b))
        if a is b or len(operands) > _MOST_OPERANDS:
            return a is b
        return a.target is b.target and isinstance(a.target, _PURE) and _are(a, b, operands)
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(
            _is_one_value(each, other, operands) for each, other in zip(a, b, strict=True)
        )
    return a is b or type(a) is type(b) and type(a) in _LITERALS and a == b


def _are(a: Node, b: Node, operands: set[Node]) -> bool:
    return _is_one_value(tuple(a.args), tuple(b.args), operands)


_LITERALS = (int, float, bool, str)
_MOST_OPERANDS = 60
"""A search through a long program is not worth it: masks are short."""


class _Prefix(Interpreter):
    """Runs single nodes of a capture: inputs are copies, and draws are those of the call."""

    def __init__(self, recorder: CaptureTrace) -> None:
        super().__init__(Graph((Node("output", None, ((),)),)))
        self.recorder = recorder
        self._buffers: dict[int, Any] = {}
        """By the id of a buffer: its copy."""
        self._drawn = 0

    def fetch_args(self, node: Node) -> tuple[Any, ...]:
        """The arguments, with the call's numbers for symbols."""
        sizes = self.recorder.sizes
        assert sizes is not None
        args: tuple[Any, ...] = map_nodes(node.args, self._value)
        return concrete(args, sizes.table.hints)

    def _value(self, node: Node) -> Any:
        if node not in self.env:
            self.env[node] = self._input(node)
        return self.env[node]

    def _input(self, node: Node) -> ArrayValue:
        real = self.recorder.real_at(node)
        if real is None:
            state = current().get_state()
            number = state[0] if isinstance(node.role, Seed) else state[1]
            meta: Any = node.meta
            return array_value(np.array(number, np.uint64), meta)
        memory, arrays = real.storage.buffer, real.device.arrays
        if memory is None:
            raise self.recorder.refuse(
                "a size that depends on values, of a tensor without memory of its own",
                "compute the size outside, and pass it",
            )
        if id(memory) not in self._buffers:
            whole = tensor_meta((memory.nbytes,), None, uint8, real.device)
            self._buffers[id(memory)] = copied(arrays, array_over(arrays, memory, whole), whole)
        return ArrayValue(self._buffers[id(memory)], real.meta, real.offset)

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        """The result of an op."""
        if isinstance(target, RandomOp):
            meta: Any = target.infer(args)
            seed, offset = current().get_state()
            place = seed, offset + self._drawn, 0
            self._drawn += target.consumes(meta)
            return computed(target.functional, (*place, *args), meta)
        if isinstance(target, EffectOp | TokenOp):
            raise self.recorder.refuse(
                f"a size that depends on values, after {target.name}, which has an effect",
                "compute the size before it, or outside",
            )
        return super().call(target, args)
