"""Random programs that compute with sizes: compiled once, compared with eager at all sizes.

    python -m tests.end_to_end.size_programs --count 2000 --seed 1

Each program is a text of some lines. It is compiled with `dynamic=True`, and called with all sizes
of {0..most}^k: values, strides, aliases, writes, plain results and errors must be eager's at each.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

import aotlite as al

SYMBOLS = ("n", "m", "k")
TRIED = {"n": 5, "m": 4, "k": 3}
"""The sizes at which a line is tried before it is taken into a program."""

UNARY = ("{x} * 2.0", "{x}.exp()", "{x}.relu()", "-{x}", "{x}.detach()", "{x} + {i}", "{x}.clone()")
BINARY = ("{x} + {y}", "{x} * {y}", "al.maximum({x}, {y})", "al.where({x} > 0, {x}, {y})")
VIEWS = (
    *(
        "{x}.reshape(-1)",
        "{x}.t()",
        "{x}.transpose(0, -1)",
        "{x}[1:]",
        "{x}[:{i}]",
        "{x}[..., ::2]",
    ),
    *("{x}.flip(0)", "{x}.unsqueeze({d})", "{x}.squeeze()", "{x}[{j}]", "{x}.view({i}, -1)"),
    *("{x}.reshape({i}, {i2})", "{x}.expand({i}, *{x}.shape)", "{x}.flatten()", "{x}.chunk(2)[0]"),
    *("{x}.narrow(0, 0, {i})", "{x}.split({i})[0]", "{x}.permute(*range({x}.ndim)[::-1])"),
    *("{x}.contiguous()", "{x}.unbind(0)[0]", "{x}.view(-1)", "{x}.movedim(0, -1)"),
)
REDUCTIONS = (
    *("{x}.sum(0)", "{x}.sum()", "{x}.mean(-1)", "{x}.amax(0)", "{x}.sum(-1, keepdim=True)"),
    *("{x}.cumsum(0)", "{x}.softmax(-1)", "{x}.prod(0)", "{x}.argmax(0)", "{x}.var(0)"),
)
OTHERS = (
    *("{x} @ {y}", "al.cat([{x}, {y}], 0)", "al.stack([{x}, {x}], 0)", "{x}.repeat(2, *[1] * {r})"),
    *(
        "al.zeros({i}, {i2}) + 1.0",
        "al.arange({i}) * 1.0",
        "al.ones({i})",
        "al.full(({i}, 1), 2.0)",
    ),
    *("al.nn.functional.pad({x}, (1, {p}))", "{x}.roll(1, 0)", "{x}.tril()", "{x}.sum_to_size(1)"),
    *(
        "{x}.index_select(0, al.arange({x}.shape[0]))",
        "{x}.new_zeros({i})",
        "{x}.sort(-1)[0]",
        "{x} / {i}",
    ),
)
WRITES = (
    *(
        "{x}.mul_(2.0)",
        "{x}[0] = 1.0",
        "{x}.add_({y})",
        "{x}[1:].zero_()",
        "{x}.view(-1)[::2].add_(1)",
    ),
    *("{x}.t().copy_({y})", "{x}[..., :{i}].fill_(3.0)", "{x}.transpose_(0, -1)", "{x}.relu_()"),
)
CONDITIONS = (
    *(
        "{i} == 1",
        "{i} == {i2}",
        "{i} > 3",
        "{i} % 2 == 0",
        "{i} <= {i2}",
        "{i} != 0",
        "{i} // 2 > 1",
    ),
    *("{x}.numel() > 6", "{x}.shape[0] in (2, 4)", "{i} * {i2} == 8", "min({i}, {i2}) == 2"),
)
INTS = (
    *(
        "n",
        "m",
        "k",
        "n + 1",
        "n * m",
        "n // 2",
        "m % 3",
        "max(n, m)",
        "min(n, 3)",
        "2",
        "1",
        "n - m",
    ),
    *(
        "abs(n - m)",
        "(n + 1) // 2",
        "n ** 2",
        "len({x})",
        "{x}.shape[-1]",
        "{x}.numel()",
        "n - n // 2",
    ),
)


@attrs.frozen
class SizeProgram:
    """The lines of a function of some tensors, with the shape of each as expressions of symbols."""

    shapes: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    requires_grad: tuple[bool, ...]

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
        scope: dict[str, Any] = {"al": al}
        exec(self.text, scope)
        made: Callable[..., Any] = scope["program"]
        return made

    def arguments(self, sizes: dict[str, int]) -> list[al.Tensor]:
        """Fresh arguments of these sizes, the same ones at each call."""
        generator = np.random.default_rng(7)
        made = []
        for shape, grad in zip(self.shapes, self.requires_grad, strict=True):
            numbers = [
                sizes.get(each) or int(each) if each.isdigit() else sizes[each] for each in shape
            ]
            array = generator.integers(-4, 5, numbers).astype(np.float32) / 2
            made.append(al.tensor(array).requires_grad_(grad))
        return made


def draw(seed: int) -> SizeProgram:
    """The random program of a seed."""
    dice = random.Random(seed)
    count = dice.choice((1, 1, 2, 2, 3))
    symbols = SYMBOLS[: dice.choice((1, 2, 2, 3))]
    shapes = tuple(
        tuple(dice.choice((*symbols, *symbols, "1", "3")) for _ in range(dice.choice((1, 2, 2, 3))))
        for _ in range(count)
    )
    if not any(each in SYMBOLS for shape in shapes for each in shape):
        shapes = (("n", *shapes[0][1:]), *shapes[1:])
    grads = tuple(dice.random() < 0.4 for _ in shapes)
    lines: list[str] = []
    names = [f"a{k}" for k in range(count)]
    program = SizeProgram(shapes, (), grads)
    for step in range(dice.randint(1, 7)):
        for _ in range(8):
            line, name = _line(dice, names, f"v{step}")
            tried = SizeProgram(shapes, (*lines, *line.split("\n"), f"return {name or 0}"), grads)
            if _runs(tried) or dice.random() < 0.02:
                lines += line.split("\n")
                names += [name] if name else []
                break
    results = [*dice.sample(names, min(len(names), dice.randint(1, 3)))]
    if dice.random() < 0.3:
        results.append(_int(dice, names))
    program = SizeProgram(shapes, (*lines, f"return [{', '.join(results)}]"), grads)
    return program


def _int(dice: random.Random, names: Sequence[str]) -> str:
    return dice.choice(INTS).format(x=dice.choice(names))


def _line(dice: random.Random, names: Sequence[str], new: str) -> tuple[str, str]:
    x, y = dice.choice(names), dice.choice(names)
    values = {
        "x": x,
        "y": y,
        "i": _int(dice, names),
        "i2": _int(dice, names),
        "j": dice.choice(("0", "-1", "1")),
        "d": dice.choice(("0", "-1")),
        "p": dice.choice(("0", "2", "n % 2")),
        "r": f"({x}.ndim - 1)",
    }
    family = dice.choice((UNARY, BINARY, VIEWS, VIEWS, VIEWS, REDUCTIONS, OTHERS, WRITES))
    text = dice.choice(family).format(**values)
    if family is WRITES:
        line, name = text, ""
    else:
        line, name = f"{new} = {text}", new
    if dice.random() < 0.15:
        condition = dice.choice(CONDITIONS).format(**values)
        other = f"{new} = {x}" if name else "pass"
        line = f"if {condition}:\n    {line}\nelse:\n    {other}"
    return line, name


def _runs(program: SizeProgram) -> bool:
    try:
        program.function()(*program.arguments(TRIED))
    except Exception:
        return False
    return True


# ------------------------------------------------------------------------------------- comparison
def observed(function: Callable[..., Any], arguments: Sequence[al.Tensor]) -> Any:
    """What a call does: results, strides, aliases, writes, gradients; or its error."""
    try:
        results = function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]
    tensors = [*arguments, *[each for each in results if isinstance(each, al.Tensor)]]
    seen = [_seen(each) for each in tensors]
    plain = [(type(r).__name__, r) for r in results if not isinstance(r, al.Tensor)]
    shared = [a.storage is b.storage for a, b in itertools.combinations(tensors, 2)]
    same = [a is b for a, b in itertools.combinations(tensors, 2)]
    bases = [next((k for k, t in enumerate(tensors) if t is x._base), -1) for x in tensors]
    return seen, plain, shared, same, bases, _gradients(tensors, arguments)


def _seen(tensor: al.Tensor) -> Any:
    geometry = tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor._version
    return (*geometry, str(tensor.dtype), tensor.requires_grad, _numbers(tensor))


def _numbers(tensor: al.Tensor) -> Any:
    return np.array(tensor.detach().tolist(), dtype=np.float64)


def _gradients(tensors: Sequence[al.Tensor], arguments: Sequence[al.Tensor]) -> Any:
    leaves = [each for each in arguments if each.requires_grad and each.is_leaf]
    roots = [each for each in tensors if each.requires_grad and not each.is_leaf]
    if not leaves or not roots:
        return None
    try:
        found = al.autograd.grad([(each * each).sum() for each in roots], leaves, allow_unused=True)
    except al.AotliteError as error:
        return type(error).__name__, str(error).splitlines()[0]
    return [None if each is None else (tuple(each.shape), _numbers(each)) for each in found]


def is_same(a: Any, b: Any) -> bool:
    """Whether two observations are equal, numbers up to rounding."""
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b) and type(a) is type(b)


def all_sizes(program: SizeProgram, most: int) -> Iterator[dict[str, int]]:
    """The sizes at which it was drawn, then all others up to `most`."""
    symbols = program.symbols
    yield {name: TRIED[name] for name in symbols}
    for values in itertools.product(range(most + 1), repeat=len(symbols)):
        yield dict(zip(symbols, values, strict=True))


def check(program: SizeProgram, most: int, **options: Any) -> tuple[Counter[str], str]:
    """Compares a program at all sizes; what was seen, and the first difference, empty if none."""
    seen: Counter[str] = Counter()
    compiled = al.compile(program.function(), dynamic=True, recompile_limit=1000, **options)
    eager = program.function()
    for sizes in all_sizes(program, most):
        expected = observed(eager, program.arguments(sizes))
        found = observed(compiled, program.arguments(sizes))
        seen["points"] += 1
        if isinstance(found[0], str) and found[0] == "UnsupportedError" and found != expected:
            seen["refused"] += 1
        elif not is_same(expected, found):
            return seen, f"at {sizes}:\n  eager    {expected}\n  compiled {found}"
    for entry in compiled.entries:
        late = getattr(getattr(entry.guarded, "sizes", None), "table", None)
        if late is not None and late.late:
            return seen, f"asked after the guards were made: {late.late}"
    regions = compiled.regions()
    seen["programs"] += 1
    seen["entries"] += len(regions)
    seen["guards"] += sum(len(region.guards) for region in regions)
    seen["served"] += sum(len(region.sizes) for region in regions)
    return seen, ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="programs (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument("--most", type=int, default=8, help="the largest size (default 8)")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--show", type=int, default=5, help="differences to print (default 5)")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    different = 0
    for seed in range(given.seed, given.seed + given.count):
        program = draw(seed)
        most = given.most if len(program.symbols) < 3 else min(given.most, 4)
        try:
            seen, difference = check(program, most, backend=given.backend)
        except Exception as error:
            seen, difference = Counter(), f"{type(error).__name__}: {error}"
        total.update(seen)
        if difference:
            different += 1
            if different <= given.show:
                print(f"seed {seed}\n{program.text}{difference}\n", flush=True)
    print(f"{given.count} programs, {different} differ; {dict(total)}")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
