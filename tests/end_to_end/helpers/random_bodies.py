"""Random lines of a function's body, each tried on real values before it is kept.

The writer knows the tensors at hand by expressions (`a`, `net.weight`, `v3[0]`), looks at their
shapes, and proposes a line; what raises is dropped. So bodies are legal for their first call.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import attrs

import aotlite as al
from tests.end_to_end.helpers.scripts import run_text

MIXED = (6, 6, 6, 1, 1.5, 2.5, 0.7, 2)
TRAINING = (1, 0.4, 9, 0, 0, 1, 0.5, 3)
"""How often: views, writes, pure ops, geometry ops, parts, plain Python, random ops, joins."""


@attrs.define
class BodyWriter:
    """Writes lines into a frame in which the parameters have their values."""

    rng: Random
    frame: dict[str, Any]
    known: list[str]
    """Expressions of tensors."""
    flags: list[str] = attrs.field(factory=list)
    """Expressions of plain values."""
    lines: list[str] = attrs.field(factory=list)
    made: list[str] = attrs.field(factory=list)
    """Expressions of tensors that the body made."""
    groups: list[str] = attrs.field(factory=list)
    """Expressions of lists and tuples of tensors."""
    ambient: bool = True
    weights: tuple[float, ...] = MIXED
    count: int = 0

    # --- looking
    def value(self, expression: str) -> Any:
        return eval(expression, self.frame)

    def pick(self, *, made: float = 0.5, where: Callable[[Any], bool] | None = None) -> str | None:
        """The expression of some tensor."""
        pool = self.made if self.made and self.rng.random() < made else [*self.known, *self.made]
        if where is not None:
            pool = [each for each in pool if where(self.value(each))]
        return self.rng.choice(pool) if pool else None

    def floating(self) -> list[str]:
        """All tensors of a floating dtype, at least one expression."""
        found = [each for each in self.made if self.value(each).is_floating_point()]
        return found[-4:] or self.known[:1] or ["al.ones(1)"]

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    # --- writing
    def step(self) -> None:
        """One more line, or none."""
        kinds = (_view, _write, _pure, _geometry, _parts, _plain, _random, _of_two)
        kind = self.rng.choices(kinds, self.weights)[0]
        line = kind(self)
        if line is None:
            return
        if self.rng.random() < 0.12:
            mode = "no_grad" if self.rng.random() < 0.8 else "enable_grad"
            line = f"with al.{mode}():\n    {line}"
        self.keep(line)

    def keep(self, line: str) -> None:
        """Adds the line if it runs."""
        before = set(self.frame)
        try:
            with al.set_grad_enabled(self.ambient):
                run_text(line, self.frame)
        except Exception:
            for name in set(self.frame) - before:
                del self.frame[name]
            return
        self.lines.append(line)
        for name in sorted(set(self.frame) - before - {"__builtins__"}):
            self._learn(name)

    def _learn(self, name: str) -> None:
        value = self.frame[name]
        if isinstance(value, al.Tensor):
            self.made.append(name)
        elif value and isinstance(value, (list, tuple)) and isinstance(value[0], al.Tensor):
            self.groups.append(name)
            self.made += [f"{name}[{i}]" for i in (0, len(value) - 1)]


# Each proposes a line, or None.
def _view(w: BodyWriter) -> str | None:
    x = w.pick()
    if x is None:
        return None
    text = view_text(w.rng, w.value(x))
    return text and f"{w.name()} = {x}{text}"


def view_text(rng: Random, value: Any) -> str | None:
    """The text after a tensor's name that makes a view of it."""
    shape, rank, count = value.shape, value.ndim, value.numel()
    dim = rng.randrange(rank) if rank else 0
    size = shape[dim] if rank else 1
    shapes = [(-1,), (1, count), (count, 1)]
    if count and count % 2 == 0:
        shapes += [(2, count // 2), (count // 2, 2)]
    start = rng.randint(0, max(size - 1, 0))
    options = [
        f".view{rng.choice(shapes)}",
        f".unsqueeze({rng.randint(-1, rank)})",
        ".detach()",
        "[...]",
        ".alias()",
        ".squeeze()",
        f".reshape({rng.choice(shapes)})",
        f".expand({', '.join(map(str, (2, *shape)))})",
        f".as_strided(({max(count // 2, 1)},), (1,), {value.storage_offset()})",
    ]
    if rank:
        options += [
            f"[{start}]",
            f".select({dim}, {start})",
            f".narrow({dim}, {start}, {max(size - start, 1)})",
            f"[{start}:]",
            f"[{start}:{size}:2]",
            f".unbind({dim})[{start}]",
            f".split({max(size // 2, 1)}, {dim})[-1]",
            f"[None, ..., {max(start - 1, 0)}:]",
            f".squeeze({dim})",
            f".unfold({dim}, 1, 1)",
            ".flatten()",
        ]
    if rank > 1:
        other = rng.randrange(rank)
        order = rng.sample(range(rank), rank)
        options += [".t()", ".mT", f".transpose({dim}, {other})", f".permute{tuple(order)}"]
        options += [".diagonal()", ".t()", ".T"]
    return rng.choice(options)


def _number(w: BodyWriter) -> str:
    plain = [each for each in w.flags if isinstance(w.value(each), (int, float))]
    if plain and w.rng.random() < 0.4:
        return w.rng.choice(plain)
    return w.rng.choice(("2", "-1", "0.5", "3", "1", "0", "True", "-2.0"))


def _operand(w: BodyWriter, x: str, *, into: bool = False) -> str:
    """A number, or a tensor that broadcasts with x (`into`: to it)."""
    if w.rng.random() < 0.3:
        return _number(w)
    shape = w.value(x).shape

    def fits(other: Any) -> bool:
        pairs = zip(reversed(shape), reversed(other.shape), strict=False)
        ok = all(a == b or b == 1 or (a == 1 and not into) for a, b in pairs)
        return ok and not (into and other.ndim > len(shape))

    return w.pick(made=0.3, where=fits) or _number(w)


def _write(w: BodyWriter) -> str | None:
    x = w.pick()
    if x is None:
        return None
    text = write_text(w.rng, w.value(x), x, lambda: _operand(w, x, into=True))
    # Most results of writes are not looked at, as in most programs.
    return f"{w.name()} = {text}" if text.startswith(x + ".") and w.rng.random() < 0.2 else text


def write_text(rng: Random, value: Any, x: str, operand: Callable[[], str]) -> str:
    """A statement that writes the tensor `x`."""
    start = rng.randint(0, max(value.shape[0] - 1, 0)) if value.ndim else 0
    item = f"[{start}]" if value.ndim else "[...]"
    simple = ["mul_", "add_", "sub_", "mul_", "add_"]
    options = [f"{x}.{op}({operand()})" for op in simple]
    options += [f"{x}.{op}()" for op in ("neg_", "relu_", "zero_", "sin_", "abs_", "tril_")]
    options += [
        f"{x}.fill_({rng.randint(-2, 3)})",
        f"{x}.copy_({operand()})",
        f"{x}.clamp_(-2, 2)",
        f"{x}{item} = {operand()}",
        f"{x}[...] = {operand()}",
        f"{x}.masked_fill_({x} > 1, 2)",
        f"{x}[{x} > 1] = {rng.randint(-2, 3)}",
        f"{x}[[{start}, 0]] = {operand()}",
        f"{x}[..., [0], None] = {operand()}",
        f"{x}.index_fill_(0, al.tensor([{start}]), {rng.randint(-2, 3)})",
        f"{x}.index_put_((al.tensor([0, {start}]),), {x}.sum(), accumulate=True)",
        f"{x}.put_(al.tensor([0]), {x}.new_ones((1,)))",
        f"{x}{item}.mul_({operand()})",
        f"{x}.detach().add_(1)",
        f"{x}.view(-1)[:2].mul_(2)",
    ]
    if "." not in x and "[" not in x:
        options.append(f"{x} += {operand()}")
    return rng.choice(options)


_UNARY = (
    "neg", "relu", "sin", "cos", "abs", "sign", "square", "clone", "contiguous", "tanh",
    "sigmoid", "exp", "floor", "isnan", "conj", "logical_not", "reciprocal", "double", "erf",
)  # fmt: skip


_CASTS = ("float32", "int64", "float16", "bool_", "complex128", "float64")


def _pure(w: BodyWriter) -> str | None:
    x = w.pick()
    if x is None:
        return None
    rng, value = w.rng, w.value(x)
    dim = rng.randrange(value.ndim) if value.ndim else 0
    options = [f"{x}.{rng.choice(_UNARY)}()" for _ in range(7)]
    options += [f"{x} {rng.choice('+-**')} {_operand(w, x)}" for _ in range(7)]
    options += [
        f"{x} / {rng.choice((2, 0.5, 4))}",
        f"{_number(w)} - {x}",
        f"{x} ** 2",
        f"{x}.sum()",
        f"{x}.sum({dim}, {rng.random() < 0.5})",
        f"{x}.mean()",
        f"{x}.amax({dim})",
        f"{x}.prod()",
        f"{x}.cumsum({dim})",
        f"{x}.flip({dim})",
        f"{x}.clamp(-1, 2)",
        f"{x}.masked_fill({x} > 0, 1)",
        f"al.where({x} > 0, {x}, {_operand(w, x)})",
        f"al.where({x} > {_operand(w, x)}, {_number(w)}, {x})",
        f"{x}.to(al.{rng.choice(_CASTS)})",
        f"{x} {rng.choice(('>', '<=', '==', '!='))} {_operand(w, x)}",
        f"F.softmax({x}, -1)",
        f"{x}.softmax({dim})",
        f"{x}.max({dim})",
        f"{x}.argmax()",
        f"{x}.tril()",
        f"{x}[[0, -1]]",
        f"{x}[..., [0]]",
        f"{x}.take(al.tensor([0, -1]))",
        f"{x}.gather({dim}, {x}.argsort({dim}))",
        f"{x}.scatter({dim}, {x}.argsort({dim}), {x})",
        f"{x}.scatter_reduce({dim}, {x}.argsort({dim}), {x}, 'amax')",
        f"{x}.repeat_interleave(2, {dim})",
        f"{x}.repeat({', '.join('2' * max(value.ndim, 1))})",
        f"F.pad({x}, (1, 1))",
        f"{x}.diff()",
        f"{x}.pow({_number(w)})",
        f"{x}.roll(1)",
    ]
    return f"{w.name()} = {rng.choice(options)}"


def _of_two(w: BodyWriter) -> str | None:
    """Ops on several tensors, and new ones."""
    x = w.pick()
    if x is None:
        return None
    value = w.value(x)
    y = w.pick(where=lambda other: other.shape == value.shape) or x
    z = w.pick(where=lambda other: other.ndim == 2) or x
    options = [
        f"al.cat([{x}, {y}])",
        f"al.cat([{y}, {x}, {y}], -1)",
        f"al.stack([{x}, {y}], {w.rng.randint(0, value.ndim)})",
        f"{x} @ {z}",
        f"{z} @ {z}.t()",
        f"{x}.maximum({y})",
        f"{x}.copy_({y})",
        f"{x} * {y} + {x}",
        f"al.zeros_like({x}) + {y}",
        f"al.ones({', '.join(map(str, value.shape)) or '1'}) * {y}",
        f"al.tensor([1.0, 2.0]) * {x}",
        f"al.arange({value.shape[-1] if value.ndim else 1}) + {x}",
        f"{x}.new_zeros({tuple(value.shape)}).add_({y})",
        f"F.mse_loss({x}, {y})",
        f"F.linear({x}, {z})",
        f"{x}.index_select(0, al.tensor([0, 0]))",
        f"{x}.select_scatter({y}[0], 0, 0)",
        f"{x}.view_as({y})",
    ]
    return f"{w.name()} = {w.rng.choice(options)}"


def _geometry(w: BodyWriter) -> str | None:
    x = w.pick()
    return x and f"{x}{geometry_text(w.rng, w.value(x))}"


def geometry_text(rng: Random, value: Any) -> str:
    """An op that changes a tensor's geometry in place."""
    rank = value.ndim
    options = [f".unsqueeze_({rng.randint(0, rank)})", ".squeeze_()"]
    if rank > 1:
        options += [".t_()", f".transpose_(0, {rng.randrange(rank)})", ".t_()"]
    count = max(value.numel() // 2, 1)
    options.append(f".as_strided_(({count},), (1,), {value.storage_offset()})")
    return rng.choice(options)


def _parts(w: BodyWriter) -> str | None:
    x = w.pick(where=lambda value: value.ndim > 0)
    if x is None:
        return None
    dim = w.rng.randrange(w.value(x).ndim)
    op = w.rng.choice((f"unbind({dim})", f"split(1, {dim})", f"chunk(2, {dim})"))
    w.count += 1
    return f"p{w.count} = {x}.{op}"


def _plain(w: BodyWriter) -> str | None:
    """Python that looks at what it is given."""
    x, y = w.pick(), w.pick()
    if x is None or y is None:
        return None
    flag = w.rng.choice(w.flags) if w.flags else "True"
    tests = [
        f"{x} is {y}",
        f"{x}.requires_grad",
        f"{x}.is_contiguous()",
        f"{x}.shape == {y}.shape",
        f"{x}.dtype is {y}.dtype",
        f"{x}.ndim > 1",
        "al.is_grad_enabled()",
        flag,
        f"{x}.is_leaf",
        f"{x}.stride()[-1:] == (1,)",
    ]
    options = [
        f"{w.name()} = {x} * 2 if {w.rng.choice(tests)} else {x} * 3",
        f"{w.name()} = {x} * ({w.rng.choice(tests)})",
        f"{w.name()} = {x} * {x}.numel() + {y}.ndim",
        f"{x}.grad_fn",
        f"{w.name()} = {x}.grad if {x}.grad is not None else {x}",
        f"{x}.requires_grad_()",
        f"{w.name()} = {x}.detach()",
        f"{w.name()} = {x} if {w.rng.choice(tests)} else {y}",
    ]
    return w.rng.choice(options)


def _random(w: BodyWriter) -> str | None:
    x = w.pick()
    if x is None:
        return None
    size = ", ".join(map(str, w.value(x).shape)) or "()"
    options = [
        f"{w.name()} = {x} + al.rand({size})",
        f"{w.name()} = F.dropout({x}, 0.5)",
        f"{w.name()} = al.rand({size}, dtype=al.float64)",
    ]
    return w.rng.choice(options)


# ----------------------------------------------------------------------------------- the results
def result_text(w: BodyWriter) -> str:
    """The result of the function: tensors in containers, among other values."""
    rng = w.rng
    items = [w.pick(made=0.8) or "None" for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))]
    if w.groups and rng.random() < 0.5:
        items.append(rng.choice(w.groups))
    if rng.random() < 0.15:
        items.insert(rng.randint(0, len(items)), rng.choice(["None", "7", "'text'", *w.flags]))
    if rng.random() < 0.05:
        return "None"
    if len(items) == 1 and rng.random() < 0.7:
        return items[0]
    listed = ", ".join(items)
    pairs = ", ".join(f"'k{i}': {item}" for i, item in enumerate(items))
    forms = [f"[{listed}]", f"({listed},)", f"({listed},)", f"{{{pairs}}}"]
    forms.append(f"({items[0]}, [{', '.join(items[1:])}], {{'z': {items[-1]}}})")
    return rng.choice(forms)
