"""Writes `aotlite/eager/creation/array_names.json` and `docs/ndarrays.md`: agreement with NumPy.

Each form of a name, index or operator runs on samples, by NumPy on ndarrays and by a stand-in that
refuses nothing. A cell agrees if results and written operands are equal in value, dtype, shape,
kind, identity and shared memory. `python tools/ndarray_table.py`.
"""

from __future__ import annotations

import itertools
import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from ndarray_samples import NUMBERS, Scalar, arrays, cell, pairs, pool, stood_in

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation import array_names as names
from aotlite.eager.creation.array_stand_in import BINARY, COMPARED, is_stand_in

__all__ = ["NUMBERS", "pool"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "ndarrays.md"
NOT_RUN = frozenset(("tofile", "dump", "dumps", "setflags", "resize", "base"))
"""Names that write files or other memory, or identify the maker of an array."""


# ----------------------------------------------------------------------------------------- forms
INTS = (0, 1, -1, 2, -2, 5)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    *[((i,), {}) for i in INTS],
    *[((i, j), {}) for i in (0, 1, -1, 3) for j in (0, 1, 2, -1)],
    *[(p, {}) for p in ((1, 0, 2), (2, 0, 1), (1, 3, -1), (3, 2, 1))],
    *[((each,), {}) for each in (None, True, 0.5, "C", "float64")],
    *[
        ((t,), {})
        for t in ((0, 1), (1, 0), (0,), (-1,), (3, 2), (1, 0, 2), (6, 1), (-1, 1), (1, 2))
    ],
    *[(([*t],), {}) for t in ((0, 1), (1, 0), (0,), (-1,), (3, 2))],
    *[(p, {}) for p in ((0.5, 2.0), (2.0, 0.5), (None, 1), (1, None), (0, True))],
    *[((), {"axis": axis}) for axis in (0, 1, -1, 3, None, (0, 1), (0,), (-1, 0))],
    *[((), {"keepdims": keep}) for keep in (True, False)],
    *[((), {"axis": axis, "keepdims": True}) for axis in (0, -1, None, (0, 1))],
    *[((axis,), {"keepdims": True}) for axis in (0, -1, None, (0, 1))],
    *[((), {"dim": dim}) for dim in (0, -1)],
    *[((), {"ddof": ddof}) for ddof in (0, 1)],
    *[((), {"axis": 0, "ddof": ddof}) for ddof in (0, 1)],
    *[((), {"correction": c}) for c in (0, 1)],
    *[((0,), {"correction": c}) for c in (0, 1)],
    *[((), {"decimals": d}) for d in (0, 1, -1)],
    *[((), {"offset": d}) for d in (0, 1, -1)],
    *[((), {"order": o}) for o in ("C", "F")],
    *[((), {"min": 0}), ((), {"max": 2}), ((), {"min": 0, "max": 2})],
    *[((), {"dtype": d}) for d in ("float64", np.float64, np.dtype("float64"))],
]
UNARY: dict[str, Callable[[Any], Any]] = {
    "+a": lambda a: +a,
    "-a": lambda a: -a,
    "abs(a)": abs,
    "~a": lambda a: ~a,
    "len(a)": len,
    "iter(a)": lambda a: list(iter(a)),
}


def _attribute(name: str) -> Callable[[Any], Any]:
    return lambda a: getattr(a, name)


def _calling(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda a: getattr(a, name)(*args, **kwargs)


def public(of: Any) -> list[str]:
    return [name for name in dir(of) if not name.startswith("_")]


def call_rows() -> Iterator[tuple[str, list[Callable[[Any], Any]]]]:
    """(form, its runs) of names and calls of both."""
    yield from [(form, [run]) for form, run in UNARY.items()]
    for name in public(np.ndarray):
        if not hasattr(Tensor, name) or name in NOT_RUN:
            continue
        if not callable(getattr(np.ndarray, name)):
            yield name, [_attribute(name)]
            continue
        forms: dict[str, list[Any]] = {}
        for args, kwargs in CALLS:
            form = names.call_form(name, args, kwargs)
            forms.setdefault(form, []).append(_calling(name, args, kwargs))
        yield from forms.items()


def operators() -> dict[str, Callable[[Any, Any], Any]]:
    """The operators of two operands; a first `b` is no stand-in."""
    found: dict[str, Callable[[Any, Any], Any]] = {}
    for symbol in (*BINARY, *COMPARED):
        found[f"a {symbol} b"] = eval(f"lambda a, b: a {symbol} b")
    for symbol in BINARY:
        found[f"b {symbol} a"] = eval(f"lambda a, b: b {symbol} a")
        found[f"a {symbol}= b"] = _assigning(symbol)
    found["a[i] = v"] = _set
    return found


def _assigning(symbol: str) -> Callable[[Any, Any], Any]:
    space: dict[str, Any] = {}
    exec(f"def run(a, b):\n    a {symbol}= b\n    return a", space)
    run: Callable[[Any, Any], Any] = space["run"]
    return run


def _set(a: Any, v: Any) -> Any:
    a[...] = v


# --------------------------------------------------------------------------------------- indices
BASIC, PICKS = "ISRNEB", "LMajum"
INDEXED = ("float32", "int64", "bool")
"""The dtypes of samples for indices."""


def index_forms() -> list[str]:
    """Single indices, and tuples of up to three of all kinds, up to four of the usual ones."""
    found = [f"={letter}" for letter in BASIC + PICKS]
    found += ["".join(each) for n in range(4) for each in itertools.product(BASIC, repeat=n)]
    found += ["".join(each) for each in itertools.product("ISNE", repeat=4)]
    for n in (1, 2, 3):
        for each in itertools.product("ISNE" + PICKS, repeat=n):
            if 0 < sum(letter in PICKS for letter in each) <= 2:
                found.append("".join(each))
    return list(dict.fromkeys(found))


def index_of(form: str, shape: tuple[int, ...], draw: random.Random) -> Any:
    """An index of a form, mostly valid for a shape."""
    items, dim = [], 0
    letters = form.removeprefix("=")
    takes = sum(letter not in "NEB" for letter in letters)
    for letter in letters:
        if letter == "E":
            dim += max(len(shape) - takes, 0)
        size = shape[dim] if dim < len(shape) else 2
        items.append(_item(letter, size, shape[dim:], draw))
        dim += letter not in "NEB"
    return items[0] if form.startswith("=") else tuple(items)


def _item(letter: str, size: int, rest: tuple[int, ...], draw: random.Random) -> Any:
    places = [0, size - 1, -size]
    match letter:
        case "N":
            return None
        case "E":
            return ...
        case "B":
            return draw.random() < 0.5
        case "I":
            return draw.choice([0, size - 1, -1, -size, size])
        case "S":
            return slice(
                *draw.choice([(None,), (1, None), (None, -1), (0, 9, 2), (2, 1), (-2, None)])
            )
        case "R":
            return slice(None, None, -draw.choice([1, 2]))
        case "M":
            return [draw.random() < 0.6 for _ in range(size)]
        case "L":
            return draw.choice([[0, size - 1], [-1, 0], [size]])
        case "m":
            shape = rest if draw.random() < 0.3 and rest else (size,)
            return np.resize([True, False, True, True, False], shape)
    kind = {"a": np.int64, "j": np.int32, "u": np.uint8}[letter]
    picked = np.array([draw.choice(places if letter != "u" else [0, 1]) for _ in range(2)])
    return (picked[:, None] if draw.random() < 0.2 else picked).astype(kind)


def index_cell(form: str, rank: str, *, writes: bool) -> str | None:
    """The difference of an index on samples of some dtypes."""
    draw = random.Random(form)
    shapes = {"n": ((4,), (3, 4), (2, 3, 4), (2, 2, 3, 2)), "0": ((),), "s": ((),)}[rank]
    gave = False
    for name, shape, _ in itertools.product(INDEXED, shapes, range(4)):
        whole = np.resize(pool(np.dtype(name))[:7], shape)
        index = index_of(form, shape, draw)
        given: list[Any] = [Scalar(whole[()]) if rank == "s" else whole]
        if writes:
            given.append(_written(whole, index, draw))
        run = _setting(index) if writes else _getting(index)
        found = cell(run, iter([tuple(given)]), exact=True)
        if found:
            return found
        gave = gave or found == ""
    return "" if gave else None


def _written(whole: np.ndarray, index: Any, draw: random.Random) -> Any:
    try:
        shape = np.shape(whole[index])
    except IndexError:
        shape = ()
    kept = draw.choice([shape, shape[1:], (1, *shape), ()])
    return np.resize(pool(whole.dtype), kept)


def _stood(index: Any, like: Any) -> Any:
    """The index with stand-ins for arrays, for an indexed stand-in."""
    if type(index) is tuple:
        return tuple([_stood(item, like) for item in index])
    return stood_in(index) if is_stand_in(like) else index


def _getting(index: Any) -> Callable[[Any], Any]:
    return lambda a: a[_stood(index, a)]


def _setting(index: Any) -> Callable[[Any, Any], Any]:
    def run(a: Any, v: Any) -> None:
        a[_stood(index, a)] = v

    return run


# ----------------------------------------------------------------------------------------- table
@attrs.define
class Row:
    """The letters of cells, and their reasons."""

    reasons: list[str] = attrs.field(factory=list)

    def letter(self, found: str | None) -> str:
        """The letter of a difference; a new difference gets a new letter, if one is left."""
        if found == "":
            return names.AGREES
        found = found or "NumPy raises an error, and so does a tensor"
        if found not in self.reasons:
            if len(self.reasons) == len(names.LETTERS):
                self.reasons[-1] = (
                    "NumPy's result has another dtype or other values than a tensor's"
                )
                return names.LETTERS[-1]
            self.reasons.append(found)
        return names.LETTERS[self.reasons.index(found)]


def call_table() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for form, runs in call_rows():
        row = Row()
        cells = [_call_cell(runs, kind, form) for kind in names.RECEIVERS]
        if any(each is not None for each in cells):
            letters = "".join([row.letter(each) for each in cells])
            found[form] = {"cells": letters, "reasons": row.reasons}
    there = {form.partition("(")[0] for form in found}
    for name in public(np.ndarray):
        if name not in there:
            has = "says something else of it" if hasattr(Tensor, name) else "has no such name"
            found[f"{name}(*)"] = _whole(f"NumPy has it, and a tensor {has}")
    return found


def index_table() -> dict[str, Any]:
    """Indices by rank: three letters; no row if no rank agrees."""
    found: dict[str, Any] = {}
    for form in index_forms():
        for text, writes in ((f"a[{form}]", False), (f"a[{form}] = v", True)):
            row = Row()
            cells = "".join(
                [row.letter(index_cell(form, rank, writes=writes)) for rank in names.RANKS]
            )
            if names.AGREES in cells:
                found[text] = {"cells": cells, "reasons": row.reasons}
    return found


def _whole(reason: str) -> dict[str, Any]:
    return {"cells": names.LETTERS[0] * len(names.RECEIVERS), "reasons": [reason]}


def _call_cell(runs: list[Callable[[Any], Any]], kind: str, form: str) -> str | None:
    gave = False
    exact = form.split("(")[0] not in SUMS
    for run in runs:
        given = [(_computed(each),) for each in arrays(kind)]
        found = cell(run, iter(given), exact=exact)
        if found:
            return found
        gave = gave or found == ""
    return "" if gave else None


def _computed(value: Any) -> Any:
    return Scalar(value) if isinstance(value, np.generic) else value


ROUNDED = ("a @ b", "b / a", "a ** b", "b ** a", "a **= b")
"""The operators that are compared up to rounding."""
SUMS = frozenset(("sum", "mean", "std", "var", "prod", "cumsum", "cumprod", "trace", "dot"))


def operator_cell(form: str, run: Callable[..., Any], kind: str, other: str) -> str | None:
    """The difference of an operator between two classes."""
    if form.startswith("b") and not (other in names.NUMBERS or other.endswith(":number")):
        return None  # two stand-ins: `a + b`
    samples = pairs(form, kind, other)
    outside = other.endswith(":number") or other in names.NUMBERS
    given = ((_computed(a), b if outside else _computed(b)) for a, b in samples)
    return cell(run, given, exact=form not in ROUNDED)


def operator_table() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for form, run in operators().items():
        row = Row()
        lines = [
            "".join([row.letter(operator_cell(form, run, a, b)) for b in names.OPERANDS])
            for a in names.RECEIVERS
        ]
        cells = list(dict.fromkeys(lines))
        rows = [cells.index(line) for line in lines]
        found[form] = {"cells": cells, "reasons": row.reasons, "rows": rows}
    return found


def table() -> dict[str, Any]:
    """The whole table."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = {"calls": call_table(), "indices": index_table(), "operators": operator_table()}
        return _shared(made)


def _shared(made: dict[str, Any]) -> dict[str, Any]:
    """The table with each reason written once."""
    every = sorted(
        {reason for rows in made.values() for row in rows.values() for reason in row["reasons"]}
    )
    for row in itertools.chain.from_iterable(rows.values() for rows in made.values()):
        row["reasons"] = [every.index(reason) for reason in row["reasons"]]
    return {**made, "reasons": every}


def text_of(made: dict[str, Any]) -> str:
    """The table as its file has it: a line for each form."""
    lines = []
    for part, rows in sorted(made.items()):
        if part == "reasons":
            inner = [json.dumps(reason) for reason in rows]
            lines.append(f'"{part}": [\n' + ",\n".join(inner) + "\n]")
        else:
            inner = [f"{json.dumps(k)}: {json.dumps(rows[k])}" for k in sorted(rows)]
            lines.append(f'"{part}": {{\n' + ",\n".join(inner) + "\n}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


# ------------------------------------------------------------------------------------------ page
HEAD = """# ndarrays in compiled functions: what means the same

Written by `python tools/ndarray_table.py`, from results that were compared on samples.
[specs/ndarrays.md](../specs/ndarrays.md) has the rules.
What is not listed here raises an error, with both meanings.
"""


def page(made: dict[str, Any]) -> str:
    """The page of all names, with the agreement of NumPy and tensors."""
    lines = [
        HEAD,
        "## Names and calls",
        "",
        "Of arrays with dimensions; without, and of scalars, the table is like it.",
        "",
    ]
    lines += ["| form | dtypes |", "|---|---|"]
    for form in sorted(made["calls"]):
        kinds = _agreeing(made["calls"][form]["cells"])
        if kinds:
            lines.append(f"| `{form}` | {_listed(kinds)} |")
    lines += ["", "## Names that never agree", "", "| name | why |", "|---|---|"]
    for name, why in sorted(_never(made).items()):
        lines.append(f"| `{name}` | {why} |")
    lines += ["", "## Operators", "", "`b` is an array of the same dtype, or a Python number.", ""]
    lines += ["| form | arrays of one dtype | pairs of classes that agree |", "|---|---|---|"]
    for form, row in sorted(made["operators"].items()):
        own = [k for k in names.KINDS if _cell(row, f"{k}:n", f"{k}:n") == names.AGREES]
        count = sum(row["cells"][place].count(names.AGREES) for place in row["rows"])
        text = form.replace("|", "\\|")
        lines.append(f"| `{text}` | {_of_one_dtype(form, own)} | {count} |")
    agreed = sum(row["cells"][0] == names.AGREES for row in made["indices"].values())
    lines += [
        "",
        "## Indices",
        "",
        f"{agreed} of {2 * len(index_forms())} forms of reading and writing ",
    ]
    lines[-1] += (
        "agree for arrays with dimensions: integers, slices, None, ..., bools, lists, masks and "
    )
    lines[-1] += "integer arrays, up to three together. Negative steps do not."
    return "\n".join(lines) + "\n"


def _of_one_dtype(form: str, own: list[Any]) -> str:
    if form.startswith("b"):
        return "`b` is a number"
    return _listed([str(kind) for kind in own]) or "none"


def _agreeing(cells: str) -> list[str]:
    pairs = zip(names.RECEIVERS, cells, strict=True)
    return [kind[:-2] for kind, cell in pairs if cell == names.AGREES and kind.endswith(":n")]


def _listed(kinds: list[str]) -> str:
    return "all" if len(kinds) == len(names.KINDS) else ", ".join(kinds)


def _never(made: dict[str, Any]) -> dict[str, str]:
    """Names without an agreeing form for any class, with the reason."""
    found: dict[str, str] = {}
    agreed: set[str] = set()
    for form, row in made["calls"].items():
        name = form.partition("(")[0]
        if names.AGREES in row["cells"]:
            agreed.add(name)
        found.setdefault(name, made["reasons"][row["reasons"][0]] if row["reasons"] else "")
    return {name: why.replace("|", "\\|") for name, why in found.items() if name not in agreed}


def _cell(row: dict[str, Any], first: str, second: str) -> str:
    line = row["cells"][row["rows"][names.RECEIVERS.index(first)]]
    found: str = line[names.OPERANDS.index(second)]
    return found


if __name__ == "__main__":
    made = table()
    names.TABLE.write_text(text_of(made), encoding="utf-8")
    PAGE.write_text(page(made), encoding="utf-8")
