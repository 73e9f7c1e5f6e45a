"""The law of the artifact cache: a cached run is the fresh run, after any change of one place.

`python -m tests.artifacts.changes --changes 100000` draws programs, compiles each with the cache,
and changes one place at a time: source, globals, closures, attributes, arguments, options,
versions, environment. Each changed program runs fresh and through the cache; results, gradients,
writes, graphs and facts must be equal. It prints how many changes of what was not read missed.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import numpy as np
import optree

import aotlite as al
from aotlite.artifacts.reads import option_reads
from aotlite.ir.logs import LogEvent, listen, stop
from tests.artifacts.changing_programs import DATA, READ, Program, Slot, drawn
from tests.artifacts.drivers import empty_cache, options, report, run_as_module

FILE = os.path.join(tempfile.gettempdir(), "changing_program.py")
"""The name of the file of all programs; there is none."""
MODULE = "changing_program"


@attrs.define
class Figures:
    """What was counted."""

    programs: int = 0
    changes: int = 0
    kept: int = 0
    """Programs whose entry was kept."""
    unread: int = 0
    unread_missed: int = 0
    read: int = 0
    read_missed: int = 0
    wrong: list[str] = attrs.field(factory=list)
    bypassed: dict[str, int] = attrs.field(factory=dict)

    def text(self) -> str:
        """The figures in lines."""
        missed = self.unread_missed / max(1, self.unread)
        return (
            f"{self.programs} programs ({self.kept} kept), {self.changes} changes: "
            f"{len(self.wrong)} wrong; of {self.unread} changes of what was not read "
            f"{self.unread_missed} missed ({100 * missed:.2f} %); of {self.read} changes of what "
            f"was read {self.read_missed} missed"
        )


@attrs.frozen
class Outcome:
    """What one run can show."""

    error: str
    values: tuple[object, ...]
    graphs: tuple[str, ...]


def _loaded(program: Program) -> types.ModuleType:
    """The program as a module of its name, with functions of its own."""
    return run_as_module(program.source(), MODULE, FILE)


@contextmanager
def _environment(program: Program) -> Iterator[None]:
    """A block with the program's environment variables, and versions of packages."""
    names = [name for name in program.values if name.startswith("env:")]
    before = {name: os.environ.get(name[4:]) for name in names}
    versions = np.__version__, optree.__version__
    try:
        for name in names:
            _set(name[4:], program.values[name])
        _set_versions(
            eval(program.values["version:numpy"]) or versions[0],
            eval(program.values["version:optree"]) or versions[1],
        )
        option_reads.versions.cache_clear()
        yield
    finally:
        _set_versions(*versions)
        option_reads.versions.cache_clear()
        for name, value in before.items():
            _set(name[4:], value)


def _set_versions(of_numpy: str, of_optree: str) -> None:
    for package, version in ((np, of_numpy), (optree, of_optree)):
        vars(package)["__version__"] = version


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _arguments(program: Program, more: int = 0) -> tuple[Any, ...]:
    """The arguments of a call; of one with so many elements more."""
    values = {
        name[5:]: eval(v)
        for name, v in program.values.items()
        if name.startswith("call:") and name != "call:dtype"
    }
    dtype, size = getattr(al, program.values["call:dtype"]), values["size"] + more
    draws = np.random.default_rng(values["values"]).uniform(0.5, 1.5, (2, 2 * size))
    x = al.tensor(draws[0].tolist(), dtype=dtype)
    x = x[::2] if values["strided"] else x[:size].clone()
    y = al.tensor(draws[1, :size].tolist(), dtype=dtype)
    if values["same"]:
        y = x
    elif values["grad"]:
        x = x.detach().requires_grad_() if not values["strided"] else x
    return x, y, values["number"]


def outcome(program: Program, *, cached: bool) -> Outcome:
    """One run of a program in a module of its own: fresh, or through the cache."""
    with _environment(program):
        module = _loaded(program)
        options = {
            name[7:]: eval(value)
            for name, value in program.values.items()
            if name.startswith("option:")
        }
        compiled = al.compile(
            module.f,
            backend="reference",
            artifact_cache=cached,
            **{name: value for name, value in options.items() if value is not None},
        )
        model, (x, y, n) = module.Net(), _arguments(program)
        earlier = eval(program.values["call:earlier"])
        if earlier is not None:  # a call of another size: the sizes of the next one are symbols
            with al.set_grad_enabled(program.values["call:mode"] == "True"), suppress(Exception):
                compiled(module.Net(), *_arguments(program, earlier))
        with al.set_grad_enabled(program.values["call:mode"] == "True"):
            try:
                loss, other = compiled(model, x, y, n)
                error = ""
            except Exception as caught:  # the class and text of any error are compared
                return Outcome(f"{type(caught).__name__}: {caught}", (), ())
        if loss.requires_grad:
            try:
                loss.backward()
            except al.AotliteError as caught:  # a saved value that the program wrote
                error = f"{type(caught).__name__}: {caught}"
        found = [loss, other, x, y, x.grad, *[p.grad for p in model.parameters()]]
        entry = compiled.entries[-1]
        backward = entry.partition.backward
        graphs = f"{entry.partition.forward}", f"{backward}", f"{entry.meta}", f"{entry.convention}"
        return Outcome(error, tuple(map(_bytes, found)), graphs)


def _bytes(value: Any) -> object:
    if not isinstance(value, al.Tensor):
        return repr(value)
    array = value.detach().numpy()
    facts = str(value.dtype), value.shape, value.stride(), value.requires_grad
    return *facts, array.tobytes(), value._version


class Looked:
    """Listens to the outcomes of look-ups."""

    def __init__(self) -> None:
        self.last, self.why = "", ""

    def __call__(self, event: LogEvent) -> None:
        if event.name == "cache" and event.facts.get("of") == "artifact":
            self.last = event.facts["outcome"]
            self.why = event.facts.get("why", self.why if self.last == "kept" else "")


def run(
    changes: int, seed: int, each: int = 20, say: Any = None, figures: Figures | None = None
) -> Figures:
    """Runs so many changes, `each` of one program; returns the figures."""
    figures = Figures() if figures is None else figures
    looked, began = Looked(), time.monotonic()
    listen(looked)
    try:
        while figures.changes < changes:
            draw = random.Random(f"{seed} {figures.programs}")
            _run_program(drawn(draw), draw, min(each, changes - figures.changes), figures, looked)
            if say is not None and time.monotonic() - began > 30:
                began = time.monotonic()
                say(figures.text())
    finally:
        stop(looked)
    return figures


def _run_program(
    program: Program, draw: random.Random, count: int, figures: Figures, looked: Looked
) -> None:
    figures.programs += 1
    first = outcome(program, cached=False)
    cold, warm = outcome(program, cached=True), None
    if looked.last in ("kept", "hit"):
        figures.kept += 1
        warm = outcome(program, cached=True)
        if looked.last != "hit":
            figures.wrong.append(f"it missed unchanged: {looked.why}\n{program.source()}")
    elif looked.last == "bypass":
        figures.bypassed[looked.why] = figures.bypassed.get(looked.why, 0) + 1
    _compare("the cold run", first, cold, program, program, figures)
    if warm is not None:
        _compare("the warm run", first, warm, program, program, figures)
    is_kept = warm is not None
    for _ in range(count):
        slot = draw.choice(program.slots)
        value = draw.choice([v for v in slot.values if v != program.values[slot.name]])
        _run_change(program, program.changed(slot, value), slot, figures, looked, is_kept=is_kept)


def _run_change(
    program: Program,
    changed: Program,
    slot: Slot,
    figures: Figures,
    looked: Looked,
    *,
    is_kept: bool,
) -> None:
    figures.changes += 1
    fresh = outcome(changed, cached=False)
    cached = outcome(changed, cached=True)
    missed = looked.last != "hit"
    what = f"{slot.name}: {program.values[slot.name]!r} -> {changed.values[slot.name]!r}"
    _compare(f"the run after {what}", fresh, cached, changed, program, figures)
    if not is_kept or fresh.error:
        return
    if slot.kind == READ:
        figures.read += 1
        figures.read_missed += missed
    else:
        figures.unread += 1
        figures.unread_missed += missed
        if missed and slot.kind != DATA:
            figures.bypassed[f"missed {what}: {looked.why}"] = 1


def _compare(
    what: str, fresh: Outcome, cached: Outcome, program: Program, before: Program, figures: Figures
) -> None:
    if fresh != cached:
        parts = [
            f"{name}:\n{a}\n---\n{b}"
            for name, a, b in zip(
                ("error", "values", "graphs"),
                attrs.astuple(fresh),
                attrs.astuple(cached),
                strict=True,
            )
            if a != b
        ]
        figures.wrong.append(f"{what}\n{before.source()}\n" + "\n".join(parts))


def main() -> None:
    """The command."""
    parser = options(__doc__, "changes", 100_000)
    args = parser.parse_args()
    with empty_cache():
        figures = run(args.changes, args.seed, say=lambda text: print(text, flush=True))
    report(figures, Counter(figures.bypassed), args.show)


if __name__ == "__main__":
    main()
