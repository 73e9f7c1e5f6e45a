"""as_strided counts from the storage: windows may show more than an input spans (FUN-11)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.testing import Inputs, assert_same_effects

SIZE = 12


@st.composite
def windows(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    stride = {1: (draw(st.integers(1, 3)),), 2: (draw(st.sampled_from((3, 4))), 1)}[len(shape)]
    reach = sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    return shape, stride, draw(st.integers(0, SIZE - 1 - reach))


STEPS = st.lists(st.tuples(st.sampled_from(("read", "own", "seen")), windows()), max_size=4)


@pytest.mark.rules("FUN-11", "SYN-3")
@given(windows(), STEPS, st.booleans())
def test_windows_of_a_view_show_and_write_its_storage(own: Any, steps: Any, beside: bool) -> None:
    def body(view: Any, *rest: Any) -> Any:
        total = view.sum()
        for kind, window in steps:
            seen = view.as_strided(*window)
            if kind == "read":
                total = total + (seen * seen).sum()
            elif kind == "own":
                view.mul_(2)
            else:
                seen.add_(1)
        return [total, view, view.as_strided((2,), (1,), 3), *[each * 1 for each in rest]]

    def observed(function: Any, size: int) -> Any:
        memory = al.arange(size, dtype=al.float64).clone()
        rest = [memory[5:7]] if beside else []
        results = function(memory.as_strided(*own), *rest)
        seen = [(r.tolist(), r.stride(), r.storage_offset(), r.version) for r in results[1:]]
        same = [r.storage is memory.storage for r in results[:3]]
        return results[0].tolist(), seen, same, memory.tolist(), memory.version

    compiled = al.compile(body, verify=2)
    for size in (SIZE, SIZE + 3, SIZE):
        assert observed(compiled, size) == observed(body, size)


@pytest.mark.rules("FUN-11", "GRD-2")
def test_a_storage_that_is_too_small_is_another_entry_and_eagers_error() -> None:
    compiled = al.compile(lambda view: view.as_strided((3,), (2,), 0).sum())
    assert 6.0 == compiled(al.arange(8.0)[2:4]).item()
    with pytest.raises(al.ShapeError, match="needs 20 bytes"):
        compiled(al.arange(4.0)[2:4])
    assert 6.0 == compiled(al.arange(9.0)[2:4]).item()
    assert 1 == len(compiled.entries)


@pytest.mark.rules("FUN-11", "GEN-2")
def test_a_gradient_has_to_have_a_place() -> None:
    """A view alone does not say what its base is: with both passed, it goes to the base."""
    leaf: Any = al.arange(6.0).clone().requires_grad_()

    def f(view: Any, *base: Any) -> Any:
        return view.as_strided((3,), (2,), 0).square().sum()

    with pytest.raises(al.UnsupportedError, match="reaches outside"):
        al.compile(f)((leaf * 1)[2:4])
    base = leaf * 1
    al.compile(f)(base[2:4], base).backward()
    assert [0.0, 0.0, 4.0, 0.0, 8.0, 0.0] == leaf.grad.tolist()


@pytest.mark.rules("FUN-11", "GEN-2")
def test_windows_with_gradients_reach_as_far_as_their_base() -> None:
    """A base of four elements within a memory of eight, its view of two, or both are passed."""
    for beside, start, detaches in product((False, True), range(7), (False, True)):
        body = _reader(start, detaches=detaches)
        found = _gradients_of_window(al.compile(body), beside=beside)
        first, last = (2, 4) if beside else (3, 3)
        if first <= start <= last:
            assert _gradients_of_window(body, beside=beside) == found, (beside, start)
        else:
            assert found is al.UnsupportedError, (beside, start)


def _reader(start: int, *, detaches: bool) -> Any:
    def body(view: Any, *base: Any) -> Any:
        seen = view.as_strided((2,), (1,), start)
        return (seen.detach() if detaches else seen) * 2, view * 3

    return body


def _gradients_of_window(run: Any, *, beside: bool) -> Any:
    memory = al.arange(8.0)
    base: Any = memory[2:6].detach().requires_grad_()
    made = base.view_as(base)
    try:
        results = run(made[1:3], *[base] * beside)
    except al.UnsupportedError as error:
        return type(error)
    sum((each.sum() for each in results), al.zeros(())).backward()
    return [each.tolist() for each in results], base.grad.tolist()


View = Callable[[Any], Any]
THERE_AND_BACK: dict[str, tuple[View, View]] = {
    "complex numbers": (
        lambda x: al.view_as_complex(x.view(2, 2)),
        lambda v: v.view_as_real().view(4),
    ),
    "real parts": (lambda x: al.view_as_complex(x.view(2, 2)), lambda v: v.real),
    "wider elements": (lambda x: x.view(al.complex128), lambda v: v.view(al.float64)),
    "elements as wide": (lambda x: x.view(al.int64), lambda v: v.view(al.float64)),
    "narrower elements": (lambda x: x.view(al.float32), lambda v: v.view(al.float64)),
}
BETWEEN: dict[str, View] = {
    "a view": lambda v: v.view(v.shape),
    "detached": lambda v: v.detach(),
    "hidden": lambda v: v.hidden_alias(),
}


def _moved_there(v: Any) -> Any:
    v.as_strided_((2,), (2,), 3)
    return v, v[1:]


USES: dict[str, View] = {
    "returned": lambda v: v.as_strided((2,), (2,), 3),
    "seen": lambda v: v.as_strided((2,), (2,), 3)[1:],
    "read": lambda v: v.as_strided((2,), (2,), 3) * 1,
    "written": lambda v: v.as_strided((2,), (2,), 3).mul_(2),
    "moved there": _moved_there,
}


@pytest.mark.rules("FUN-11", "TEN-6")
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("way", THERE_AND_BACK)
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("use", USES)
def test_a_window_counts_elements_of_its_own_dtype(
    first: int, way: str, between: str, use: str
) -> None:
    """Of the input, which may begin within a wider element, and of its views in another dtype."""
    to, back = THERE_AND_BACK[way]

    def f(x: Any) -> Any:
        return USES[use](back(BETWEEN[between](to(x[2 - first : 6 - first]))))

    def inputs() -> Inputs:
        memory = al.arange(10.0, dtype=al.float64)
        return Inputs((memory[first:],), also=[memory])

    assert_same_effects(f, al.compile(f, verify=2), inputs)


@pytest.mark.rules("FUN-11", "TEN-6")
@pytest.mark.parametrize("between", BETWEEN)
def test_a_window_of_complex_numbers_behind_real_ones(between: str) -> None:
    def f(x: Any) -> Any:
        real = BETWEEN[between](x.view_as_real()[1:])
        return al.view_as_complex(real).as_strided((2,), (1,), 1)

    def inputs() -> Inputs:
        memory = al.arange(5.0) + 1j
        return Inputs((memory[1:],), also=[memory])

    assert_same_effects(f, al.compile(f, verify=2), inputs)


@pytest.mark.rules("RT-6", "FUN-11")
@pytest.mark.parametrize("size", [0, 1])
def test_a_resized_view_of_a_tensor_on_another_dtype_keeps_its_dtype(size: int) -> None:
    def f(x: Any) -> Any:
        view = al.view_as_complex(x)
        view.set_(view)
        real = view.real
        real.resize_((size,))
        return real[:size]

    assert_same_effects(f, al.compile(f), lambda: al.tensor([-3.0, 2.0], dtype=al.float64))
