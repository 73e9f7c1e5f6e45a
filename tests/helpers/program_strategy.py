"""Hypothesis strategy for `tests.helpers.programs.Program`.

The writer of a program follows the geometry of every tensor by the ops' own rules, so that most
steps are legal; some are not, on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from hypothesis import strategies as st

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.dtypes import float64
from aotlite.ir.errors import AotliteError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS
from tests.helpers.programs import GEOMETRY, MULTI_VIEWS, Program, Ref, Step

SHAPES = (
    (),
    (1,),
    (2,),
    (4,),
    (6,),
    (0,),
    (2, 2),
    (2, 3),
    (3, 2),
    (1, 4),
    (2, 1),
    (2, 2, 2),
    (2, 0),
)


@attrs.define(eq=False)
class Sketch:
    """The strategy's data of a tensor in a program, enough for legal steps."""

    meta: TensorMeta
    offset: int
    room: int
    """Elements of the storage."""


@attrs.define
class Writer:
    """Writes steps, following the geometry of what they make."""

    draw: Callable[[Any], Any]
    values: list[Sketch] = attrs.field(factory=list)
    steps: list[Step] = attrs.field(factory=list)
    grad: bool = True

    def chosen(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, max(low, high)))

    def add(self, op: str, args: tuple[Any, ...], made: Sequence[Sketch]) -> None:
        self.steps.append(Step(op, args, self.grad, len(made)))
        self.values += made

    # --- single steps
    def fresh(self) -> None:
        shape = self.chosen(SHAPES)
        meta = tensor_meta(shape, None, float64)
        tracked = self.number(0, 3) > 0
        self.add("fresh", (shape, tracked), [Sketch(meta, 0, meta.span)])
        if tracked and self.number(
            0, 5
        ):  # writes of leaves are refused: mostly there is more to see
            self.add("mul", (Ref(len(self.values) - 1), 1), [_new(meta)])

    def view(self, at: int, name: str | None = None) -> None:
        """A view of value `at`; also for `t_` and its like."""
        name = name or self.chosen(VIEWS)
        x = self.values[at]
        drawn = _ARGUMENTS[name.rstrip("_")](self, x)
        if drawn is None:
            return
        op, args, windows = drawn
        if name.endswith("_"):
            ((meta, start),) = windows
            x.meta, x.offset = meta, x.offset + start
            self.add(name, (Ref(at), *args), [x])
        else:
            made = [Sketch(meta, x.offset + start, x.room) for meta, start in windows]
            self.add(op, (Ref(at), *args), made)

    def pure(self, at: int) -> None:
        op = self.chosen(PURE)
        x = self.values[at]
        if op in ("add", "mul", "sub"):
            other = self.operand(x.meta.shape, False)
            if isinstance(other, Ref):
                theirs = self.values[other.index].meta.shape
                if _broadcast(x.meta.shape, theirs) is None:
                    return
            self.add(op, (Ref(at), other), [_new(OPS[op].infer((x, self._meta(other))))])
        elif op == "sum":
            dims = self.chosen(((), (-1,), (0,))) if x.meta.shape else ()
            keepdim = bool(self.number(0, 1))
            self.add(op, (Ref(at), dims, keepdim), [_new(OPS[op].infer((x, dims, keepdim, None)))])
        elif op == "matmul":
            self.product(at)
        elif op == "contiguous":
            self.add(op, (Ref(at),), [x if x.meta.contiguous else _new(x.meta.as_contiguous())])
        elif op == "reshape":
            self.add(op, (Ref(at), (-1,)), [_new(x.meta.as_contiguous((x.meta.numel,)))])
            self.values[-1].room = 0  # whether it is a view is not known here: no as_strided of it
        else:
            self.add(op, (Ref(at),), [_new(OPS[op].infer((x,)))])

    def product(self, at: int) -> None:
        """A matrix product with some value that fits."""
        shape = self.values[at].meta.shape
        fitting = [
            i
            for i, other in enumerate(self.values)
            if len(shape) == 2 and len(other.meta.shape) == 2 and other.meta.shape[0] == shape[1]
        ]
        if fitting:
            other = self.chosen(fitting)
            made = OPS["matmul"].infer((self.values[at], self.values[other]))
            self.add("matmul", (Ref(at), Ref(other)), [_new(made)])

    def _meta(self, other: Any) -> Any:
        return self.values[other.index] if isinstance(other, Ref) else other

    def operand(self, shape: tuple[int, ...], into: bool) -> Any:
        """A number or a value that broadcasts with `shape` (`into`: to it), sometimes any value."""
        anything = self.number(0, 11) == 0 and into
        fitting = [
            i
            for i, other in enumerate(self.values)
            if anything
            or (both := _broadcast(shape, other.meta.shape)) is not None
            and (not into or both == shape)
        ]
        if not fitting or self.number(0, 3) == 0:
            return self.number(-2, 3)
        return Ref(self.chosen(fitting))

    def write(self, at: int) -> None:
        op = self.chosen(
            ("mul_", "add_", "mul_", "sub_", "copy_", "fill_", "zero_", "neg_", "relu_", "setitem")
        )
        x = self.values[at]
        if op in ("mul_", "add_", "sub_"):
            args: tuple[Any, ...] = (self.operand(x.meta.shape, True),)
        elif op == "copy_":
            other = self.operand(x.meta.shape, True)
            args = (other if isinstance(other, Ref) else Ref(at),)
        elif op == "fill_":
            args = (self.number(-2, 3),)
        elif op == "setitem":
            if not x.meta.shape or not x.meta.shape[0]:
                return
            args = (self.number(0, x.meta.shape[0] - 1), self.operand(x.meta.shape[1:], True))
        else:
            args = ()
        self.add(op, (Ref(at), *args), [x])

    def other(self, at: int) -> None:
        op = self.chosen(("detach", "look", "requires_grad_", "look"))
        x = self.values[at]
        if op == "requires_grad_":
            self.add(op, (Ref(at),), [x])
        elif op == "detach":
            self.add(op, (Ref(at),), [Sketch(x.meta, x.offset, x.room)])
        else:
            self.add(op, (Ref(at),), [])

    def step(self) -> None:
        if self.number(0, 5) == 0:
            self.grad = not self.grad
        at = self.number(0, len(self.values) - 1)
        kind = self.chosen(
            ("view",) * 7 + ("write",) * 7 + ("pure",) * 3 + ("geometry",) * 2 + ("other",)
        )
        if kind == "geometry":
            self.view(at, self.chosen(GEOMETRY))
        else:
            getattr(self, kind)(at)


def _new(meta: Any) -> Sketch:
    return Sketch(meta, 0, meta.span)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    size = max(len(a), len(b))
    result = []
    for x, y in zip((1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b, strict=True):
        if x != y and 1 not in (x, y):
            return None
        result.append(x if y == 1 else y)
    return tuple(result)


# Arguments of a view: a function of writer and operand, None where the operand has no such view.
# Each gives the method's name, its arguments, and the geometry of each result.
Drawn = tuple[str, tuple[Any, ...], list[tuple[TensorMeta, int]]] | None


def _one(op: str, x: Sketch, *args: Any, name: str | None = None, shown: Any = None) -> Drawn:
    try:
        window = OPS[op].result((x, *args))
    except AotliteError:
        return None
    return name or op, args if shown is None else shown, [window]


def _dim(w: Writer, x: Sketch, extra: int = 0) -> int:
    return w.number(0, len(x.meta.shape) - 1 + extra)


def _draw_view(w: Writer, x: Sketch) -> Drawn:
    count = x.meta.numel
    shapes = [(count,), (1, count), (count, 1), (-1,)]
    if count and count % 2 == 0:
        shapes += [(2, count // 2), (count // 2, 2)]
    if count == 1:
        shapes.append(())
    return _one("view", x, w.chosen(shapes))


def _draw_select(w: Writer, x: Sketch) -> Drawn:
    if not x.meta.shape:
        return None
    dim = _dim(w, x)
    return _one("select", x, dim, w.number(0, x.meta.shape[dim]) - 1)


def _draw_slice(w: Writer, x: Sketch) -> Drawn:
    if not x.meta.shape:
        return None
    size = x.meta.shape[0]
    start, step = w.number(0, size), w.number(1, 2)
    end = w.number(start, size)
    return _one("slice", x, 0, start, end, step, name="getitem", shown=(slice(start, end, step),))


def _draw_narrow(w: Writer, x: Sketch) -> Drawn:
    if not x.meta.shape:
        return None
    dim = _dim(w, x)
    start = w.number(0, x.meta.shape[dim])
    length = w.number(0, x.meta.shape[dim] - start)
    return _one(
        "slice", x, dim, start, start + length, 1, name="narrow", shown=(dim, start, length)
    )


def _draw_expand(w: Writer, x: Sketch) -> Drawn:
    size = tuple(w.number(1, 3) if n == 1 else n for n in x.meta.shape)
    return _one("expand", x, (w.number(1, 2), *size) if w.number(0, 1) else size)


def _draw_squeeze(w: Writer, x: Sketch) -> Drawn:
    if not x.meta.shape:
        return None
    dim = _dim(w, x)
    return _one("squeeze", x, (dim,), shown=(dim,))


def _draw_as_strided(w: Writer, x: Sketch) -> Drawn:
    if not x.room:
        return None
    rank = w.number(0, 2)
    size = tuple(w.number(1, 3) for _ in range(rank))
    stride = tuple(w.number(0, 3) for _ in range(rank))
    span = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if span > x.room:
        return None
    offset = w.number(0, x.room - span)
    return _one("as_strided", x, size, stride, offset - x.offset, shown=(size, stride, offset))


def _draw_parts(w: Writer, x: Sketch) -> Drawn:
    if not x.meta.shape:
        return None
    dim = _dim(w, x)
    name = w.chosen(MULTI_VIEWS)
    if name == "chunk":
        chunks = w.number(1, 3)
        parts = OPS["split"].result((x, max(-(-x.meta.shape[dim] // chunks), 1), dim))
        args: tuple[Any, ...] = (chunks, dim)
    else:
        args = (w.number(1, 2), dim) if name == "split" else (dim,)
        parts = OPS[name].result((x, *args))
    if not parts or x.meta.shape[dim] == 0:
        return None
    return name, args, [view.result((x, *rest)) for view, rest in parts]


_ARGUMENTS: dict[str, Callable[[Writer, Sketch], Drawn]] = {
    "view": _draw_view,
    "t": lambda w, x: _one("t", x),
    "transpose": lambda w, x: (
        _one("transpose", x, _dim(w, x), _dim(w, x)) if x.meta.shape else None
    ),
    "permute": lambda w, x: _one(
        "permute", x, tuple(w.draw(st.permutations(range(len(x.meta.shape)))))
    ),
    "expand": _draw_expand,
    "select": _draw_select,
    "slice": _draw_slice,
    "narrow": _draw_narrow,
    "squeeze": lambda w, x: _draw_squeeze(w, x),
    "unsqueeze": lambda w, x: _one("unsqueeze", x, _dim(w, x, 1)),
    "diagonal": lambda w, x: (
        _one("diagonal", x, w.number(-1, 1), 0, 1) if len(x.meta.shape) > 1 else None
    ),
    "unfold": lambda w, x: (
        _one("unfold", x, 0, w.number(1, 2), w.number(1, 2)) if x.meta.shape else None
    ),
    "as_strided": _draw_as_strided,
    "parts": _draw_parts,
    "all": lambda w, x: _one("alias", x, name="getitem", shown=(Ellipsis,)),
}
VIEWS = tuple(_ARGUMENTS)
PURE = (
    "add",
    "mul",
    "mul",
    "sub",
    "neg",
    "clone",
    "relu",
    "contiguous",
    "reshape",
    "sum",
    "matmul",
)


@st.composite
def programs(draw: Callable[[Any], Any], max_steps: int = 8) -> Program:
    """Programs of up to three inputs, some of them views or duplicates of others."""
    setup = Writer(draw)
    for _ in range(setup.number(1, 2)):
        setup.fresh()
    for _ in range(setup.number(0, 2)):
        setup.grad = setup.number(0, 4) > 0
        setup.view(setup.number(0, len(setup.values) - 1))
    count = setup.number(1, 3)
    inputs = tuple(setup.number(0, len(setup.values) - 1) for _ in range(count))
    body = Writer(draw, [setup.values[i] for i in inputs])
    for _ in range(body.number(1, max_steps)):
        body.step()
    last = len(body.values) - 1
    outputs = tuple(body.number(0, last) for _ in range(body.number(1, 3)))
    return Program(tuple(setup.steps), inputs, tuple(body.steps), outputs, bool(body.number(0, 2)))
