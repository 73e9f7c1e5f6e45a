"""DYN-7: strides of slices of a tensor that is no argument follow the sizes that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.geometry.sizes import hint_of
from aotlite.nn import functional as F

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
BACKENDS = ["reference", pytest.param("cpu", marks=needs_compiler)]


def numbers(*shape: int) -> al.Tensor:
    given = np.arange(np.prod(shape, dtype=int)) * 7 % 11 - 5
    return al.tensor((given / 4).reshape(shape).astype(np.float32))


CUT: dict[str, tuple[Callable[[int, int], al.Tensor], Callable[[Any], Any]]] = {
    "without the last": (lambda b, n: numbers(b, n)[:, :-1], lambda x: x.sin()),
    "without the first": (lambda b, n: numbers(b, n)[:, 1:], lambda x: x.sin()),
    "half": (lambda b, n: numbers(b, 2 * n).chunk(2, 1)[0], lambda x: x.sin().sum(0)),
    "rows": (lambda b, n: numbers(b, n, 4)[:, :-1], lambda x: x.transpose(1, 2) @ x),
    "heads": (lambda b, n: numbers(b, 2, n, 4)[:, :, 1:], lambda x: x.softmax(-1) * 2),
    "a border": (
        lambda b, n: numbers(b, 3, n + 2, n + 3)[:, :, 1:-1, 1:-1],
        lambda x: F.conv2d(x, al.ones(2, 3, 3, 3), padding=1).relu(),
    ),
}
SIZES = ((4, 9), (4, 9), (4, 7), (4, 12), (4, 5), (3, 7), (2, 6), (1, 9), (1, 3), (3, 3))


@pytest.mark.rules("DYN-7", "DYN-3")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CUT)
def test_what_a_slice_leaves_out_makes_no_entries(
    name: str, dynamic: bool | None, backend: str
) -> None:
    cut, function = CUT[name]
    compiled = al.compile(function, backend=backend, dynamic=dynamic)
    for sizes in SIZES:
        outcomes = []
        for each in (function, compiled):
            x = cut(*sizes).detach().requires_grad_()
            assert not x.is_contiguous() or sizes[0] == 1
            result = each(x)
            (result * 1.5).sum().backward()
            assert x.grad is not None
            outcomes.append((result.detach().numpy(), result.stride(), x.grad.numpy()))
        np.testing.assert_allclose(outcomes[0][0], outcomes[1][0], rtol=1e-6, atol=1e-6)
        assert outcomes[0][1] == outcomes[1][1]
        np.testing.assert_allclose(outcomes[0][2], outcomes[1][2], rtol=1e-6, atol=1e-6)
    # One for the first length, or for its stride, and for each dimension that is seen to change.
    assert len(compiled.entries) == (3 if dynamic is None else 2), str(compiled.regions())


STEPS: dict[str, tuple[Callable[[int], al.Tensor], int]] = {
    "every other": (lambda n: numbers(4, n)[:, ::2], 2),
    "every other from the second": (lambda n: numbers(4, n)[:, 1::2], 2),
    "every third": (lambda n: numbers(4, n)[:, ::3], 3),
    "every other row": (lambda n: numbers(2, n, 3)[:, ::2], 2),
    "of planes": (lambda n: numbers(3, 2, n)[:, :, ::2], 2),
    "turned": (lambda n: numbers(4, n)[:, ::2].t(), 2),
    "of two dimensions": (lambda n: numbers(n, n)[::2, ::2], 3),
    "a diagonal": (lambda n: numbers(n, n).diagonal(), 2),
}
"""Slices with a step, and their entries for lengths of 3 and more: one for each remainder, and one
more where the second call shows the form."""
LENGTHS = (9, 12, 7, 10, 17, 22, 5, 30)


@pytest.mark.rules("DYN-7")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_makes_an_entry_for_each_remainder(name: str) -> None:
    def function(x: Any) -> Any:
        return x.sin() * 2

    cut, most = STEPS[name]
    compiled = al.compile(function, backend="reference", dynamic=True)
    for n in (*LENGTHS, 0, 1, 2):
        outcomes = []
        for each in (function, compiled):
            x = cut(n).detach().requires_grad_()
            result = each(x)
            (result * 1.5).sum().backward()
            assert x.grad is not None
            outcomes.append((result.stride(), result.tolist(), x.grad.tolist()))
        assert outcomes[0] == outcomes[1]
        assert len(compiled.entries) <= most + 2 * (n < 3), str(compiled.regions())


@pytest.mark.rules("DYN-7")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_language_model_is_compiled_twice_for_all_lengths(backend: str) -> None:
    weight = numbers(11, 4).requires_grad_()

    def step(tokens: Any, following: Any) -> Any:
        scores = F.embedding(tokens, weight) @ weight.T
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())

    compiled = al.compile(step, backend=backend)
    for length in (9, 9, 7, 12, 5, 20, 3):
        text = (al.arange(4 * length) % 11).reshape(4, length)
        assert abs(step(text[:, :-1], text[:, 1:]) - compiled(text[:, :-1], text[:, 1:])) < 1e-5
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-7")
def test_a_part_of_a_buffer_keeps_its_stride() -> None:
    buffer = numbers(4, 32)
    compiled = al.compile(lambda x: x * 2, backend="reference")
    for length in (5, 7, 9, 31):
        found = compiled(buffer[:, :length])
        np.testing.assert_array_equal(found.numpy(), buffer[:, :length].numpy() * 2)
    assert len(compiled.entries) == 2
    shown = compiled.entries[1].meta.inputs[0].meta
    assert shown.stride == (32, 1)


@pytest.mark.rules("DYN-7")
def test_another_cut_is_another_entry() -> None:
    compiled = al.compile(lambda x: x * 2, backend="reference")
    for length, cut in ((9, 1), (7, 1), (9, 2), (7, 2), (12, 2), (12, 1), (30, 1), (6, 3)):
        x = numbers(4, length)[:, :-cut]
        np.testing.assert_array_equal(compiled(x).numpy(), x.numpy() * 2)
    strides = [tuple(map(hint_of, each.meta.inputs[0].meta.stride)) for each in compiled.entries]
    assert strides == [(9, 1), (7, 1), (9, 1), (7, 1), (6, 1)]


@pytest.mark.rules("DYN-7")
@pytest.mark.parametrize("dynamic", [False, True])
def test_strides_that_no_text_shows_are_named_where_they_alone_differ(dynamic: bool) -> None:
    compiled = al.compile(lambda x: x * 2, backend="reference", dynamic=dynamic)
    compiled(al.ones(4, 1))
    compiled(al.ones(100).as_strided((4, 1), (1, 7)))
    told = " ".join(str(compiled.explain_recompiles()).replace("│", " ").split())
    assert "argument 0 is f32[4, 1] with the strides (1, 7), expected f32[4, 1]" in told


@pytest.mark.rules("DYN-8")
def test_a_guard_that_divides_by_a_count_ties_nothing_where_the_count_is_0() -> None:
    def function(x: al.Tensor) -> list[al.Tensor]:
        some = x[x > 0]
        return [part * 2 for part in some[: round(some.numel() * 0.7)].chunk(min(x.shape[0], 3))]

    compiled = al.compile(function, dynamic=True, backend="reference")
    for n in (5, 4, 2, 1):
        x = al.ones(n, 4)
        assert [each.tolist() for each in compiled(x)] == [each.tolist() for each in function(x)]


@pytest.mark.rules("DYN-8", "DYN-24")
def test_a_size_by_which_a_later_guard_divides_is_refused_before_its_count_is_known() -> None:
    """The guard on the count has no value for even sizes, so that it implies `s0 % 2 != 0`."""

    def function(x: al.Tensor) -> al.Tensor:
        rows = (x * 2).unflatten(0, (-1, x.shape[0] % 2))
        place = rows.argsort(0).amin().item()
        al.check(place >= 0)
        al.check(place < rows.shape[0])
        return rows[place]

    compiled = al.compile(function, dynamic=True, backend="reference")
    for n in (5, 4, 3, 6):
        for each in (function, compiled):
            if n % 2:
                assert each(al.ones(n)).tolist() == [2.0]
            else:
                with pytest.raises(al.ShapeError, match=r"unflatten: shape is \(-1, 0\)"):
                    each(al.ones(n))


@pytest.mark.rules("DYN-8")
def test_sizes_of_results_are_settled_without_a_question() -> None:
    """Where s0 is 4, abs(s1 - s0) is abs(s1 - 4), by which nothing was divided when guards were
    made."""

    def function(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        rows = (-y).reshape(-1, abs(x.shape[1] - x.shape[0]))
        for _ in x:
            pass
        return rows.transpose(0, -1)

    compiled = al.compile(function, dynamic=True, backend="reference")
    for m, n in ((4, 6), (4, 3), (4, 8), (2, 6)):
        x, y = al.ones(m, n, 1), al.arange(float(m * m)).reshape(m, m)
        assert compiled(x, y).tolist() == function(x, y).tolist()
    for entry in compiled.entries:
        assert not entry.guarded.sizes.table.late  # type: ignore[attr-defined]


@pytest.mark.rules("TEN-15", "GEN-2")
@pytest.mark.parametrize("n", [1, 2])
def test_a_masked_write_to_a_leaf_has_one_error_for_all_counts(n: int) -> None:
    def function(x: al.Tensor) -> None:
        x[x > 0] *= 2

    compiled = al.compile(function, dynamic=True, backend="reference")
    for each in (function, compiled):
        with pytest.raises(al.AutogradError, match="^setitem: the tensor is a leaf"):
            each(al.ones(n).requires_grad_())


@pytest.mark.rules("TEN-2", "GEN-2")
@pytest.mark.parametrize("shape", [(1, 2, 1), (1, 3, 2), (2, 2, 3)])
def test_the_error_of_an_assignment_leaves_out_leading_ones_that_are_symbols(
    shape: tuple[int, ...],
) -> None:
    def function(x: al.Tensor) -> None:
        x[:, al.arange(x.shape[0])] = x

    texts = []
    for each in (function, al.compile(function, dynamic=True, backend="reference")):
        try:
            each(al.ones(*shape))
        except al.ShapeError as error:
            texts.append(str(error))
        else:
            texts.append("")
    assert texts[0] == texts[1]
