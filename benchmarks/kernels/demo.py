"""The demo's step: compiled, eager, and PyTorch's, eager and compiled; and what it computes.

`python -m benchmarks.kernels.demo JOB` prints one JSON object: seconds a step of each, by turns;
how far a compiled step is from the eager step that starts from the same state, the worst of several
states; accuracies after whole trainings, compiled and eager.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import attrs
import numpy as np

import aotlite
from aotlite.cli import digits
from aotlite.cli.digits import EAGER as EAGER_FUNCTIONS
from aotlite.cli.digits import Functions, Session
from aotlite.data import load_digits
from benchmarks.common import is_installed
from benchmarks.kernels.child import pin
from benchmarks.kernels.columns import COMPILED, EAGER, OURS, Backend
from benchmarks.kernels.functions import Wrap
from benchmarks.kernels.timing import alternate

BATCH, EPOCHS = 64, 10
STATES, STEPS_BETWEEN = 8, 5
OURS_EAGER = "aotlite eager"


@attrs.frozen
class DemoJob:
    """The numbers of repetitions."""

    backend: str
    rounds: int
    seeds: int
    """The number of complete trainings of each kind."""


def measure(job: DemoJob) -> dict[str, Any]:
    """The measurements of the module's docstring."""
    pin()
    wrap = Backend(job.backend).wrap
    compiled = Functions(wrap(digits.loss), wrap(digits.update), wrap(digits.predict))
    start = Session(EAGER_FUNCTIONS, load_digits(), 0, BATCH)
    images, labels = next(start.epoch())
    actions: dict[str, Callable[[], Any]] = {}
    for name, functions in ((OURS, compiled), (OURS_EAGER, EAGER_FUNCTIONS)):
        twin = start.twin(functions)
        actions[name] = lambda twin=twin: [twin.step(images, labels)]  # type: ignore[misc]
    if is_installed("torch"):
        for name in (EAGER, COMPILED):
            wrap_torch = import_module("torch").compile if name == COMPILED else lambda f: f
            actions[name] = torch_step(start, images.numpy(), labels.numpy(), wrap_torch)
    timed = alternate(actions, job.rounds)
    return {
        "seconds": {name: each.seconds for name, each in timed.items()},
        "restart": restart(start, compiled),
        "accuracies": [_accuracies(seed, compiled) for seed in range(job.seeds)],
    }


# --------------------------------------------------------------------------------------- results
def restart(start: Session, compiled: Functions) -> float:
    """The largest difference, as a part of the eager value's norm, of loss, parameters, buffers."""
    eager = start.twin(EAGER_FUNCTIONS)
    worst = 0.0
    batches = itertools.chain.from_iterable(eager.epoch() for _ in itertools.count())
    for state in range(STATES):
        for _ in range(STEPS_BETWEEN if state else 0):
            eager.step(*next(batches))
        images, labels = next(batches)
        twins = [eager.twin(EAGER_FUNCTIONS), eager.twin(compiled)]
        found = []
        for twin in twins:
            aotlite.manual_seed(state)
            found.append([np.float64(twin.step(images, labels)), *_state(twin)])
        pairs = zip(*found, strict=True)
        worst = max(worst, *(_relative(one, other) for one, other in pairs))
    return worst


def _state(session: Session) -> Iterator[np.ndarray]:
    for each in (*session.model.parameters(), *session.model.buffers()):
        yield each.detach().numpy().astype("float64")


def _relative(expected: Any, found: Any) -> float:
    return float(np.linalg.norm(found - expected) / (np.linalg.norm(expected) or 1.0))


def _accuracies(seed: int, compiled: Functions) -> tuple[float, float]:
    """Compiled and eager."""
    return _trained(seed, compiled), _trained(seed, EAGER_FUNCTIONS)


def _trained(seed: int, functions: Functions) -> float:
    session = Session(functions, load_digits(), seed, BATCH)
    for _ in session.train(EPOCHS):
        pass
    return session.accuracy()


# ------------------------------------------------------------------------------------------ PyTorch
def torch_step(
    start: Session, images: np.ndarray, labels: np.ndarray, wrap: Wrap, dropout: float = 0.25
) -> Callable[[], Any]:
    """The same step of the same network from the same values; its loss, in a list."""
    torch = import_module("torch")
    model = _torch_model(torch, dropout)
    for parameter, ours in zip(model.parameters(), start.model.parameters(), strict=True):
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(ours.detach().numpy().copy()))
    read_right = torch.tensor(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

    def loss(images: Any, labels: Any) -> Any:
        scores = model(images)
        read_right.add_((scores.argmax(1) == labels).sum())
        by_class = scores.t()
        by_class.sub_(by_class.detach().amax(0))
        return torch.nn.functional.cross_entropy(scores, labels)

    run_loss, run_update = wrap(loss), wrap(optimizer.step)
    given = torch.from_numpy(images.copy()), torch.from_numpy(labels.copy())

    def step() -> Any:
        value = run_loss(*given)
        optimizer.zero_grad()
        value.backward()
        run_update()
        return [value.item()]

    return step


def _torch_model(torch: Any, dropout: float) -> Any:
    """The network of `aotlite.cli.digits` in PyTorch."""
    nn = torch.nn
    blocks = [
        layer
        for inputs, outputs in ((1, 16), (16, 32))
        for layer in (
            nn.Conv2d(inputs, outputs, kernel_size=3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Dropout(dropout), nn.Linear(32 * 2 * 2, 10))


def main() -> None:
    """Prints the measurement of the job in the first argument."""
    print(json.dumps(measure(DemoJob(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
