"""Files of programs in which one number, text or meta is another, with the right digest.

    python -m tests.programs.hostile_files --each 400

loads and calls them, and prints what became of them. Each is refused with a FormatError, or refuses
the call with an error of aotlite, or runs within its memory: the backend `reference` runs graphs
with NumPy, whose arrays know their ends.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs

import aotlite as al
from aotlite.export import program
from aotlite.ir.errors import AotliteError, FormatError
from aotlite.pipeline.record_files import Document
from aotlite.programs import ExportedProgram
from aotlite.programs.archive import Archive, unpacked
from aotlite.programs.files import packed, program_of

Args = tuple[Any, ...]


def _views(x: Any) -> Any:
    y = x * 2
    return y, y[1:], x.t(), x[:, 1:]


def _state() -> Callable[..., Any]:
    weight = al.ones(3, requires_grad=True)
    count = al.zeros(3)

    def with_state(x: Any) -> Any:
        count.add_(x.detach()[0])
        return (x @ weight).exp().sum() + count.sum()

    return with_state


def _written(x: Any) -> Any:
    return x.mul_(2).sum()


def _overlapping(x: Any, y: Any) -> Any:
    x.mul_(2)
    return y.sum()


def _overlap() -> Args:
    whole = al.ones(8)
    return whole[:6], whole[2:]


def _turned(x: Any) -> Any:
    x.t_()
    return x + al.rand(4, 3).t().sum()


def _grad(*shape: int) -> Any:
    return al.ones(*shape, requires_grad=True)


@attrs.frozen
class Hostile:
    """A program, its arguments, and how it is exported."""

    function: Callable[..., Any]
    args: Callable[[], Args]
    options: dict[str, Any] = attrs.field(factory=dict)


PROGRAMS: dict[str, Hostile] = {
    "a cube": Hostile(lambda x: (x**3).sum(), lambda: (_grad(2),), {"order": 2}),
    "state": Hostile(_state(), lambda: (_grad(4, 3),)),
    "a write": Hostile(_written, lambda: (al.ones(2),)),
    "overlap": Hostile(_overlapping, _overlap),
    "views": Hostile(_views, lambda: (al.ones(4, 3),)),
    "geometry and draws": Hostile(_turned, lambda: (al.ones(3, 4),)),
    "symbols": Hostile(
        lambda x: (x.sin() * x.shape[0]).sum(1),
        lambda: (_grad(4, 3),),
        {"dynamic_shapes": {"x": {0: al.Dim("n")}}},
    ),
}


def archive_of(each: Hostile) -> Archive:
    """The file of a program."""
    made = program(each.function, *each.args(), **each.options)
    return unpacked(packed(made.records, made.state))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all numbers, texts and shapes in JSON."""
    if isinstance(value, (dict, list)):
        if value and isinstance(value, list) and all(type(x) is int for x in value):
            yield path
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))
    elif type(value) in (int, str, bool):
        yield path


def others(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([value + 1, value - 1, value * 4 + 3, 0, 1, 50, 10**9])
        case str():
            return rng.choice(["", value + "x", "primals_1", "output_0", "float64", "s0"])
    made = list(value)
    made[rng.randrange(len(made))] = rng.choice([0, 1, 2, 7, 50, 10**9])
    return made if rng.random() < 0.8 else made[1:]


def changed(archive: Archive, rng: random.Random) -> Archive:
    """The archive with one place changed in one text; of a meta, maybe its strides too."""
    document = archive.document
    number = rng.randrange(-1, len(document.graphs))
    text = document.text if number < 0 else document.graphs[number]
    root = json.loads(text)
    metas = [("metas", k) for k in range(len(root.get("metas", ())))]
    if metas and rng.random() < 0.4:
        meta = root["metas"][rng.choice(metas)[1]]
        if meta["shape"]:
            meta["shape"] = others(meta["shape"], rng)
            if rng.random() < 0.7 and all(type(x) is int for x in meta["shape"]):
                steps = [1]
                for size in reversed(meta["shape"][1:]):
                    steps.insert(0, steps[0] * max(size, 1))
                meta["stride"] = steps[: len(meta["shape"])]
    else:
        *path, last = rng.choice(list(places(root)))
        inner = root
        for key in path:
            inner = inner[key]
        inner[last] = others(inner[last], rng)
    made = json.dumps(root)
    graphs = list(document.graphs)
    if number >= 0:
        graphs[number] = made
    return Archive(Document(made if number < 0 else document.text, tuple(graphs)), archive.arrays)


def fate(each: Hostile, archive: Archive) -> str:
    """What becomes of a file: an error of another kind is raised."""
    try:
        loaded = ExportedProgram(*program_of(archive.packed("0")), backend="reference")
    except FormatError:
        return "refused"
    try:
        _used(loaded, each.args())
    except AotliteError:
        return "refuses the call"
    return "runs"


def _used(loaded: ExportedProgram, args: Args) -> None:
    result = loaded(*args)
    results = result if isinstance(result, (tuple, list)) else [result]
    for one in results:
        if isinstance(one, al.Tensor):
            one.tolist()
            if one.requires_grad and one.meta.dtype.is_differentiable:
                [grad, *_] = al.autograd.grad(
                    one.sum(), [args[0]], create_graph=True, allow_unused=True
                )
                if grad is not None and grad.requires_grad:
                    grad.sum().backward(retain_graph=True)


def main(count: int, seed: int) -> Counter[str]:
    """Counts what becomes of changed files, and prints errors of other kinds."""
    found: Counter[str] = Counter()
    for name, each in PROGRAMS.items():
        archive, rng = archive_of(each), random.Random(seed)
        for _ in range(count):
            made = changed(archive, rng)
            try:
                found[fate(each, made)] += 1
            except Exception as error:
                found["raises something else"] += 1
                print(f"{name}: {type(error).__name__}: {error}"[:200], flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    total = main(chosen.each, chosen.seed)
    print(dict(total))
    sys.exit(bool(total["raises something else"]))
