"""A drawing of the alias groups of a program: for each memory, the elements of each tensor on it.

    memory 1: 6 of float64
      base        0  1  2  3  4  5
      x           .  .  .  0  1  2   argument 0, written by mul_
      y           0  3  1  4  2  5   argument 1
      written              ^  ^  ^
      base
      |- x = base[1]
      `- y = base.t()

A column is an element of the memory, a row a tensor. A number is the index of the tensor's element
at that place, `.` means none, `3x` three elements, `-` that the element to the left continues.
Below is the tree of bases (TEN-3); a tensor without base stands at the left. `drawing(program)`
draws the arguments before each call, and all tensors after it; `picture(bars)` draws any tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from math import gcd, prod
from typing import Any

import attrs

from aotlite.testing.engines import Engine, engine
from aotlite.testing.engines.interpreter import body_of, setup_of
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Step
from aotlite.testing.programs.vocabulary import kind_of_op
from aotlite.testing.scripts.block import body_block, parameters, setup_block
from aotlite.testing.scripts.language import AotliteLanguage

WIDE = 40
"""The most columns; the middle of a longer memory is left out."""
LONG = 70
"""The most characters of the expression that made a tensor."""
ROWS = 16
"""The most tensors of a memory; further ones are counted."""


@attrs.frozen
class Bar:
    """A tensor in a picture."""

    name: str
    memory: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """In elements, like the offset."""
    offset: int = 0
    dtype: str = "float64"
    made: str = ""
    """The expression that made it; its name if that is unknown."""
    base: int | None = None
    """The index of its base among the bars."""
    notes: tuple[str, ...] = ()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        bits = re.search(r"\d+", self.dtype)
        return int(bits[0]) // 8 if bits else 1


# --------------------------------------------------------------------------------- the picture
def picture(bars: Sequence[Bar], written: Sequence[Bar] = ()) -> str:
    """The memories of tensors as text; `written`: what was written of them.

    >>> whole = Bar("base", 0, (2, 2), (2, 1))
    >>> print(picture([whole, Bar("x", 0, (2,), (1,), 2, base=0, notes=("argument 0",))]))
    memory 1: 4 of float64
      base  0  1  2  3
      x     .  .  0  1   argument 0
      base
      `- x
    """
    found: dict[int, None] = dict.fromkeys(bar.memory for bar in bars)
    return "\n".join(
        "\n".join(_memory(number, list(bars), memory, written))
        for number, memory in enumerate(found, 1)
    )


def _memory(number: int, bars: list[Bar], memory: int, written: Sequence[Bar]) -> Iterator[str]:
    there = [bar for bar in bars if bar.memory == memory]
    marks = [bar for bar in written if bar.memory == memory]
    unit = gcd(*(bar.itemsize for bar in [*there, *marks]))
    count = max((_end(bar, unit) for bar in there), default=0)
    dtypes = dict.fromkeys(bar.dtype for bar in there)
    whole = next((d for d in there if d.itemsize == unit), there[0]).dtype
    seen = f", seen as {', '.join(d for d in dtypes if d != whole)}" if len(dtypes) > 1 else ""
    yield f"memory {number}: {count} of {whole}{seen}"
    shown = there[:ROWS]
    rows = [(bar.name, _cells(bar, count, unit), ", ".join(bar.notes)) for bar in shown]
    if any(map(addresses, marks)):
        rows.append(("written", _marks(marks, count, unit), ""))
    yield from _rows(rows)
    if len(there) > ROWS:
        yield f"  and {len(there) - ROWS} tensors more"
    yield from _tree(bars, there)


def _rows(rows: list[tuple[str, list[str], str]]) -> Iterator[str]:
    wide = max(len(name) for name, _, _ in rows)
    cell = max((len(text) for _, cells, _ in rows for text in cells), default=1)
    for name, cells, note in rows:
        texts = [f"{text:>{cell}}" for text in cells]
        gap = "  " if len(texts) <= WIDE // 2 else " "
        if len(texts) > WIDE:
            texts = [*texts[: WIDE // 2], "...", *texts[-(WIDE // 2 - 1) :]]
        yield f"  {name:<{wide}}  {gap.join(texts)}{'   ' + note if note else ''}".rstrip()


def _cells(bar: Bar, count: int, unit: int) -> list[str]:
    """The text of a tensor in each column."""
    width = bar.itemsize // unit
    counts: dict[int, list[int]] = {}
    for position, address in enumerate(addresses(bar)):
        counts.setdefault(address * width, []).append(position)
    found = ["."] * count
    for column, positions in counts.items():
        text = str(positions[0]) if len(positions) == 1 else f"{len(positions)}x"
        found[column : column + width] = [text, *["-"] * (width - 1)]
    return found


def _marks(marks: Sequence[Bar], count: int, unit: int) -> list[str]:
    found = [""] * count
    for bar in marks:
        width = bar.itemsize // unit
        for address in addresses(bar):
            if (address + 1) * width <= count:
                found[address * width : (address + 1) * width] = ["^"] * width
    return found


def addresses(bar: Bar) -> list[int]:
    """The offset in the memory of each element of a tensor, in row-major order."""
    found = [bar.offset]
    for size, stride in zip(bar.shape, bar.stride, strict=True):
        found = [start + i * stride for start in found for i in range(size)]
    return found


def _end(bar: Bar, unit: int) -> int:
    """The number of columns up to the tensor's last element."""
    if not prod(bar.shape):
        return 0
    last = sum((n - 1) * s for n, s in zip(bar.shape, bar.stride, strict=True))
    return (bar.offset + last + 1) * bar.itemsize // unit


def _tree(bars: list[Bar], there: list[Bar]) -> Iterator[str]:
    """The lines of the tree of bases; none if no tensor has a base."""
    places = [i for i, bar in enumerate(bars) if any(bar is each for each in there)]
    roots = [i for i in places if bars[i].base not in places]
    if len(places) == 1:
        return
    for i in roots:
        yield f"  {bars[i].made or bars[i].name}"
        below = [j for j in places if bars[j].base == i and j != i]
        for j in below:
            yield f"  {'`-' if j == below[-1] else '|-'} {bars[j].made or bars[j].name}"


# ------------------------------------------------------------------------------- of a program
@attrs.frozen
class _Named:
    """A live tensor and its name."""

    tensor: Any
    name: str
    made: str
    notes: tuple[str, ...] = ()


def drawing(program: Program, *, on: str | Engine = "aotlite") -> str:
    """The memories of a program's arguments before each call, and of all its values after it.

    The program runs eagerly. Memory of neither an argument nor a result is left out.
    """
    library = engine(on)
    return "\n\n".join(
        text for number in range(len(program.calls)) for text in _call(library, program, number)
    )


def _call(library: Engine, program: Program, number: int) -> Iterator[str]:
    call = program.calls[number]
    which = f"call {number}, " if len(program.calls) > 1 else ""
    values, args = setup_of(library, call)
    named = _noted(_setup_names(library, program, number, values), args, "argument")
    named = _known(library, named)
    yield f"{which}before:\n{picture(_bars(library, named))}"
    run = _Run(library)
    try:
        with nullcontext() if call.grad else library.no_grad():
            results = body_of(library, program, run)(*args)
        head = f"{which}after:"
    except Exception as error:
        results = []
        head = f"{which}when the call raises {type(error).__name__}:"
    named = [*named, *_body_names(library, program, run.values)]
    named = [run.noted(each) for each in _noted(named, results, "result")]
    after = _of_interest(library, named, [*args, *results])
    yield f"{head}\n{picture(_bars(library, after), run.written)}"


class _Run:
    """Observes a run of a body: its values, and the ops that write them."""

    def __init__(self, library: Engine) -> None:
        self.library = library
        self.values: list[Any] = []
        self.written: list[Bar] = []
        self.ops: dict[int, dict[str, None]] = {}
        """The ops that wrote a tensor, by its id."""

    def __call__(self, step: Step, args: list[object], result: object) -> None:
        self.values.append(result)
        if kind_of_op(step.op) not in (None, "geometry", "resize", "set"):
            self.written.append(_bar(self.library, _Named(args[0], "", "")))
            self.ops.setdefault(id(args[0]), {})[step.op] = None

    def noted(self, named: _Named) -> _Named:
        """Adds a note of the ops that wrote a tensor."""
        ops = ", ".join(self.ops.get(id(named.tensor), {}))
        return attrs.evolve(named, notes=(*named.notes, f"written by {ops}")) if ops else named


def _setup_names(
    library: Engine, program: Program, number: int, values: list[object]
) -> list[_Named]:
    block = setup_block(program, number, AotliteLanguage())
    arguments, inside = set(parameters(program)), set(body_block(program, AotliteLanguage()).values)
    names = [f"{name}'" if name in inside - arguments else name for name in block.values]
    lines = [
        name + line.removeprefix(block.values[i]) if line.startswith(block.values[i]) else line
        for i, (name, line) in enumerate(zip(names, block.lines, strict=True))
    ]
    return list(_all_named(library, names, lines, values))


def _body_names(library: Engine, program: Program, values: list[object]) -> list[_Named]:
    block = body_block(program, AotliteLanguage())
    names = block.values[program.arity :]
    return list(_all_named(library, names, block.lines, values))


def _all_named(
    library: Engine, names: list[str], lines: list[str], values: Sequence[object]
) -> Iterator[_Named]:
    for name, line, value in zip(names, lines, values, strict=False):
        if isinstance(value, library.tensor_type):
            yield _Named(value, name, name if "tensor([" in line else line[:LONG])
        elif isinstance(value, (tuple, list)):
            for i, part in enumerate(value):
                yield _Named(part, f"{name}[{i}]", f"{name}[{i}] of {line[:LONG]}")


def _noted(named: list[_Named], given: Sequence[object], word: str) -> list[_Named]:
    """Each tensor once, with a note for each of its positions in the list."""
    found: dict[int, _Named] = {}
    for each in named:
        found.setdefault(id(each.tensor), each)
    for place, value in enumerate(given):
        if id(value) in found:
            known = found[id(value)]
            found[id(value)] = attrs.evolve(known, notes=(*known.notes, f"{word} {place}"))
    return list(found.values())


def _known(library: Engine, named: list[_Named]) -> list[_Named]:
    """The tensors with a note, and their bases."""
    bases = {id(library.base_of(each.tensor)) for each in named if each.notes}
    return [each for each in named if each.notes or id(each.tensor) in bases]


def _of_interest(library: Engine, named: list[_Named], given: Sequence[object]) -> list[_Named]:
    tensors = [value for value in given if isinstance(value, library.tensor_type)]
    memories = {library.storage_of(value) for value in tensors}
    return [each for each in named if library.storage_of(each.tensor) in memories]


def _bars(library: Engine, named: list[_Named]) -> list[Bar]:
    places = {id(each.tensor): i for i, each in enumerate(named)}
    found = []
    for each in named:
        base = library.base_of(each.tensor)
        found.append(attrs.evolve(_bar(library, each), base=places.get(id(base))))
    return found


def _bar(library: Engine, named: _Named) -> Bar:
    tensor = named.tensor
    return Bar(
        named.name,
        library.storage_of(tensor),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.storage_offset(),
        str(tensor.dtype).rpartition(".")[2].rstrip("_"),
        named.made,
        notes=named.notes,
    )
