"""PYX-1 to PYX-3, PYX-7, PYX-9: what a file holds, takes, checks, draws and refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aotlite as al
from aotlite.cli.digits import EAGER, Session
from aotlite.cli.digits import step as digits_step
from aotlite.data import load_digits
from tests.python_export.comparison import module_of

ALONE = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        known = sys.stdlib_module_names | {"numpy"}
        if name.partition(".")[0] not in known:
            raise ImportError(f"{name} is imported, expected NumPy and the standard library alone")

sys.meta_path.insert(0, Blocker())
import runpy
import numpy as np
file = runpy.run_path(sys.argv[1])
found, pullback = file["noisy_with_backward"](np.ones(4, np.float32))
print(found.tolist(), pullback(np.ones(4, np.float32))["x"].tolist())
"""


def noisy(x: al.Tensor) -> al.Tensor:
    return al.nn.functional.dropout(x, 0.5) * x.exp()


@pytest.mark.rules("PYX-3", "PYX-7")
def test_a_file_runs_where_numpy_is_alone(tmp_path: Path) -> None:
    path, x = tmp_path / "noisy.py", al.ones(4, requires_grad=True)
    al.manual_seed(3)
    al.compile(noisy).to_python(str(path), args=(x,))
    result = noisy(x)
    result.backward(al.ones(4))
    command = [sys.executable, "-I", "-c", ALONE, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    gradient = x.grad
    assert gradient is not None
    assert run.stdout.strip() == f"{result.tolist()} {gradient.tolist()}"


@pytest.mark.rules("PYX-1")
def test_the_text_is_the_same_in_each_run_and_is_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "noisy.py"
    texts = [al.compile(noisy).to_python(str(path), args=(al.ones(4),)) for _ in range(2)]
    assert texts[0] == texts[1] == path.read_text("utf-8")


@pytest.mark.rules("PYX-1")
def test_nothing_is_written_or_drawn_by_the_export() -> None:
    x, before = al.ones(4), al.random.default_generator.offset
    al.compile(lambda x: x.add_(al.rand(4))).to_python(args=(x,))
    assert x.tolist() == [1.0] * 4
    assert al.random.default_generator.offset == before


@pytest.mark.rules("PYX-1")
def test_a_function_with_symbolic_sizes_is_written_for_the_sizes_of_the_call() -> None:
    compiled = al.compile(lambda x: x.mean(), dynamic=True)
    compiled(al.ones(3))
    file = module_of(compiled.to_python(args=(al.ones(5),)))
    assert file._lambda_(np.full(5, 2.0, np.float32)) == 2.0


@pytest.mark.rules("PYX-3")
def test_a_file_holds_the_functions_that_it_uses_alone() -> None:
    text = al.compile(noisy).to_python(args=(al.ones(4, requires_grad=True),))
    defined = re.findall(r"^def (\w+)\(", text, re.M)
    assert len(defined) == len(set(defined))
    for name in defined:
        used = re.findall(rf"\b{name}\b", text)
        assert len(used) > 1 or name == "noisy", name
    assert not {"exec", "eval"} & set(re.findall(r"\w+", text))
    assert max(map(len, text.split("\n"))) <= 100


# ------------------------------------------------------------------------------------- arguments
@pytest.mark.rules("PYX-2")
@pytest.mark.parametrize(
    ("argument", "error", "text"),
    [
        ([1.0], TypeError, "x is a list, expected an array"),
        (np.ones((2, 3)), ValueError, r"x is float64\[2, 3\], expected float32\[2, 3\]"),
        (np.ones((3, 2), np.float32), ValueError, r"x is float32\[3, 2\], expected"),
        (np.ones((3, 2), np.float32).T, ValueError, r"x has strides \[1, 2\] in elements"),
    ],
)
def test_an_argument_is_checked_before_anything_is_written(argument, error, text) -> None:
    def write(count: al.Tensor, x: al.Tensor) -> al.Tensor:
        count.add_(1)
        return x * 2

    file = module_of(al.compile(write).to_python(args=(al.zeros(()), al.ones(2, 3))))
    count = np.zeros((), np.float32)
    with pytest.raises(error, match=text):
        file.write(count, argument)
    assert count == 0


@pytest.mark.rules("PYX-2")
def test_a_number_is_fixed_and_containers_are_the_functions() -> None:
    def scaled(batch: dict[str, list[al.Tensor]], *, factor: float) -> al.Tensor:
        return batch["x"][0] * factor

    given = {"x": [al.ones(2)]}
    file = module_of(al.compile(scaled).to_python(args=(given,), kwargs={"factor": 0.5}))
    arrays = {"x": [np.ones(2, np.float32)]}
    assert "factor = 0.5" in str(file.__doc__)
    assert file.scaled(arrays, factor=0.5).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"factor is 0.25, expected 0.5"):
        file.scaled(arrays, factor=0.25)
    with pytest.raises(ValueError, match=r'batch\["x"\]\[0\] is float32\[3\]'):
        file.scaled({"x": [np.ones(3, np.float32)]}, factor=0.5)


@pytest.mark.rules("PYX-2")
def test_arrays_that_are_written_share_memory_with_no_other() -> None:
    file = module_of(al.compile(lambda x, y: x.add_(y)).to_python(args=(al.ones(2), al.ones(2))))
    x = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="x and y share memory, expected arrays that do not"):
        file._lambda_(x[:2], x[1:])
    assert x.tolist() == [1.0] * 3


@pytest.mark.rules("PYX-2")
def test_one_array_passed_twice_is_one_array() -> None:
    x = al.ones(2)
    file = module_of(al.compile(lambda x, y: x.add_(1) * y).to_python(args=(x, x)))
    array = np.ones(2, np.float32)
    assert file._lambda_(array, array).tolist() == [4.0, 4.0]
    with pytest.raises(ValueError, match="y and x are two arrays, expected one passed twice"):
        file._lambda_(array, array.copy())


@pytest.mark.rules("PYX-2")
def test_what_the_function_reaches_outside_is_its_state() -> None:
    counter, table = al.zeros(()), al.arange(100.0)

    def look(index: al.Tensor) -> al.Tensor:
        counter.add_(1)
        return table[index]

    text = al.compile(look).to_python(args=(al.tensor([2]),))
    file, index = module_of(text), np.array([7])
    assert file.look(index).tolist() == [7.0]
    assert {name: each.sum().item() for name, each in file.STATE.items()} == {
        "counter": 1.0,
        "table": 4950.0,
    }
    own = {"counter": np.zeros((), np.float32), "table": np.zeros(100, np.float32)}
    assert file.look(index, state=own).tolist() == [0.0]
    assert (own["counter"].item(), counter.item()) == (1.0, 0.0)
    with pytest.raises(KeyError, match=r"state\['table'\] is missing"):
        file.look(index, state={"counter": own["counter"]})
    bare = module_of(al.compile(look).to_python(args=(al.tensor([2]),), state=False))
    assert bare.STATE == {}


# ------------------------------------------------------------------------------------- the demo
@pytest.mark.rules("PYX-2", "PYX-7", "PYX-8")
def test_the_demos_step_trains_like_aotlites() -> None:
    session = Session(EAGER, load_digits(), 0, 32)
    batches = [next(batch) for batch in [session.epoch()] for _ in range(4)]
    twin = session.twin(EAGER)
    text = al.compile(digits_step).to_python(args=(twin.model, twin.optimizer, *batches[0]))
    file = module_of(text)
    losses = [file.step(images.numpy(), labels.numpy()).item() for images, labels in batches]
    expected = [digits_step(twin.model, twin.optimizer, *batch).item() for batch in batches]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)  # sums in another order
    state = dict(twin.model.named_parameters()) | dict(twin.model.named_buffers())
    for name, tensor in state.items():
        mine = file.STATE[f"model.{name}"]
        np.testing.assert_allclose(mine, tensor.detach().numpy(), rtol=1e-5, atol=1e-5)
    for name, parameter in twin.model.named_parameters():
        mine, gradient = file.STATE[f"model.{name}.grad"], parameter.grad
        assert gradient is not None
        np.testing.assert_allclose(mine, gradient.numpy(), rtol=1e-5, atol=1e-5)
    assert file.STATE["generator.offset"] == al.random.default_generator.offset


# ------------------------------------------------------------------------------------- refusals
def _hooked(x: al.Tensor) -> al.Tensor:
    y = x * 2
    y.register_hook(lambda grad: grad)
    return y


@pytest.mark.rules("PYX-9")
@pytest.mark.parametrize(
    ("function", "argument", "text"),
    [
        (lambda x: x.t_(), al.ones(2, 3), "changes the shape or strides of argument 0"),
        (lambda x: x.set_(x * 2), al.ones(2), "puts argument 0 onto other memory"),
        (lambda x: al.effects.print("{}", x), al.ones(2), "the function has effects"),
        (lambda x: x + 1, al.ones(2, dtype=al.bfloat16), "has dtype bfloat16, expected dtypes of"),
    ],
)
def test_what_numpy_cannot_do_is_refused(function, argument, text) -> None:
    with pytest.raises(al.AotliteError, match=text):
        al.compile(function).to_python(args=(argument,))


@pytest.mark.rules("PYX-9")
def test_hooks_are_refused() -> None:
    with pytest.raises(al.UnsupportedError, match="each call registers hooks"):
        al.compile(_hooked).to_python(args=(al.ones(2, requires_grad=True),))


@pytest.mark.rules("PYX-9")
def test_a_backward_that_no_file_can_hold_may_be_left_out() -> None:
    base = al.ones(4, requires_grad=True) * 1

    def write(x: al.Tensor) -> al.Tensor:
        return x.as_strided((2,), (1,), 1)

    with pytest.raises(al.UnsupportedError, match=r"to_python\(backward=False\)") as raised:
        al.compile(write).to_python(args=(base[:3],))
    assert "leads to x._base" in str(raised.value)
    text = al.compile(write).to_python(args=(base[:3],), backward=False)
    array = np.arange(4, dtype=np.float32)
    assert module_of(text).write(array[:3]).tolist() == [1.0, 2.0]


@pytest.mark.rules("PYX-9")
def test_bfloat16_is_taken_where_ml_dtypes_is_allowed() -> None:
    import ml_dtypes

    x = al.tensor([1.0, 2.5], dtype=al.bfloat16)
    file = module_of(al.compile(lambda x: x * x).to_python(args=(x,), ml_dtypes=True))
    found = file._lambda_(np.array([1.0, 2.5], ml_dtypes.bfloat16))
    assert (found.dtype, found.tolist()) == (ml_dtypes.bfloat16, (x * x).tolist())


# ------------------------------------------------------------------------------------------ names
NAMES = "f forward backward_2 np _array _exp STATE sum".split()


@pytest.mark.rules("PYX-2", "PYX-3")
@pytest.mark.parametrize("name", NAMES)
def test_names_of_arguments_and_functions_may_be_those_of_the_file(name: str) -> None:
    def called(primals_1, primals_0, np, forward, zip, given_np):
        primals_0.add_(1)
        return (primals_1 - primals_0) * np * forward * zip * given_np

    called.__name__ = name
    given = [al.tensor([float(k + 2)], requires_grad=k != 1) for k in range(6)]
    file = module_of(al.compile(called).to_python(args=tuple(given)))
    entry = f"{name}_" if f"{name}_" in vars(file) else name
    values = [np.array([k + 2], np.float32) for k in range(6)]
    expected = called(*given)
    with pytest.raises(ValueError, match=r"np is float64\[1\], expected float32\[1\]"):
        vars(file)[entry](values[0], values[1], np.ones(1), *values[3:])
    assert vars(file)[entry](*values).tolist() == expected.tolist()
    assert values[1].tolist() == [4.0]


@pytest.mark.rules("PYX-2")
def test_an_argument_named_state_is_refused_beside_a_state() -> None:
    weight = al.ones(2)
    with pytest.raises(al.UnsupportedError, match="an argument is named 'state'"):
        al.compile(lambda state: state * weight).to_python(args=(al.ones(2),))
    file = module_of(al.compile(lambda state: state * 2).to_python(args=(al.ones(2),)))
    assert file._lambda_(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
