"""PYX-2, PYX-8, PYX-10: random programs as files do to arrays what eager does to tensors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.testing import draw
from tests.python_export.comparison import module_of
from tests.python_export.random_programs import outcome

COUNT = 20


@pytest.mark.rules("PYX-2", "PYX-8", "PYX-10")
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (20, 40))])
def test_random_programs_have_eagers_effects(first: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(first, first + COUNT):
        done = outcome(draw(seed))
        assert done.found == [], f"seed {seed}"
        kinds[done.kind] += 1
        for what in ("writes", "aliases", "gradients"):
            kinds[what] += done.kind == "compared" and getattr(done, what)
    assert kinds["compared"] >= COUNT // 2
    assert min(kinds["writes"], kinds["aliases"]) >= COUNT // 4
    assert kinds["gradients"] >= COUNT // 10


def written(function, *args: al.Tensor):
    """The module of a function's file, for these arguments."""
    return module_of(al.compile(function).to_python(args=args))


@pytest.mark.rules("PYX-8")
def test_an_argument_that_is_returned_is_the_callers_array() -> None:
    file = written(lambda x, y: (y, x.mul_(2), [x]), al.ones(2), al.ones(2))
    x, y = np.ones(2, np.float32), np.ones(2, np.float32)
    first, second, (third,) = file._lambda_(x, y)
    assert first is y
    assert second is x
    assert third is x
    assert x.tolist() == [2.0, 2.0]


@pytest.mark.rules("PYX-8")
def test_views_of_one_intermediate_share_its_memory() -> None:
    def two(x: al.Tensor) -> dict[str, al.Tensor]:
        whole = x * 2
        return {"rows": whole[1:], "turned": whole.t()}

    found = written(two, al.ones(2, 3)).two(np.ones((2, 3), np.float32))
    assert list(found) == ["rows", "turned"]
    found["rows"][...] = 7
    assert found["turned"].tolist() == [[2.0, 7.0]] * 3


@pytest.mark.rules("PYX-8")
def test_a_result_has_eagers_strides() -> None:
    def turned(x: al.Tensor) -> al.Tensor:
        return x.t() + 1

    expected = turned(al.ones(2, 3)).stride()
    found = written(turned, al.ones(2, 3)).turned(np.ones((2, 3), np.float32))
    assert tuple(step // 4 for step in found.strides) == expected == (1, 3)


@pytest.mark.rules("PYX-8")
def test_a_result_of_no_dimension_is_an_array() -> None:
    found = written(lambda x: x.sum(), al.ones(3))._lambda_(np.ones(3, np.float32))
    assert type(found) is np.ndarray
    assert (found.shape, found.dtype, found.item()) == ((), np.float32, 3.0)


@pytest.mark.rules("PYX-2")
def test_two_arguments_that_overlap_are_written_as_one_memory() -> None:
    def write(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        x.add_(1)
        return y * 2

    base = al.zeros(4)
    file = written(write, base[:3], base[1:])
    array = np.zeros(4, np.float32)
    assert file.write(array[:3], array[1:]).tolist() == [2.0, 2.0, 0.0]
    assert array.tolist() == [1.0, 1.0, 1.0, 0.0]
    with pytest.raises(ValueError, match=r"y begins -?\d+ bytes behind x, expected 4"):
        file.write(array[:3], np.zeros(3, np.float32))


@pytest.mark.rules("PYX-10")
def test_cotangents_of_views_are_added_to_that_of_the_whole() -> None:
    def two(x: al.Tensor) -> tuple[al.Tensor, al.Tensor]:
        whole = x * 3
        return whole[:2], whole[1:]

    file = written(two, al.ones(3, requires_grad=True))
    _, pullback = file.two_with_backward(np.ones(3, np.float32))
    first, second = np.array([1, 2], np.float32), np.array([10, 20], np.float32)
    assert pullback(d_output_0=first, d_output_1=second)["x"].tolist() == [3.0, 36.0, 60.0]
    assert pullback(d_output_1=second)["x"].tolist() == [0.0, 30.0, 60.0]


@pytest.mark.rules("PYX-10", "META-8")
def test_the_cotangent_of_a_view_of_a_view_with_its_own_history_is_added_to_that() -> None:
    def shrunk(x: al.Tensor) -> Any:
        a = x * x
        with al.no_grad():
            v = a.view(al.float64)
        v.sub_(a.sum())
        return v[:], v

    x = al.tensor([-2.0, 3.0], requires_grad=True)
    file = module_of(al.compile(shrunk).to_python(args=(x,)))
    _, pullback = file.shrunk_with_backward(x.detach().numpy())
    whole, part = shrunk(x)
    (whole.sum() * 2 + part.sum()).backward()
    assert x.grad is not None
    given = {"d_output_0": np.array([2.0]), "d_output_1": np.array([1.0])}
    assert pullback(**given)["x"].tolist() == x.grad.tolist() == [12.0, -18.0]


def windows(x: al.Tensor) -> Any:
    return x.as_strided((2, 1), (1, 2)), (x * 2).sum()


@pytest.mark.rules("PYX-10", "FUN-11")
def test_the_gradient_of_as_strided_leads_to_what_it_shows() -> None:
    x = al.ones(2, requires_grad=True)
    window, total = windows(x)
    (window.sum() + total).backward()
    assert x.grad is not None
    for text in (
        al.compile(windows).to_python(args=(x,)),
        al.export.program(windows, x).to_python(),
    ):
        _, pullback = module_of(text).windows_with_backward(np.ones(2, np.float32))
        given = {"d_output_0": np.ones((2, 1), np.float32), "d_output_1": np.float32(1)}
        assert pullback(**given)["x"].tolist() == x.grad.tolist()


@pytest.mark.rules("PYX-10", "FUN-11")
def test_as_strided_of_a_leaf_that_is_a_view_has_no_gradient_in_a_file() -> None:
    """Where the leaf begins in its base, and what of the window lies outside, is of each call."""
    x = al.ones(4)[:2].requires_grad_()
    with pytest.raises(al.UnsupportedError, match="leads to what it shows of x"):
        al.compile(windows).to_python(args=(x,))


@pytest.mark.rules("PYX-10")
def test_the_cotangent_of_a_written_argument_flows_to_its_old_value() -> None:
    def write(x: al.Tensor, w: al.Tensor) -> None:
        x.mul_(w)

    x, w = al.ones(2, requires_grad=True) * 1, al.full((2,), 5.0, requires_grad=True)
    file = written(write, x, w)
    result, pullback = file.write_with_backward(
        np.full(2, 3, np.float32), np.full(2, 5, np.float32)
    )
    assert result is None
    found = pullback(d_updated_primals_0=np.ones(2, np.float32))
    assert {name: each.tolist() for name, each in found.items()} == {"x": [5, 5], "w": [3, 3]}


@pytest.mark.rules("PYX-10")
def test_a_cotangent_of_another_shape_is_refused() -> None:
    file = written(lambda x: x * 2, al.ones(3, requires_grad=True))
    _, pullback = file._lambda__with_backward(np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"d_output_0 is float32\[2\], expected float32\[3\]"):
        pullback(np.ones(2, np.float32))
