"""PYX-13: the file of an exported program does what the program does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.export import load, program
from aotlite.programs import ExportedProgram
from tests.python_export.comparison import module_of


def again(made: ExportedProgram, folder: Path) -> ExportedProgram:
    """The program, saved and loaded."""
    path = folder / "made.aotlite"
    made.save(path)
    return load(path, backend="reference")


@pytest.mark.rules("PYX-13", "PYX-7")
def test_a_loaded_step_trains_as_a_file(tmp_path: Path) -> None:
    al.manual_seed(2)
    model = al.nn.Sequential(al.nn.Linear(2, 4), al.nn.Dropout(0.5), al.nn.Linear(4, 1))
    optimizer = al.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)

    def step(model: Any, optimizer: Any, batch: dict[str, Any], *rest: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(batch["x"]) - batch["y"]) ** 2).mean() * rest[0]
        loss.backward()
        optimizer.step()
        return loss.detach()

    batch = {"x": al.tensor([[1.0, 2.0], [3.0, 4.0]]), "y": al.tensor([[1.0], [2.0]])}
    made = again(program(step, model, optimizer, batch, 0.5), tmp_path)
    path = tmp_path / "step.py"
    text = made.to_python(str(path))
    assert path.read_text("utf-8") == text
    file = module_of(text)
    assert [*made.state] == [key for key in file.STATE if not key.startswith("generator")]
    arrays = {name: value.numpy() for name, value in batch.items()}
    for _ in range(3):
        its = made(batch, 0.5)
        np.testing.assert_allclose(file.step(arrays, 0.5), its.item(), rtol=1e-5)
    for path_in_state, value in made.state.items():
        np.testing.assert_allclose(file.STATE[path_in_state], value.detach().numpy(), rtol=1e-4)
    with pytest.raises(ValueError, match=r"arg_3 is 0\.25, expected 0\.5"):
        file.step(arrays, 0.25)


@pytest.mark.rules("PYX-13", "PYX-10")
def test_gradients_aliases_and_one_array_passed_twice(tmp_path: Path) -> None:
    def views(x: al.Tensor, w: al.Tensor, y: al.Tensor) -> Any:
        x.mul_(2)
        return x[1:], (w * 3).sum(), y

    x, w = al.ones(3), al.ones(2, requires_grad=True)
    file = module_of(again(program(views, x, w, x), tmp_path).to_python())
    arrays = np.ones(3, np.float32), np.ones(2, np.float32)
    (tail, _, same), pullback = file.views_with_backward(arrays[0], arrays[1], arrays[0])
    assert same is arrays[0] and arrays[0].tolist() == [2.0] * 3
    assert np.shares_memory(tail, arrays[0]) and tail.tolist() == [2.0, 2.0]
    assert pullback(d_output_1=np.float32(1))["w"].tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="y and x are two arrays, expected one passed twice"):
        file.views(arrays[0], arrays[1], arrays[0].copy())


@pytest.mark.rules("PYX-13", "PYX-12", "PRG-4")
def test_symbols_of_a_program_are_read_from_shapes(tmp_path: Path) -> None:
    rows = al.Dim("rows", min=7, max=40)
    made = program(lambda x: x.sum(1) * x.shape[0], al.ones(9, 3), dynamic_shapes={"x": {0: rows}})
    loaded = again(made, tmp_path)
    for each in (made, loaded):
        with pytest.raises(al.ArgumentError, match="size 0 of x is 2, expected 7 to 40"):
            each(al.ones(2, 3))
    file = module_of(loaded.to_python())
    assert file._lambda_(np.ones((12, 3), np.float32)).tolist() == [36.0] * 12
    with pytest.raises(ValueError, match="sizes do not meet"):
        file._lambda_(np.ones((2, 3), np.float32))


@pytest.mark.rules("PYX-13", "PYX-9")
def test_what_numpy_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(al.UnsupportedError, match="changes the shape or strides of argument 0"):
        program(lambda x: x.t_(), al.ones(2, 3)).to_python()
