"""Measures compiled autograd on the backward of a transformer, by tape node.

`python -m benchmarks.tape` builds a transformer of small tensors (24 blocks, about 1,170 tape
nodes), so that Python is all that counts, and prints in microseconds a tape node:

    engine      the backward as the engine runs it, kernels included
    capture     recording the tape as a graph, without stages, compilers and kernels
    look        finding the structure of a new tape
    match       matching a tape with a recent structure, repeatedly
    replay      all of a known backward but its kernels, repeatedly, with the tape retained
    step        the same in a training step: the tape is new, and freed

A figure is the median over rounds of one backward each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, disable, enable
from aotlite.compiled_autograd.segment import Segment
from aotlite.compiled_autograd.structure import look_at
from aotlite.eager.autograd.differentiable_views import edge_of
from benchmarks.common import machine, table, wide_console

WIDTH, HEADS, LENGTH = 8, 2, 4
ASKED = {"capture": 30.0, "replay": 0.2, "step": 0.2}
"""The limits in microseconds for each node; a backward may take `CALL` more."""
CALL = 5.0


class Transformer:
    """Blocks of attention and two layers, written in ops."""

    def __init__(self, blocks: int) -> None:
        al.manual_seed(0)
        shapes = {
            "qkv": (WIDTH, 3 * WIDTH),
            "out": (WIDTH, WIDTH),
            "up": (WIDTH, 4 * WIDTH),
            "up_bias": (4 * WIDTH,),
            "down": (4 * WIDTH, WIDTH),
            "down_bias": (WIDTH,),
            "scale": (WIDTH,),
            "scale_2": (WIDTH,),
        }
        self.blocks = [
            {name: (al.randn(*shape) * 0.2).requires_grad_() for name, shape in shapes.items()}
            for _ in range(blocks)
        ]
        self.x = al.randn(LENGTH, WIDTH)

    def loss(self) -> Any:
        x: Any = self.x
        for block in self.blocks:
            parts = (_normed(x, block["scale"]) @ block["qkv"]).view(LENGTH, 3, HEADS, -1)
            query, key, value = parts.permute(1, 2, 0, 3).unbind(0)
            scores = (query @ key.transpose(-1, -2) * 0.5).softmax(-1) @ value
            x = x + scores.permute(1, 0, 2).reshape(LENGTH, WIDTH) @ block["out"]
            inner = (_normed(x, block["scale_2"]) @ block["up"] + block["up_bias"]).relu()
            x = x + (inner @ block["down"] + block["down_bias"])
        return (x * x).sum()

    def clear(self) -> None:
        for block in self.blocks:
            for leaf in block.values():
                leaf.grad = None


def _normed(x: Any, scale: Any) -> Any:
    centered = x - x.mean(-1, keepdim=True)
    return centered * ((centered * centered).mean(-1, keepdim=True) + 1e-5).rsqrt() * scale


class Watch:
    """A wrapper of a function that adds up its time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.spent = 0.0

    def __call__(self, *args: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.function(*args)
        finally:
            self.spent += time.perf_counter() - start


def measure(blocks: int, rounds: int, backend: str) -> dict[str, float]:
    """Microseconds a node of each row, and how many nodes there are."""
    model = Transformer(blocks)
    tapes = CompiledAutograd.of(backend)
    found: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds * 1e6)

    look = look_at(_roots(model.loss()), None, accumulate=True)
    count = len(look.nodes)
    for _ in range(rounds):
        note("engine", _backward(model, None))
        note("capture", _captured(model, backend))
    for _ in range(3):
        _backward(model, tapes)
    matcher = tapes._recent[0]
    whole: Any = matcher.whole
    kernels = whole.kernels
    compute = kernels.called
    for _ in range(rounds):
        roots = _roots(model.loss())
        again = partial(matcher.match, roots, None, True, True)
        note("look", _timed(partial(_looked, roots)))
        watch = Watch(compute)
        _compute_by(whole, watch)
        total = _backward(model, tapes)
        note("step", total - watch.spent)
        _compute_by(whole, _Given(_results_of(whole, compute, again)))
        replays = []
        for _ in range(20):
            model.clear()
            replays.append(_timed(again))
        note("replay", min(replays))
        _compute_by(whole, _stop)
        note("match", min([_timed(partial(_stopped, again)) for _ in range(20)]))
        whole.kernels = kernels
    medians = {name: statistics.median(of) / count for name, of in found.items()}
    return {"nodes": count, **medians}


class _Given:
    """Replaces kernels by results made before."""

    def __init__(self, results: list[Any]) -> None:
        self.results = results

    def __call__(self, values: Any) -> list[Any]:
        return list(self.results)


def _looked(roots: Any) -> None:
    hash(look_at(roots, None, accumulate=True).key)


def _compute_by(whole: Any, function: Callable[..., Any]) -> None:
    """Makes a known tape call `compute` in place of its kernels."""
    whole.kernels = SimpleNamespace(called=function)


def _results_of(whole: Any, compute: Callable[..., Any], run: Callable[[], Any]) -> Any:
    """The results of the kernels in a run."""
    kept: list[Any] = []

    def keep(values: Any) -> Any:
        kept.append(compute(values))
        return list(kept[-1])

    _compute_by(whole, keep)
    run()
    return kept[-1]


class _Stop(BaseException):
    pass


def _stop(values: Any) -> Any:
    raise _Stop


def _stopped(again: Callable[[], Any]) -> None:
    with suppress(_Stop):
        again()


def _roots(loss: Any) -> Any:
    return [(edge_of(loss), al.ones(()))]


def _timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _backward(model: Transformer, tapes: CompiledAutograd | None) -> float:
    model.clear()
    loss = model.loss()
    with disable() if tapes is None else enable(tapes):
        return _timed(loss.backward)


def _captured(model: Transformer, backend: str) -> float:
    """A first backward, without stages, compilers and kernels."""
    tapes: Any = CompiledAutograd.of(backend)
    executing = Watch(Segment.execute)
    work = "pure", "lowered", "prove", "sized"
    compiling = {name: Watch(getattr(tapes, name)) for name in work}
    for name, watch in compiling.items():
        setattr(tapes, name, watch)
    Segment.execute = lambda *args: executing(*args)  # type: ignore[method-assign]
    try:
        spent = sum([each.spent for each in (executing, *compiling.values())])
        return _backward(model, tapes) - spent
    finally:
        Segment.execute = executing.function  # type: ignore[method-assign]


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.tape",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--blocks", type=int, default=24, help="blocks of the transformer (24)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds (9)")
    parser.add_argument("--backend", default="reference", help="who compiles ('reference')")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(argv)
    found = measure(options.blocks, options.rounds, options.backend)
    count = found["nodes"]
    made = table(f"\nmicroseconds a tape node, of {count:.0f}", "row", "measured", "asked", "met")
    for name in ("engine", "capture", "look", "match", "replay", "step"):
        asked = ASKED.get(name)
        if name in ("replay", "step"):
            asked = ASKED[name] + CALL / count
        met = "-" if asked is None else "yes" if found[name] <= asked else "no"
        made.add_row(name, f"{found[name]:.2f}", "-" if asked is None else f"{asked:.2f}", met)
    wide_console().print(made)
    if options.json is not None:
        written = {"machine": list(machine()), "figures": found}
        options.json.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
