"""Random programs that compute with sizes, as texts: see `size_programs`."""

from __future__ import annotations

import linecache
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import aotlite as al

SYMBOLS = ("n", "m", "k")
TRIED = {"n": 5, "m": 4, "k": 3}
"""The sizes at which a line is tried before it is taken into a program."""
FORMS = ("plain",) * 12 + ("transposed", "window", "window", "same", "halves")
"""How an argument lies in memory. `same` is the argument before it, and `halves` are windows of one
base, if the two have one shape."""

# {x}, {y}: tensors; {i}, {i2}: sizes; {s}, {s2}: sizes that may be slices' ends; {j}, {d}, {p}.
UNARY = """
{x} * 2.0 | {x}.exp() | {x}.relu() | -{x} | {x}.detach() | {x} + {i} | {x}.clone() | {x} / {i}
{x} * (1 / max({i}, 1)) | {x}.masked_fill({x} > 0, 1.0) | {x}.tril() | {x}.triu() | {x}.double()
"""
BINARY = """
{x} + {y} | {x} * {y} | al.maximum({x}, {y}) | al.where({x} > 0, {x}, {y}) | {x} - {y}[:1]
{x} + {y}.sum(0) | {x} * {y}.mean(-1, keepdim=True) | {x}[..., None] + {y} | {x} + {y}.unsqueeze(0)
"""
VIEWS = """
{x}.reshape(-1) | {x}.t() | {x}.transpose(0, -1) | {x}[1:] | {x}[:{i}] | {x}[..., ::2] | {x}.flip(0)
{x}.unsqueeze({d}) | {x}.squeeze() | {x}[{j}] | {x}.view({i}, -1) | {x}.reshape({i}, {i2})
{x}.expand({i}, *{x}.shape) | {x}.flatten() | {x}.chunk(2)[0] | {x}.narrow(0, 0, {i}) | {x}[-{i}:]
{x}.split({i})[0] | {x}.permute(*range({x}.ndim)[::-1]) | {x}.contiguous() | {x}.unbind(0)[0]
{x}.view(-1) | {x}.movedim(0, -1) | {x}[{i}:] | {x}[{i}:{i2}] | {x}[:-{i}] | {x}[-{i}:-1:2]
{x}.reshape(-1, {i}) | {x}.reshape({i}, -1, {i2}) | {x}.split({i})[-1] | {x}.chunk({i})[-1]
{x}.tensor_split({i})[0] | {x}[{i} - 1] | {x}[-{i}] | {x}.select(0, {i} // 2) | {x}.squeeze(0)
{x}[:, None] | {x}[..., :{i}] | {x}.unfold(0, 2, 1) | {x}.diagonal() | {x}.unflatten(0, (-1, {i}))
{x}.view_as({y}) | {x}.expand_as({y}) | {x}.as_strided(({i}, 2), (1, 1)) | {x}[::{i}]
{x}.broadcast_to((2, *{x}.shape)) | {x}.expand(*{y}.shape) | {x}.view({x}.shape[::-1]) | {x}[None]
"""
REDUCTIONS = """
{x}.sum(0) | {x}.sum() | {x}.mean(-1) | {x}.amax(0) | {x}.sum(-1, keepdim=True) | {x}.cumsum(0)
{x}.softmax(-1) | {x}.prod(0) | {x}.argmax(0) | {x}.var(0) | {x}[:0].sum(0) | {x}[..., :0].mean(-1)
{x}[..., :0].amax(-1) | {x}.min(0)[0] | {x}.logsumexp(0) | {x}[{i}:].sum(0) | {x}[{i}:].amax(0)
({x} > 0).all(0) | {x}.std(-1)
"""
OTHERS = """
{x} @ {y} | al.cat([{x}, {y}], 0) | al.stack([{x}, {x}], 0) | {x}.repeat(2, *[1] * {r})
al.eye({i})
al.zeros({i}, {i2}) + 1.0 | al.arange({i}) * 1.0 | al.ones({i}) | al.full(({i}, 1), 2.0)
al.nn.functional.pad({x}, (1, {p})) | {x}.roll(1, 0) | {x}.sum_to_size(1) | {x}.new_zeros({i})
{x}.index_select(0, al.arange({x}.shape[0])) | {x}.sort(-1)[0] | al.cat([{x}] * {i}, 0)
al.stack([{x}] * {i}, -1) | al.cat({x}.split({i}), 0) | al.stack({x}.unbind(0)[::-1])
{x}.topk(1)[0]
al.cat([{x}[{i}:], {x}[:{i}]]) | sum({x}.split({i}), 0.0) | al.cat([{x}, {x}[:0]]) | {x} @ {x}.t()
{x}.repeat({i}) | {x}.roll({i}, 0) | {x}.repeat_interleave(2)
al.einsum('i...,i...->...', {x}, {x}) | al.nn.functional.pad({x}, ({i}, 0))
al.tensor([{i}, {i2}]) + 1
"""
WRITES = """
{x}.mul_(2.0) | {x}[0] = 1.0 | {x}.add_({y}) | {x}[1:].zero_() | {x}.view(-1)[::2].add_(1)
{x}.t().copy_({y}) | {x}[..., :{i}].fill_(3.0) | {x}.transpose_(0, -1) | {x}.relu_()
{x}[{i}:] = 2.0
{x}.copy_({y}[:1]) | {x}[{i} - 1] = {y}.sum() | {x}.unsqueeze_(0) | {x}.squeeze_()
{x}[{i}:{i2}] = 0.5
{x}[1:] += {x}[:-1] | {x}.diagonal().add_(1.0)
"""
LOOPS = (
    "{new} = {x}\nfor q in range({i}):\n    {new} = {new} + q",
    "{new} = {x}\nfor q in range(0, {i}, 2):\n    {new} = {new} * 2.0",
    "{new} = {x} * 0.0\nfor row in {x}:\n    {new} = {new} + row",
    "{new} = al.stack([row.sum() for row in {x}])",
    "{new} = {x}\nwhile {new}.shape[0] > 2:\n    {new} = {new}[1:]",
    "{new} = {x}\nfor q, size in enumerate({x}.shape):\n    {new} = {new} + q * size",
)
CHECKS = (
    "assert {i} > 1, {i}",
    "if {i} > 6:\n    raise ValueError(f'{{ {i} }} of {{ {i2} }}')",
    "assert {x}.shape[0] % 3 != 1",
)
CONDITIONS = """
{i} == 1 | {i} == {i2} | {i} > 3 | {i} % 2 == 0 | {i} <= {i2} | {i} != 0 | {i} // 2 > 1 | {i}
{x}.numel() > 6 | {x}.shape[0] in (2, 4) | {i} * {i2} == 8 | min({i}, {i2}) == 2
{x}.shape == {y}.shape
len({x}) > 2 | 2 < {i} < 6 | {i} % 3 == 1 and {i2} > 2 | {i} == 1 or {i2} == 1 | {x}.is_contiguous()
not {i} > 2 | {i} - {i2} > 0 | {i} % max({i2}, 1) == 0 | {x}.ndim == 2 | {x}.stride(0) == {i}
"""
INTS = """
n | m | k | n | m | n + 1 | n * m | n // 2 | m % 3 | max(n, m) | min(n, 3) | 2 | 1 | n - m
abs(n - m)
(n + 1) // 2 | n ** 2 | len({x}) | {x}.shape[-1] | {x}.numel() | n - n // 2 | -n | m - 1 | n % 2 | 3
{x}.ndim | int(n / 2) | sum({x}.shape) | divmod(n, 3)[1] | (n > 2) + 1 | {x}.shape[0] // 2
-(-n // 2)
"""


# Programs that compute floats of sizes have these besides.
FLOAT_LINES = """
{x} * ({i} / 3) | {x} + math.sqrt(abs({i})) | {x} * (1 / math.sqrt(max({i}, 1))) | {x} - float({i})
al.full(({i}, 2), {i2} / 7) | {x}[: round({i} * 0.7)] | {x}.clamp(max={i} * 0.5)
"""
FLOAT_CONDITIONS = "{i} / 3 > 1 | {i} * 0.5 == {i2} | {i} > 2.5 | math.sqrt(abs({i})) < 2"
FLOAT_INTS = """
math.ceil(n / 2) | int(m * 0.7) | round(n / 3) | math.isqrt(n) | int(n ** 0.5) | n.bit_length()
"""


def _choices(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for line in text.strip().splitlines() for each in line.split("|"))


_FAMILIES = tuple(
    map(_choices, (UNARY, BINARY, VIEWS, VIEWS, VIEWS, REDUCTIONS, OTHERS, OTHERS, WRITES))
)
_WRITES, _CONDITIONS, _INTS = _choices(WRITES), _choices(CONDITIONS), _choices(INTS)


@attrs.frozen
class Lines:
    """What lines of programs are drawn from."""

    families: tuple[tuple[str, ...], ...] = _FAMILIES
    conditions: tuple[str, ...] = _CONDITIONS
    ints: tuple[str, ...] = _INTS


_OF_INTS = Lines()
_OF_FLOATS = Lines(
    (*_FAMILIES, *(_choices(FLOAT_LINES),) * 4),
    _CONDITIONS + _choices(FLOAT_CONDITIONS) * 3,
    _INTS + _choices(FLOAT_INTS) * 2,
)


@attrs.frozen
class SizeProgram:
    """The lines of a function of some tensors, with the shape of each as expressions of symbols."""

    shapes: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    requires_grad: tuple[bool, ...]
    forms: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the shapes."""
        used = {each for shape in self.shapes for each in shape}
        return tuple(each for each in SYMBOLS if each in used)

    @property
    def text(self) -> str:
        names = [f"a{k}" for k in range(len(self.shapes))]
        sizes = []
        for symbol in SYMBOLS:
            place = next(
                ((k, d) for k, s in enumerate(self.shapes) for d, e in enumerate(s) if e == symbol),
                None,
            )
            sizes.append(
                f"{symbol} = " + ("2" if place is None else f"a{place[0]}.shape[{place[1]}]")
            )
        body = [*sizes, *self.lines]
        return "\n    ".join([f"def program({', '.join(names)}):", *body]) + "\n"

    def function(self) -> Callable[..., Any]:
        """The function of the text."""
        scope: dict[str, Any] = {"al": al, "math": math}
        text = self.text
        file = f"<{hash(text):x}>"  # so that a guard shows its line
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        exec(compile(text, file, "exec"), scope)
        made: Callable[..., Any] = scope["program"]
        return made

    def arguments(self, sizes: dict[str, int]) -> list[al.Tensor]:
        """Fresh arguments of these sizes, the same ones at each call."""
        generator = np.random.default_rng(7)
        made: list[al.Tensor] = []
        for index, (shape, grad) in enumerate(zip(self.shapes, self.requires_grad, strict=True)):
            numbers = [int(each) if each.isdigit() else sizes[each] for each in shape]
            form = self.forms[index] if self.forms else "plain"
            if form in ("same", "halves") and not (index and shape == self.shapes[index - 1]):
                form = "plain"
            if form == "same":
                made.append(made[-1])
                continue
            if form == "halves" and not self.requires_grad[index - 1]:
                base = al.tensor(_drawn(generator, [numbers[0] + 1, *numbers[1:]]))
                made[-1] = base[:-1]
                made.append(base[1:])
                continue
            made.append(_laid_out(form, numbers, generator).requires_grad_(grad))
        return made


def _laid_out(form: str, sizes: list[int], generator: Any) -> al.Tensor:
    if form == "transposed":
        turned = al.tensor(_drawn(generator, sizes[::-1]))
        return turned.permute(*range(len(sizes))[::-1])
    if form == "window":
        return al.tensor(_drawn(generator, [*sizes[:-1], sizes[-1] + 2]))[..., 1:-1]
    return al.tensor(_drawn(generator, sizes))


def _drawn(generator: Any, sizes: Sequence[int]) -> Any:
    return generator.integers(-4, 5, sizes).astype(np.float32) / 2


def draw(seed: int, *, floats: bool = False) -> SizeProgram:
    """The random program of a seed, which may compute floats of sizes."""
    dice, of = random.Random(seed), _OF_FLOATS if floats else _OF_INTS
    count = dice.choice((1, 1, 2, 2, 3))
    symbols = SYMBOLS[: dice.choice((1, 2, 2, 3))]
    shapes = [
        tuple(dice.choice((*symbols, *symbols, "1", "3")) for _ in range(dice.choice((1, 2, 2, 3))))
        for _ in range(count)
    ]
    if not any(each in SYMBOLS for shape in shapes for each in shape):
        shapes[0] = ("n", *shapes[0][1:])
    if count > 1 and dice.random() < 0.3:
        shapes[1] = shapes[0]
    grads = tuple(dice.random() < 0.4 for _ in shapes)
    program = SizeProgram(tuple(shapes), (), grads, tuple(dice.choice(FORMS) for _ in shapes))
    lines: list[str] = []
    names = [f"a{k}" for k in range(count)]
    for step in range(dice.randint(1, 7)):
        for _ in range(8):
            line, name = _line(dice, of, names, f"v{step}")
            new = (*lines, *line.split("\n"))
            tried = attrs.evolve(program, lines=(*new, f"return {name or 0}"))
            if _runs(tried) or dice.random() < 0.02:
                lines = [*new]
                names += [name] if name else []
                break
    results = [*dice.sample(names, min(len(names), dice.randint(1, 3)))]
    if dice.random() < 0.6 and names[-1] not in results:
        results.append(names[-1])
    if dice.random() < 0.3:
        results.append(_int(dice, of, names))
    return attrs.evolve(program, lines=(*lines, f"return [{', '.join(results)}]"))


def _int(dice: random.Random, of: Lines, names: Sequence[str]) -> str:
    return dice.choice(of.ints).format(x=dice.choice(names))


def _line(dice: random.Random, of: Lines, names: Sequence[str], new: str) -> tuple[str, str]:
    values = {
        "x": dice.choice(names),
        "y": dice.choice(names),
        "i": _int(dice, of, names),
        "i2": _int(dice, of, names),
        "j": dice.choice(("0", "-1", "1")),
        "d": dice.choice(("0", "-1")),
        "p": dice.choice(("0", "2", "n % 2")),
        "new": new,
    }
    values["r"] = f"({values['x']}.ndim - 1)"
    if any(not each.isidentifier() and not each.isdigit() for each in (values["i"], values["i2"])):
        values["i"], values["i2"] = f"({values['i']})", f"({values['i2']})"
    kind = dice.random()
    if kind < 0.06:
        return dice.choice(LOOPS).format(**values), new
    if kind < 0.08:
        return dice.choice(CHECKS).format(**values), ""
    family = dice.choice(of.families)
    text = dice.choice(family).format(**values)
    line, name = (text, "") if family == _WRITES else (f"{new} = {text}", new)
    if kind > 0.82:
        condition = dice.choice(of.conditions).format(**values)
        other = f"{new} = {values['x']}" if name else "pass"
        line = f"if {condition}:\n    {line}\nelse:\n    {other}"
    return line, name


def _runs(program: SizeProgram) -> bool:
    try:
        program.function()(*program.arguments(TRIED))
    except Exception:
        return False
    return True
