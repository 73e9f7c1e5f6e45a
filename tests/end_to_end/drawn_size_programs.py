"""Random programs that compute with sizes, as texts: see `size_programs`."""

from __future__ import annotations

import linecache
import math
import random
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import aotlite as al
from tests.end_to_end.size_program_lines import PLAIN, Lines

SYMBOLS = ("n", "m", "k")
TRIED = {"n": 5, "m": 4, "k": 3}
"""The sizes at which a line is tried before it is taken into a program."""
FORMS = ("plain",) * 12 + ("transposed", "window", "window", "same", "halves")
"""How an argument lies in memory. `same` is the argument before it, and `halves` are windows of one
base, if the two have one shape. Of a program of all lines, `integers` and `mask` have no floats."""


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
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return any(word in self.text for word in ("dropout", "al.rand", "uniform_"))

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
        scope: dict[str, Any] = {"al": al, "math": math, "F": al.nn.functional}
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
            laid_out = _laid_out(form, numbers, generator)
            made.append(laid_out.requires_grad_(grad and laid_out.dtype is al.float32))
        return made


def _laid_out(form: str, sizes: list[int], generator: Any) -> al.Tensor:
    if form == "integers":
        return al.tensor(generator.integers(0, 3, sizes))
    if form == "mask":
        return al.tensor(generator.integers(0, 2, sizes) > 0)
    if form == "transposed":
        turned = al.tensor(_drawn(generator, sizes[::-1]))
        return turned.permute(*range(len(sizes))[::-1])
    if form == "window":
        return al.tensor(_drawn(generator, [*sizes[:-1], sizes[-1] + 2]))[..., 1:-1]
    return al.tensor(_drawn(generator, sizes))


def _drawn(generator: Any, sizes: Sequence[int]) -> Any:
    return generator.integers(-4, 5, sizes).astype(np.float32) / 2


def draw(seed: int, of: Lines = PLAIN) -> SizeProgram:
    """The random program of a seed, of some lines."""
    dice = random.Random(seed)
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
    forms = tuple(dice.choice(FORMS + of.kinds * 2) for _ in shapes)
    program = SizeProgram(tuple(shapes), (), grads, forms)
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
    return attrs.evolve(program, lines=(*lines, f"return {_results(dice, of, names)}"))


def _results(dice: random.Random, of: Lines, names: Sequence[str]) -> str:
    results = [*dice.sample(names, min(len(names), dice.randint(1, 3)))]
    if dice.random() < 0.6 and names[-1] not in results:
        results.append(names[-1])
    if dice.random() < 0.3:
        results.append(_int(dice, of, names))
    if of.results and dice.random() < 0.3:
        return dice.choice(of.results).format(results[0], rest=", ".join(results[1:]))
    return f"[{', '.join(results)}]"


def _int(dice: random.Random, of: Lines, names: Sequence[str]) -> str:
    return dice.choice(of.ints).format(x=dice.choice(names))


def _values(dice: random.Random, of: Lines, names: Sequence[str], new: str) -> dict[str, str]:
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
    if of.indices:
        values["z"] = dice.choice(names)
        values["q"] = dice.choice(of.indices).format(**values)
        values["b"] = dice.choice(of.masks).format(**values)
    return values


def _line(dice: random.Random, of: Lines, names: Sequence[str], new: str) -> tuple[str, str]:
    values = _values(dice, of, names, new)
    kind = dice.random()
    if kind < (0.1 if of.blocks else 0.06):
        return dice.choice(of.loops).format(**values), new
    if kind < (0.12 if of.blocks else 0.08):
        return dice.choice(of.checks).format(**values), ""
    family = dice.choice(of.families)
    drawn = dice.choice(family)
    text = drawn.format(**values)
    line, name = (text, "") if drawn in of.writes else (f"{new} = {text}", new)
    if kind > 0.82:
        condition = dice.choice(of.conditions).format(**values)
        other = f"{new} = {values['x']}" if name else "pass"
        line = f"if {condition}:\n    {line}\nelse:\n    {other}"
    if of.blocks and dice.random() < (0.3 if drawn in of.writes else 0.06):
        line = f"{dice.choice(of.blocks)}\n{textwrap.indent(line, '    ')}"
    return line, name


def _runs(program: SizeProgram) -> bool:
    try:
        program.function()(*program.arguments(TRIED))
    except Exception:
        return False
    return True
