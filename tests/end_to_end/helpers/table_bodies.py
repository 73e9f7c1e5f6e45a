"""Bodies of table programs: calls of the op table, each tried on real values before it is kept.

Operands are tensors at hand, parts of them, or new parameters; lines of other kinds are mixed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.dispatch import _HANDLERS
from aotlite.ir import dtypes
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.op import DataOp
from aotlite.testing.laws.samples.sample import Sample
from tests.end_to_end.helpers.random_bodies import BodyWriter, result_text
from tests.end_to_end.helpers.scripts import Line, Script, eager_form, new_scope, run_text
from tests.end_to_end.helpers.table_calls import (
    Face,
    call_text,
    dtype_name,
    faces,
    made_text,
    usable_samples,
    writes,
)

OTHERS = (3, 1.5, 0.5, 0.6, 0.5, 0.3, 0.3, 0.7)
"""How often lines that no sample says: views, writes, pure ops, geometry, parts, plain Python,
random ops, joins."""
FACES = faces()


@attrs.define
class Input:
    """A parameter of the function: what makes it, and what makes other ones like it."""

    name: str
    first: tuple[str, ...]
    again: tuple[str, ...]


@attrs.define
class TableWriter(BodyWriter):
    """Writes bodies of calls of the table, adding a parameter where nothing at hand fits."""

    inputs: list[Input] = attrs.field(factory=list)
    weights: tuple[float, ...] = OTHERS

    def table_step(self, face: Face) -> bool:
        """A line more that calls it; False if none of a few tries runs."""
        samples = usable_samples(face.key)
        for attempt in range(4 if samples else 0):
            if self._try(face, self.rng.choice(samples), lives=0.7 if attempt < 2 else 0.2):
                return True
        return False

    def _try(self, face: Face, sample: Sample, *, lives: float) -> bool:
        rng, count, lines = self.rng, len(self.inputs), len(self.lines)
        operand = _Operands(self, lives, other_shapes=rng.random() < 0.35)
        form = "method" if rng.random() < 0.6 else "function"
        call = call_text(face, sample, operand, form)
        text = call if writes(face) and rng.random() < 0.6 else f"{self.name()} = {call}"
        if "empty" in face.name:
            text += ".zero_()"
        if rng.random() < 0.1:
            text = f"with al.no_grad():\n    {text}"
        self.keep(text)
        if len(self.lines) == lines:
            for each in self.inputs[count:]:
                del self.frame[each.name]
                self.known.remove(each.name)
            del self.inputs[count:]
            return False
        if rng.random() < 0.07 and call.startswith("al.") and "=" in text:
            self._into(call, f"v{self.count}")
        return True

    def _into(self, call: str, result: str) -> None:
        """The call again, into a tensor that may hold its result."""
        made = self.frame.get(result)
        if isinstance(made, al.Tensor):
            fits = self.pick(where=lambda t: t.shape == made.shape and t.dtype is made.dtype)
            self.keep(f"with al.no_grad():\n    {call[:-1]}, out={fits})")

    def keep(self, line: str) -> None:
        """Adds the line if it runs, and its results are not huge: sums of such cancel badly."""
        known = set(self.frame)
        super().keep(line)
        for name in set(self.frame) - known:
            if isinstance(self.frame[name], al.Tensor) and self.frame[name].numel() > 500:
                self.made.remove(name)

    def add_input(self, array: np.ndarray) -> str:
        """A parameter like the array: a leaf, made of one, or on the memory of another one."""
        rng, index = self.rng, len(self.inputs) + 1
        name = f"a{index}"
        shared = self._shared_text(array) if rng.random() < 0.08 else None
        grad, laid = rng.random() < 0.55, rng.random() < 0.5
        recipes: list[tuple[str, ...]] = []
        for again in (False, True):
            if again:  # another call, for which the graph may not fit
                grad, laid = grad ^ (rng.random() < 0.15), laid ^ (rng.random() < 0.25)
            text = made_text(array, index, grad=grad, again=again, laid=laid)
            inner = (f"b{{n}} = {text}", "{n} = b{n}.clone()")
            recipes.append(inner if index % 3 == 0 and grad else (f"{{n}} = {text}",))
        if shared is not None:
            recipes = [(f"{{n}} = {shared}",)] * 2
        self.inputs.append(Input(name, *recipes))
        for line in self._lines(self.inputs[-1], {each.name: each.name for each in self.inputs}):
            run_text(line.text, self.frame)
        self.frame.pop(f"b{name}", None)
        self.known.append(name)
        return name

    def _shared_text(self, array: np.ndarray) -> str | None:
        """A view of a parameter that has the array's shape and dtype."""
        shape, count, dtype = array.shape, array.size, dtypes.from_numpy(array.dtype)
        values = [(each.name, self.frame.get(each.name)) for each in self.inputs]
        same = [n for n, t in values if isinstance(t, al.Tensor) and t.dtype is dtype]
        found = [n for n in same if self.frame[n].shape == shape]
        if found:
            way = self.rng.choice(
                ("[...]", ".detach()", ".mT.mT" if len(shape) > 1 else ".alias()")
            )
            return f"{{{self.rng.choice(found)}}}{way}"
        found = [n for n in same if self.frame[n].numel() > count and _is_dense(self.frame[n])]
        if not found:
            return None
        name = self.rng.choice(found)
        start = self.rng.randint(0, self.frame[name].numel() - count)
        return f"{{{name}}}.view(-1)[{start}:{start + count}].view({shape})"

    def _lines(self, made: Input, names: dict[str, str], *, again: bool = False) -> list[Line]:
        """The statements that make the parameter under another name."""
        recipe = made.again if again else made.first
        return [Line("make", text.format(n=names[made.name], **names)) for text in recipe]

    def making(self, names: dict[str, str], *, again: bool) -> list[Line]:
        """The statements that make all parameters."""
        return [line for each in self.inputs for line in self._lines(each, names, again=again)]


def _is_dense(tensor: Any) -> bool:
    return bool(tensor.is_contiguous())


@attrs.define
class _Operands:
    """Finds a tensor for each array of a sample."""

    writer: TableWriter
    lives: float
    other_shapes: bool
    """Whether a tensor of another shape may come, the same for all arrays of one shape."""
    shapes: dict[tuple[int, ...], tuple[int, ...]] = attrs.field(factory=dict)

    def __call__(self, array: np.ndarray) -> str:
        rng = self.writer.rng
        dtype = dtypes.from_numpy(array.dtype)
        is_index = array.dtype.kind in "iu"
        if rng.random() < (self.lives * (0.3 if is_index else 1)):
            found = self._live(array, dtype)
            if found is not None:
                return found
        if rng.random() < self.lives * 0.5 and not is_index:
            found = self._cut(array, dtype)
            if found is not None:
                return found
        if is_index and 0 < array.size < 10 and rng.random() < 0.3:
            return f"al.tensor({array.tolist()}, dtype=al.{dtype.name})"
        return self.writer.add_input(array)

    def _live(self, array: np.ndarray, dtype: Any) -> str | None:
        shape = self.shapes.get(array.shape)
        if shape is None and not self.other_shapes:
            shape = array.shape

        def fits(tensor: Any) -> bool:
            alike = tensor.dtype.is_differentiable and dtype.is_floating_point
            return (tensor.dtype is dtype or alike) and shape in (None, tuple(tensor.shape))

        found = self.writer.pick(where=fits)
        if found is not None:
            self.shapes[array.shape] = tuple(self.writer.value(found).shape)
        return found

    def _cut(self, array: np.ndarray, dtype: Any) -> str | None:
        """A part of a tensor, as a tensor of the wanted shape and dtype."""
        shape, count = array.shape, array.size

        def fits(tensor: Any) -> bool:
            return tensor.numel() >= count and tensor.dtype.is_complex <= dtype.is_complex

        found = self.writer.pick(where=fits, made=0.8)
        if found is None:
            return None
        start = self.writer.rng.randint(0, self.writer.value(found).numel() - count)
        whole = self.writer.rng.choice((".flatten()", ".reshape(-1)", ".ravel()"))
        part = f"{found}{whole}[{start}:{start + count}].view({shape})"
        same = self.writer.value(found).dtype is dtype
        return part if same else f"{part}.to({dtype_name(dtype)})"


@contextmanager
def _no_data_ops() -> Iterator[None]:
    """Ops that no capture takes raise."""

    def refuse(op: Any, *rest: Any) -> Any:
        raise UnsupportedError(f"{op.name}: no capture takes it")

    kept = _HANDLERS[DataOp]
    _HANDLERS[DataOp] = refuse
    try:
        yield
    finally:
        _HANDLERS[DataOp] = kept


def table_script(seed: int) -> Script:
    """The script of a seed: the same one as long as the table is the same."""
    rng = Random(seed)
    writer = TableWriter(rng, new_scope(eager_form), [])
    with _no_data_ops():
        writer.add_input(_start(rng))
        writer.table_step(FACES[seed % len(FACES)])
        for _ in range(rng.choice((1, 2, 3, 4, 5, 7, 10, 14))):
            if rng.random() < 0.7:
                writer.table_step(rng.choice(FACES))
            else:
                writer.step()
    names = [each.name for each in writer.inputs]
    head = f"def f({', '.join(names)}):"
    return Script((), head, tuple(writer.lines), _results_text(writer), tuple(_session(writer)))


def _results_text(writer: TableWriter) -> str:
    """What the function returns: often nearly all that it made."""
    rng, made = writer.rng, writer.made
    if not made or rng.random() < 0.3:
        return result_text(writer)
    chosen = [each for each in made if rng.random() < 0.6] or made[-1:]
    chosen += [each for each in writer.known if rng.random() < 0.15]
    return f"({', '.join(chosen)},)"


def _start(rng: Random) -> np.ndarray:
    shape = rng.choice(((2, 3), (2, 3), (3,), (3, 3), (), (2, 2, 3), (1, 4), (0, 3)))
    count = int(np.prod(shape))
    return (np.arange(count, dtype="float64").reshape(shape) * 5 % 7 - 2.75) / 2


# ------------------------------------------------------------------------------------- the session
def _session(writer: TableWriter) -> list[Line]:
    rng = writer.rng
    lines: list[Line] = []
    names = [each.name for each in writer.inputs]
    lines += writer.making({name: name for name in names}, again=False)
    lines += _round(rng, "r1", names)
    if rng.random() < 0.5:
        lines += _round(rng, "r2", names)
    others = [f"q{i}" for i in range(len(names))]
    lines += writer.making(dict(zip(names, others, strict=True)), again=True)
    lines += _round(rng, "r3", others)
    sizes = sorted({n for each in names for n in writer.value(each).shape if n})
    if sizes and rng.random() < 0.5:
        size = rng.choice(sizes)
        longer = [f"w{i}" for i in range(len(names))]
        lines += [Line("make", f"{w} = W({p}, {size})") for w, p in zip(longer, names, strict=True)]
        lines += _round(rng, "r4", longer)
    elif rng.random() < 0.4:
        call = f"with al.no_grad():\n    r5 = f({', '.join(names)})"
        lines.append(Line("call", call))
    return lines


def _round(rng: Random, result: str, names: list[str]) -> list[Line]:
    """A call, and mostly a backward."""
    lines = [Line("call", f"{result} = f({', '.join(names)})")]
    if rng.random() < 0.1:
        lines.append(Line("other", f"for y in results({result}):\n    y.detach().mul_(2)"))
    elif rng.random() < 0.2:  # of what the backward may read
        target = rng.choice([*names, f"[t for t in {result} if isinstance(t, al.Tensor)][0]"])
        lines.append(Line("other", f"with al.no_grad():\n    {target}.add_(1)"))
    each = f"results({result})"
    leaves = f"[t for t in ({', '.join(names)},) if t.requires_grad and t.is_leaf]"
    match rng.randrange(7):
        case 0 | 1 | 2:
            text = f"al.autograd.backward({each}, [G(y) for y in {each}])"
        case 3:
            text = f"for y in {each}:\n    y.backward(G(y, 2), retain_graph=True)"
        case 4:
            text = f"for y in {each}[:1]:\n    y.backward(G(y, 3, 'turned'))"
        case 5:
            given = f"[G(y) for y in {each}]"
            asked = f"al.autograd.grad({each}, ts, {given}, allow_unused=True)"
            text = f"g{result} = (lambda ts: {asked} if ts else ())({leaves})"
        case _:
            return lines
    return [*lines, Line("backward", text)]
