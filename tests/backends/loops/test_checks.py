"""Indices out of range: eager's error, from every op that takes indices; nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.loops.backend import LOOPS, program_of
from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.lowering import lower
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import Extern, GivenUp, ValueCheck
from aotlite.backends.native.compiler.toolchain import compiler_problem

BAD = (-9, -5, 4, 9)
"""Positions outside a dimension of 4 for those that count from the end too."""


def _x() -> Any:
    return al.arange(16.0).reshape(4, 4)


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, i: x.gather(1, i.reshape(2, 2)),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: al.nn.functional.embedding(i, x),
    "index": lambda x, i: x[:, i],
    "take": lambda x, i: x.view(-1)[:4].take(i),
    "scatter_add": lambda x, i: x.scatter_add(0, i.reshape(2, 2), x),
    "scatter_add one": lambda x, i: x.scatter_add(1, i.reshape(4, 1), x),
    "scatter": lambda x, i: x.scatter(1, i.reshape(2, 2), 1.0),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i.reshape(2, 2), x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "index_copy": lambda x, i: x.index_copy(1, i, x),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_put": lambda x, i: x.index_put((i,), x[0], True),
    "put": lambda x, i: x[0].put(i, x[1]),
    "nll_loss": lambda x, i: al.nn.functional.nll_loss(x, i),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("bad", BAD)
def test_an_index_out_of_range_raises_what_eager_raises(name: str, bad: int) -> None:
    """On the loop backend the op is no `Extern`, and the message is eager's."""
    index = al.tensor([0, 1, bad, 2])
    with pytest.raises(IndexError) as eager:
        WRONG[name](_x(), index)
    with pytest.raises(IndexError) as compiled:
        al.compile(WRONG[name], backend=LOOPS)(_x(), index)
    assert str(eager.value) == str(compiled.value)
    program = program_of(al.capture(WRONG[name])(_x(), al.tensor([0, 1, 2, 3])))
    assert not [step for step in program.steps if type(step) is Extern]


@pytest.mark.parametrize("name", WRONG)
def test_passes_keep_checks(name: str) -> None:
    program = improved(program_of(al.capture(WRONG[name])(_x(), al.tensor([0, 1, 2, 3]))), 2)
    given = [np.arange(16, dtype=np.float32), np.array([0, 1, 9, 2])]
    with pytest.raises(GivenUp):
        run_program(program, given)


@pytest.mark.skipif(compiler_problem() is not None, reason="needs a C compiler")
@pytest.mark.parametrize("name", ["gather", "scatter_add", "nll_loss"])
def test_compiled_kernels_give_up(name: str) -> None:
    index = al.tensor([0, 1, 9, 2])
    with pytest.raises(IndexError) as eager:
        WRONG[name](_x(), index)
    with pytest.raises(IndexError) as compiled:
        al.compile(WRONG[name], backend=CpuBackend())(_x(), index)
    assert str(eager.value) == str(compiled.value)


def test_nothing_is_written_before_an_error() -> None:
    """K-11: a write that comes first in the program is not seen when a later op raises."""

    def step(x: Any, i: Any) -> Any:
        x.mul_(2.0)
        return x.index_select(0, i)

    x = _x()
    with pytest.raises(IndexError):
        al.compile(step, backend=LOOPS)(x, al.tensor([7]))
    np.testing.assert_array_equal(_x().numpy(), x.numpy())


def test_a_kernel_whose_index_is_out_of_range_stays_in_its_buffers() -> None:
    """Without its checks a program computes something, and neither loads nor stores beside one."""
    for make in (WRONG["gather"], WRONG["scatter_add"], WRONG["put"], WRONG["nll_loss"]):
        program = lower(al.capture(make)(_x(), al.tensor([0, 1, 2, 3])))
        steps = tuple([step for step in program.steps if type(step) is not ValueCheck])
        assert steps != program.steps
        index = np.array([-(2**62), 0, 2**62, 17])
        given = [np.arange(16, dtype=np.float32), index]
        unchecked = type(program)(
            program.name, program.buffers, steps, program.inputs, program.outputs
        )
        run_program(unchecked, given)
        with pytest.raises(GivenUp):
            run_program(program, given)


def test_an_index_is_checked_once() -> None:
    graph = al.capture(lambda x, i: x[i] + x.index_select(0, i) * x[i])(_x(), al.tensor([1]))
    program = lower(graph)
    assert 2 == sum(type(step) is ValueCheck for step in program.steps)


def test_ignored_labels_are_no_error() -> None:
    labels = al.tensor([-100, 1, -100, 3])
    expected = al.nn.functional.nll_loss(_x(), labels)
    got = al.compile(al.nn.functional.nll_loss, backend=LOOPS)(_x(), labels)
    assert expected.item() == got.item()
