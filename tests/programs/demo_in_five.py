"""The demo's step as one program, trained in five ways, and compared with the eager step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import aotlite as al
from aotlite.cli.digits import EAGER, Session, step
from aotlite.data import load_digits
from aotlite.export import load, program
from aotlite.interchange import OnnxProgram, StableHloProgram, to_onnx, to_stablehlo
from tests.python_export.comparison import module_of

Arrays = dict[str, np.ndarray]
Trained = tuple[list[float], Arrays]
"""The losses, and the state after the last step by its paths: parameters, buffers, momentum."""
Batches = list[tuple[Any, Any]]
BATCH = 16


def _arrays(state: Any) -> Arrays:
    return {path: value.detach().numpy() for path, value in state.items()}


def _captured(session: Session, batches: Batches) -> Any:
    return program(step, session.model, session.optimizer, *batches[0])


def _of_function(function: Callable[..., Any], session: Session, batches: Batches) -> Trained:
    model, optimizer = session.model, session.optimizer
    losses = [function(model, optimizer, *batch).item() for batch in batches]
    return losses, _arrays(_captured(session, batches).state)


def _in_place(session: Session, batches: Batches) -> Trained:
    return _of_function(al.compile(step), session, batches)


def _by_file(session: Session, batches: Batches) -> Trained:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.aotlite"
        _captured(session, batches).save(path)
        made = load(path)
    return [made(*batch).item() for batch in batches], _arrays(made.state)


def _by_numpy(session: Session, batches: Batches) -> Trained:
    compiled = al.compile(step, backend="reference")
    module = module_of(compiled.to_python(args=(session.model, session.optimizer, *batches[0])))
    losses = [module.step(x.numpy(), y.numpy()).item() for x, y in batches]
    return losses, dict(module.STATE)


def _by_onnxruntime(session: Session, batches: Batches) -> Trained:
    captured = _captured(session, batches)
    return _by_convention(OnnxProgram(to_onnx(captured)), captured, batches)


def _by_xla(session: Session, batches: Batches) -> Trained:
    captured = _captured(session, batches)
    return _by_convention(StableHloProgram(to_stablehlo(captured)), captured, batches)


def _by_convention(made: Any, captured: Any, batches: Batches) -> Trained:
    """Trains a program that has left: its convention says what is state, and what is updated."""
    state, paths = _arrays(captured.state), made.convention["parameters"]
    arrays: dict[str, Any] = {name: state[path] for name, path in paths.items()}
    seed, offset = al.get_rng_state()
    arrays |= {"seed": np.array(seed, np.uint64), "offset": np.array(offset, np.uint64)}
    given = [name for name in made.convention["inputs"] if name not in arrays]
    losses = []
    for batch in batches:
        arrays |= {name: each.numpy() for name, each in zip(given, batch, strict=True)}
        outputs, arrays = made.step(arrays)
        losses.append(outputs["output_0"].item())
    return losses, {path: arrays[name] for name, path in paths.items()}


TRAININGS: dict[str, Callable[[Session, Batches], Trained]] = {
    "in place": _in_place,
    "file": _by_file,
    "numpy": _by_numpy,
    "onnxruntime": _by_onnxruntime,
    "xla": _by_xla,
}


def trained(steps: int, ways: Sequence[str], batch: int = BATCH) -> dict[str, tuple[float, float]]:
    """The largest relative differences from the eager step, way by way: of losses, and of the
    model's parameters and buffers.

    That of a tensor is its largest difference, over the largest magnitude in it. Momentum is not
    compared by itself: that of a bias before a batch normalization is rounding alone.
    """
    session = Session(EAGER, load_digits(), 0, batch)
    batches = [each for each, _ in zip(session.epoch(), range(steps), strict=False)]
    losses, state = _seeded(lambda *given: _of_function(step, *given), session, batches)
    found = {}
    for way in ways:
        got, after = _seeded(TRAININGS[way], session, batches)
        of_losses = max([abs(a - b) / abs(b) for a, b in zip(got, losses, strict=True)])
        paths = [path for path in state if path.startswith("model.")]
        found[way] = of_losses, max([_relative(after[path], state[path]) for path in paths])
    return found


def _seeded(
    train: Callable[[Session, Batches], Trained], session: Session, batches: Batches
) -> Any:
    al.manual_seed(1)
    return train(session.twin(EAGER), batches)


def _relative(mine: np.ndarray, its: np.ndarray) -> float:
    """The largest difference, over the largest magnitude; the difference itself, of zeros."""
    size = float(np.abs(its).max(initial=0)) or 1.0
    return float(np.abs(np.subtract(mine, its, dtype=np.float64)).max(initial=0)) / size
