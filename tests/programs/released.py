"""The programs of `files`: made once for each version of the format, and never again.

    python -m tests.programs.released

writes the files of the present version that are missing. A file that is there is never replaced: it
is what users have (PRG-8).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite import nn, optim
from aotlite.export import ExportedProgram, load, program
from aotlite.programs.archive import VERSION

FILES = Path(__file__).parent / "files"


class Net(nn.Module):
    """Two layers with dropout between."""

    def __init__(self) -> None:
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return self.second(self.drop(nn.functional.relu(self.first(x))))


def training() -> ExportedProgram:
    """A whole step: forward, backward, AdamW, dropout."""
    model = Net()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return program(step, given((4, 3)), given((4, 2)))


def views() -> ExportedProgram:
    """Writes through views, and results that are views of each other and of an argument."""
    scale = al.tensor([1.0, 2.0, 4.0])

    def function(x: Any, by: int) -> Any:
        top, bottom = x.split(2)
        bottom.mul_(scale).add_(top[:1])
        turned = x.t()
        made = turned * by
        return {"views": (turned, top[0]), "made": [made, made.t().view(-1)[1:]], "number": by + 1}

    return program(function, given((4, 3)), 3)


def symbols() -> ExportedProgram:
    """Any number of rows."""

    def function(x: Any) -> Any:
        return (x - x.mean(0)).square().sum() / x.shape[0], x.reshape(-1)[:3]

    shapes = {"x": {0: al.Dim("rows")}}
    return program(function, given((4, 3)).requires_grad_(), dynamic_shapes=shapes)


def second_order() -> ExportedProgram:
    """Gradients of gradients."""
    weight = given((3,)).requires_grad_()
    return program(lambda x: (x**3 * weight).sum(), given((3,)).requires_grad_(), order=2)


MADE: dict[str, Callable[[], ExportedProgram]] = {
    "training": training,
    "views": views,
    "symbols": symbols,
    "second_order": second_order,
}


def given(shape: Sequence[int]) -> Any:
    """An argument of this shape, with numbers that are exact."""
    values = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return al.from_numpy((values % 7 - 3) / 4)


# -------------------------------------------------------------------------------------- observing
def observed(name: str, made: ExportedProgram) -> list[Any]:
    """What some calls of a program give, as JSON has it: results, gradients, state."""
    al.manual_seed(3)
    found: list[Any] = []
    if name == "training":
        found += [made(given((4, 3)), given((4, 2))) for _ in range(3)]
    elif name == "views":
        x = given((4, 3))
        found += [made(x, 3), x, [each._version for each in (x, made(x, 3)["views"][0])]]
    elif name == "symbols":
        for rows in (4, 2, 7):
            x = given((rows, 3)).requires_grad_()
            value, first = made(x)
            value.backward()
            found += [value, first, x.grad]
    else:
        x = given((3,)).requires_grad_()
        grads: Any = al.autograd.grad(made(x), [x], create_graph=True)
        inputs = [x, *made.state.values()]
        found += [*grads, *al.autograd.grad(grads[0].sum(), inputs)]
    return [plain(each) for each in (*found, *made.state.values())]


def plain(value: Any) -> Any:
    """Tensors as nested lists."""
    if isinstance(value, al.Tensor):
        return value.detach().tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


@attrs.frozen
class Released:
    """A file of a released version, and what its program gives."""

    path: Path
    name: str
    expected: list[Any]

    @classmethod
    def all(cls) -> list[Released]:
        paths = sorted(FILES.glob("*.aotlite"))
        texts = [path.with_suffix(".json").read_text("utf-8") for path in paths]
        names = [path.name.split(".")[1] for path in paths]
        rows = zip(paths, names, texts, strict=True)
        return [cls(path, name, json.loads(text)) for path, name, text in rows]


if __name__ == "__main__":
    for kind, make in MADE.items():
        file = FILES / f"{VERSION}.{kind}.aotlite"
        if not file.exists():
            al.manual_seed(0)
            make().save(file)
            answers = observed(kind, load(file, backend="reference"))
            file.with_suffix(".json").write_text(json.dumps(answers) + "\n", encoding="utf-8")
            print(f"made {file.name}")
