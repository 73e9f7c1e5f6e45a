"""PRG-1 to PRG-4, PRG-7, PRG-9, PRG-10: a program does what its function does."""

from __future__ import annotations

import copy
import logging
import os
import random
import socket
import time
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.cli.digits import EAGER, Session, step
from aotlite.data import load_digits
from aotlite.export import ExportedProgram, program
from aotlite.ir.errors import ArgumentError, ExportError, ExportWarning, UnsupportedError
from aotlite.programs import capture
from aotlite.programs.files import packed, program_of
from aotlite.subclasses import TwoTensor
from tests.programs.drawn_programs import faults, saved
from tests.programs.released import plain


def through_a_file(made: ExportedProgram, backend: Any = "reference") -> ExportedProgram:
    """The program as its file gives it."""
    return ExportedProgram(*program_of(packed(made.records, made.state)), backend=backend)


@pytest.mark.rules("PRG-1", "PRG-2", "PRG-5")
@pytest.mark.parametrize("first", [0, pytest.param(4, marks=pytest.mark.long)])
def test_loaded_program_does_what_the_compiled_function_does(first: int) -> None:
    """Values, writes, aliases, versions, gradients, bit for bit. 1,000 programs are a command."""
    calls = [each for seed in range(first, first + 4) for each in saved(seed)]
    assert len(calls) > 4
    for each in calls:
        assert [] == faults(each)


@pytest.mark.rules("PRG-1", "PRG-2", "PRG-3")
def test_steps_of_the_demo_are_bit_for_bit_those_of_compile() -> None:
    session = Session(EAGER, load_digits(), 0, 16)
    batches = [batch for _, batch in zip(range(2), session.epoch(), strict=False)]
    here, there = session.twin(EAGER), session.twin(EAGER)
    compiled = al.compile(step, backend="reference")
    before = [each.tolist() for each in there.model.parameters()]
    made = through_a_file(program(step, there.model, there.optimizer, *batches[0]))
    al.manual_seed(1)
    losses = [compiled(here.model, here.optimizer, *batch).item() for batch in batches]
    al.manual_seed(1)
    assert losses == [made(*batch).item() for batch in batches]
    assert before == [each.tolist() for each in there.model.parameters()]
    names = dict([*here.model.named_parameters(), *here.model.named_buffers()])
    for name, tensor in names.items():
        mine = made.state[f"model.{name}"]
        assert tensor.detach().numpy().tobytes() == mine.detach().numpy().tobytes()
        assert tensor._version == mine._version
        assert (tensor.grad is None) is (mine.grad is None)
    momentum = [made.state[f"optimizer.momentum_buffers[{k}]"].tolist() for k in range(3)]
    assert [each.tolist() for each in here.optimizer.momentum_buffers[:3]] == momentum


@pytest.mark.rules("PRG-2")
def test_ndarrays_are_arguments_and_results() -> None:
    def function(x: Any) -> Any:
        x += 1
        return x * 2, x

    here, there = np.arange(3.0), np.arange(3.0)
    made = through_a_file(program(function, np.arange(3.0)))
    expected, found = al.compile(function)(here), made(there)
    assert isinstance(found[0], np.ndarray)
    assert found[1] is there
    assert expected[0].tolist() == found[0].tolist()
    assert here.tolist() == there.tolist()


@pytest.mark.rules("PRG-3")
def test_state_shares_memory_as_before_and_is_its_own() -> None:
    memory = al.arange(6.0)
    low, high = memory[:4], memory[2:]

    def function(x: Any) -> Any:
        low.add_(x)
        return high * 1, low.sum()

    made = through_a_file(program(function, al.ones(4)))
    assert [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] == memory.tolist()
    expected, found = al.compile(function)(al.ones(4)), made(al.ones(4))
    assert [each.tolist() for each in expected] == [each.tolist() for each in found]
    assert [3.0, 4.0, 4.0, 5.0] == made.state["high"].tolist()


@pytest.mark.rules("PRG-3")
def test_bound_tensors_are_written() -> None:
    total = al.zeros(2)
    made = through_a_file(program(lambda x: total.add_(x) * 2, al.ones(2)))
    mine = al.full((2,), 5.0)
    made.bind({"total": mine})
    assert [12.0, 12.0] == made(al.ones(2)).tolist()
    assert [6.0, 6.0] == mine.tolist()
    with pytest.raises(ArgumentError, match=r"state 'total' is f64\[2\], expected f32\[2\]"):
        made.bind({"total": al.ones(2, dtype=al.float64)})
    with pytest.raises(ArgumentError, match="there is no state 'sum', expected one of total"):
        made.bind({"sum": mine})


@pytest.mark.rules("PRG-3")
def test_accumulated_gradients_are_state() -> None:
    weight: Any = al.ones(2, requires_grad=True)

    def function(x: Any) -> Any:
        (x * weight).sum().backward()
        return x

    function(al.ones(2))
    made = through_a_file(program(function, al.ones(2)))
    compiled = al.compile(function)
    for _ in range(2):
        compiled(al.ones(2))
        made(al.ones(2))
    mine: Any = made.state["weight"]
    assert weight.grad.tolist() == mine.grad.tolist() == [3.0, 3.0]


SCALED = program(lambda batch, by: batch["x"] * by, {"x": al.ones(2, 3)}, 2)
WRITTEN = program(lambda x, y: x.add_(y), al.ones(2), al.ones(2))
ROWS = program(
    lambda x: x.reshape(2, -1).sum(), al.ones(4, 3), dynamic_shapes={"x": {0: al.Dim("n")}}
)
one = al.ones(2)
WRONG = {
    "a shape": (SCALED, ({"x": al.ones(3)}, 2), "batch['x'] is f32[3], expected f32[2, 3]"),
    "a dtype": (SCALED, ({"x": al.ones(2, 3).double()}, 2), "is f64[2, 3], expected f32[2, 3]"),
    "a leaf": (
        *(SCALED, ({"x": al.ones(2, 3, requires_grad=True)}, 2)),
        "is f32[2, 3], a leaf that requires grad, expected f32[2, 3]",
    ),
    "a number": (SCALED, ({"x": al.ones(2, 3)}, 3), "by is 3, expected 2"),
    "its type": (SCALED, ({"x": al.ones(2, 3)}, 2.0), "by is 2.0, expected 2"),
    "no tensor": (SCALED, ({"x": 1.0}, 2), "batch['x'] is a float, expected a tensor"),
    "containers": (SCALED, ([al.ones(2, 3)], 2), "are ([_], _), expected ({'x': _}, _)"),
    "too few": (SCALED, ({"x": al.ones(2, 3)},), "by is left out, expected an argument"),
    "one object": (WRITTEN, (one, one), "expected"),
    "shared memory": (WRITTEN, (one, one.view(2)), "the memory that inputs share is"),
    "symbols": (ROWS, (al.ones(4, 5),), "x is f32[4, 5], expected f32[4, 3]"),
    "a guard": (ROWS, (al.ones(5, 3),), "its sizes are s0 = 5, expected"),
}


@pytest.mark.rules("PRG-4")
@pytest.mark.parametrize("made, args, words", WRONG.values(), ids=WRONG)
def test_call_it_was_not_made_for_names_argument_got_and_expected(
    made: ExportedProgram, args: Any, words: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        through_a_file(made)(*args)
    assert words in str(caught.value)


@pytest.mark.rules("PRG-4")
def test_other_grad_mode_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="grad mode is False, expected True"), al.no_grad():
        through_a_file(SCALED)({"x": al.ones(2, 3)}, 2)


@pytest.mark.rules("PRG-7")
def test_what_is_fixed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE", "2")
    rate = 0.5

    def function(x: Any, by: int) -> Any:
        noise = random.random() + np.random.rand() + len(os.urandom(2))
        return x * by * rate * (time.time() > 0) * noise * float(os.environ["RATE"])

    with pytest.warns(ExportWarning, match="has the answers of 5 calls fixed") as caught:
        made = program(function, al.ones(2), 3)
    words = " ".join(made.baked_in)
    for each in ("rate = 0.5", "argument by = 3", "time.time() at test_programs.py:"):
        assert each in words
    for each in ("random.random()", "numpy.random", "os.urandom()", "os.environ"):
        assert each in words
    assert len(caught) == 1
    assert all(each in str(made) for each in made.baked_in)
    assert through_a_file(made).baked_in == made.baked_in
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(lambda x: x * rate, al.ones(2))


RATES, CONFIG, SCALE = [0.5, "look at it"], {"by": {"rate": 1.5}}, np.float32(0.25)
TABLE, SETTINGS = np.array([3.0, 4.0]), types.SimpleNamespace(rate=2.5, model=None)
LOOP: list[Any] = [1]
LOOP.append(LOOP)


@pytest.mark.rules("PRG-7")
def test_values_in_containers_objects_and_arrays_are_said() -> None:
    def function(x: Any) -> Any:
        rates = x * RATES[0] * CONFIG["by"]["rate"] * SCALE * SETTINGS.rate
        return rates * float(TABLE[0]) * LOOP[0]

    assert {*program(function, al.ones(2)).baked_in} == {
        "RATES = [0.5, 'look at it']",
        "CONFIG = {'by': {'rate': 1.5}}",
        f"SCALE = {SCALE!r}",
        "SETTINGS.rate = 2.5",
        "TABLE = ndarray float64[2]: [3.0, 4.0]",
        "LOOP = [1, [1, [1, [1, a list]]]]",
    }


GENERATOR, STATE = np.random.default_rng(0), np.random.RandomState(0)
HELD = types.SimpleNamespace(generator=np.random.default_rng(1))


def read_outside(opened: Any, path: str) -> dict[str, Callable[[], object]]:
    """Reads, by the words for them."""
    return {
        "os.environ": lambda: os.environ.get("HOME"),
        "os.environ ": lambda: "HOME" in os.environ,
        "os.environ  ": lambda: list(os.environ),
        "os.stat()": lambda: os.path.getmtime(path),
        "os.getcwd()": lambda: os.getcwd(),
        "socket.gethostname()": lambda: socket.gethostname(),
        "read() of a file": lambda: opened.read(),
        "numpy.fromfile()": lambda: np.fromfile(path),
        "open()": lambda: np.load(path),
        "open() ": lambda: np.loadtxt(path.replace(".npy", ".txt")),
        "open()  ": lambda: np.memmap(path, mode="r"),
        "numpy.random": lambda: np.random.rand(),
        "numpy.random.Generator GENERATOR": lambda: GENERATOR.random(),
        "numpy.random.RandomState STATE": lambda: STATE.normal(),
        "numpy.random.Generator HELD.generator": lambda: HELD.generator.random(),
    }


@pytest.mark.rules("PRG-7")
def test_each_read_is_said_with_the_users_line(tmp_path: Any) -> None:
    path = str(tmp_path / "values.npy")
    np.save(path, np.arange(3.0))
    np.savetxt(path.replace(".npy", ".txt"), np.arange(3.0))
    with open(path, "rb") as opened:
        for words, read in read_outside(opened, path).items():

            def function(x: Any, read: Callable[[], object] = read) -> Any:
                read()
                return x * 2

            with pytest.warns(ExportWarning):
                said = program(function, al.ones(2)).baked_in
            line = read.__code__.co_firstlineno
            assert f"{words.strip()} at test_programs.py:{line}" in said
            assert {each.rpartition(":")[2] for each in said if " = " not in each} == {str(line)}, (
                said
            )


@pytest.mark.rules("PRG-7")
def test_logs_and_warnings_of_a_function_are_no_reads(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        logging.getLogger("model").warning("a line")
        warnings.warn("old", UserWarning, stacklevel=1)
        traceback.format_stack()
        return x * 2

    with pytest.warns(UserWarning, match="old") as caught:
        assert program(function, al.ones(2)).baked_in == ()
    assert not [each for each in caught if each.category is ExportWarning]
    assert "a line" in caplog.text


@pytest.mark.rules("PRG-7")
def test_draws_of_numpy_have_the_lines_between_two_events() -> None:
    def function(x: Any) -> Any:
        scale = np.random.rand()
        x = x * scale
        first, second = np.random.rand(), 1.0
        second = second + np.random.rand()
        return x * first * second

    line = function.__code__.co_firstlineno
    with pytest.warns(ExportWarning):
        said = program(function, al.ones(2)).baked_in
    file = "numpy.random at test_programs.py"
    assert said == (f"{file}:{line + 1}", f"{file}:{line + 3}-{line + 4}")


class OfToday(al.nn.Module):
    """Its forward asks a clock."""

    def forward(self, x: Any) -> Any:
        return ((x * (time.time() > 0)).sum(),)


@pytest.mark.rules("PRG-7")
@pytest.mark.parametrize(
    "exported",
    [
        lambda x: al.export.aot_export_module(OfToday(), (x,)),
        lambda x: al.export.aot_export_joint_simple(OfToday().forward, (x,), trace_joint=False),
        lambda x: al.compile(OfToday()).to_python(args=(x,)),
        lambda x: al.export.program(OfToday(), x).to_python(),
    ],
)
def test_each_export_says_that_it_has_fixed_a_clock(exported: Any) -> None:
    words = r"(OfToday|forward) has the answers of 1 call fixed: time.time\(\) at test_programs"
    with pytest.warns(ExportWarning, match=words) as caught:
        found = exported(al.ones(2))
    assert [each.filename for each in caught] == [__file__]
    if isinstance(found, str):
        assert "    time.time() at test_programs.py:" in found


@pytest.mark.rules("PRG-9")
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_of_gradients_go_to_the_exported_order(order: int) -> None:
    weight = al.tensor([2.0, 3.0], requires_grad=True)

    def function(x: Any) -> Any:
        return (x**4 * weight).sum(), x.exp()

    x = al.tensor([1.0, 2.0], requires_grad=True)
    made = through_a_file(program(function, x, order=order))
    mine: Any = made(x)
    its: Any = function(x)
    first: Any
    last: Any
    for number in range(order):
        keep = number + 1 < order
        (mine,) = al.autograd.grad([each.sum() for each in mine], [x], create_graph=keep)
        (its,) = al.autograd.grad([each.sum() for each in its], [x], create_graph=keep)
        assert its.tolist() == pytest.approx(mine.tolist())
        mine, its = [mine], [its]
    if order > 1:
        (first,) = al.autograd.grad(made(x)[0], [x], create_graph=True)
        found = al.autograd.grad(first.sum(), [x, made.state["weight"]], create_graph=True)
        assert [24.0, 144.0] == plain(found[0])
    (last,) = al.autograd.grad(made(x)[0], [x], create_graph=True)
    for _ in range(order - 1):
        (last,) = al.autograd.grad(last.sum(), [x], create_graph=True)
    with pytest.raises(al.AutogradError) as caught:
        al.autograd.grad(last.sum(), [x])
    assert f"for derivatives of order {order}" in caught.value.__notes__[0]


def hooked(x: Any) -> Any:
    x.register_hook(lambda grad: grad)
    return x.sin()


HISTORY = al.ones(2, requires_grad=True) * 2
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a wrapper": (lambda: program(al.sin, TwoTensor(al.ones(2), al.ones(2))), "wrapper"),
    "a hook": (lambda: program(hooked, al.ones(2, requires_grad=True)), "registers hooks"),
    "a count": (lambda: program(lambda x: x[x > 0], al.ones(2)), "depend on values"),
    "a history": (lambda: program(lambda x: x * HISTORY, al.ones(2)), "a tensor with a history"),
    "a nested Module": (
        lambda: program(lambda m, x: m[0](x), [nn.Linear(2, 1)], al.ones(2)),
        "argument m[0] is a Linear in a container",
    ),
    "a float": (
        lambda: program(lambda x, by: x * by, al.ones(2), 0.5, dynamic_shapes={"by": True}),
        "floats that each call reads",
    ),
    "orders of draws": (
        lambda: program(
            lambda x: nn.functional.dropout(x).sum().backward(),
            al.ones(2, requires_grad=True),
            order=0,
        ),
        "order is 0, expected an integer of 1 to 5",
    ),
    "a high order": (
        lambda: program(lambda x: x.sin() * x, al.ones(2, requires_grad=True), order=6),
        "order is 6, expected an integer of 1 to 5",
    ),
}


@pytest.mark.rules("PRG-10")
@pytest.mark.parametrize("make, words", REFUSED.values(), ids=REFUSED)
def test_what_no_program_holds_is_refused_with_advice(
    make: Callable[[], object], words: str
) -> None:
    with pytest.raises((ExportError, UnsupportedError, ArgumentError)) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.rules("PRG-2", "PRG-5", "REC-4")
def test_named_results_of_ops_are_kept_by_their_names() -> None:
    made = through_a_file(program(lambda x: [x.sort(), x.max(0)], al.tensor([2.0, 1.0])))
    ordered, largest = made(al.tensor([5.0, 3.0]))
    assert [3.0, 5.0] == ordered.values.tolist()
    assert (5.0, 0) == (largest.values.item(), largest.indices.item())
    assert type(ordered) is type(al.ones(2).sort())


@pytest.mark.rules("PRG-3")
def test_copy_of_a_program_has_a_state_of_its_own() -> None:
    memory = al.zeros(3)
    part = memory[1:]
    made = program(lambda x: (memory.add_(x), part * 1)[1], al.ones(3))
    made(al.ones(3))
    mine = copy.deepcopy(made)
    for expected in (2.0, 3.0):
        assert [expected] * 2 == mine(al.ones(3)).tolist()
    assert [1.0] * 3 == made.state["memory"].tolist()
    assert [2.0] * 2 == made(al.ones(3)).tolist()


@pytest.mark.rules("PRG-9", "PRG-10")
def test_derivatives_of_all_orders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders 2 and 3 have six graphs here."""
    x = al.ones(2, requires_grad=True)
    monkeypatch.setattr(capture, "MOST_GRAPHS", 6)
    program(lambda x: x.sin() * x, x, order=3)
    monkeypatch.setattr(capture, "MOST_GRAPHS", 5)
    with pytest.raises(ExportError, match="has more than 5 derivatives"):
        program(lambda x: x.sin() * x, x, order=3)


@pytest.mark.rules("PRG-2", "PRG-4")
def test_symbols_serve_all_sizes_with_results_and_gradients_of_compile() -> None:
    def function(x: Any, n: int) -> Any:
        rows = x.reshape(-1, 2)
        return (rows * n).exp().sum(0), rows[1:], n + x.shape[0]

    shapes = {"x": {0: al.Dim("rows")}, "n": True}
    x = al.ones(3, 4, requires_grad=True)
    made = through_a_file(program(function, x, 2, dynamic_shapes=shapes))
    for count, n in ((3, 2), (5, -1), (1, 7), (2, 0)):
        mine, its = (al.rand(count, 4).requires_grad_() for _ in range(2))
        with al.no_grad():
            its.copy_(mine)
        found, expected = made(mine, n), function(its, n)
        for results in (found, expected):
            results[0].sum().backward()
        assert [plain(each) for each in expected] == [plain(each) for each in found]
        assert plain(its.grad) == plain(mine.grad)
