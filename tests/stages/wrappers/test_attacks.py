"""Programs with wrappers that compiled functions once got wrong, against eager."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import SubclassError, UnsupportedError
from aotlite.subclasses import TwoTensor
from tests.stages.wrappers.helpers.cases import Case, dense, nested, two
from tests.stages.wrappers.helpers.classes import NoCosine, Noisy, Odd, Tagged, Unsliced
from tests.stages.wrappers.helpers.worlds import check_like_eager

CASES: dict[str, Case] = {}


def case(make: Any) -> Any:
    def add(function: Any) -> Any:
        CASES[function.__name__] = function, make
        return function

    return add


@pytest.mark.rules("SUB-4", "SUB-11", "SUB-12")
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_programs_that_once_went_wrong_leave_eagers_world(backend: str) -> None:
    for function, make in CASES.values():
        check_like_eager(function, make, backends=(backend,))


# ------------------------------------------------------------------------------ gradients' layouts
@case(lambda: (two(grad=True),))
def a_sum(x: Any) -> Any:
    """Its gradient is expanded."""
    return x.sum()


@case(lambda: (nested(2, 3, grad=True),))
def sums_of_nested_ones(x: Any) -> Any:
    return x.sum(), x.t().mean(0)


@case(lambda: (two(2, 2, grad=True), two(2, 3, grad=True)))
def a_concatenation(x: Any, y: Any) -> Any:
    """Gradients are windows with gaps."""
    return al.cat([x, y], 1).sum(), al.cat([x, y], 1) * 2


@case(lambda: (two(grad=True),))
def an_expanded_result(x: Any) -> Any:
    """Its gradient is expected contiguous (TAN-2)."""
    return (x * 2).expand(3, 6)


# ---------------------------------------------------------------------------- parts with histories
@case(lambda: (TwoTensor(dense().requires_grad_(), dense(start=2.0)),))
def a_leaf_that_is_a_part(x: Any) -> Any:
    return x.a * 2


@case(lambda: (TwoTensor(dense().requires_grad_() * 2, dense(start=2.0).requires_grad_() * 3),))
def parts_with_histories(x: Any) -> Any:
    new = TwoTensor(x.a * 2, x.b * 3)
    return x.b * x.a, new, new.a * 2


@case(lambda: (TwoTensor(dense().requires_grad_(), dense(start=2.0), requires_grad=True),))
def a_wrapper_and_its_part_with_histories(x: Any) -> Any:
    """The gradient of a part is not the part of a gradient."""
    return x.a * 2, x * 3


@case(lambda: (TwoTensor(dense().requires_grad_() * 2, dense(start=2.0)),))
def a_part_written_with_its_history(x: Any) -> Any:
    x.a.mul_(2)
    return x.a * 1


@case(lambda: (dense().requires_grad_(), dense(), two(grad=True)))
def a_new_wrapper_of_parts_with_histories(a: Any, b: Any, x: Any) -> Any:
    new = TwoTensor(a * 2, b * a)
    return new * x, new.a * 2, x * 1, new


# -------------------------------------------------------------------------------------- geometries
@case(lambda: (two(grad=True),))
def views_of_new_wrappers(x: Any) -> Any:
    """Where a view begins is the wrapper's affair as well as its parts'."""
    return TwoTensor(x.b, x.a)[1:], (x * 2).as_strided((2, 2), (1, 2), 1)


@case(lambda: (nested(grad=True),))
def parts_of_views(x: Any) -> Any:
    """A part of a result is that result's, also where its class makes it anew."""
    one, other = x[1:], (x * 2)[2:]
    return one.a.b, one, one.b, other.a, other, other[1:].a


# ----------------------------------------------------------------------- families, shared parts
def with_views() -> tuple[Any, ...]:
    base = two(8, grad=True) * 1
    return base, base[1:7], base[2:8]


@case(with_views)
def views_of_one_base_written_with_it(base: Any, x: Any, y: Any) -> Any:
    """SYN-7: the history of all of them is the new base's."""
    x.mul_(2)
    return y * 3, base * 1


def views_alone() -> tuple[Any, ...]:
    base = nested(8)
    return base[1:7], base[2:8], nested(6, grad=True)


@case(views_alone)
def views_get_the_history_of_a_write(x: Any, y: Any, d: Any) -> Any:
    """The base is no argument; what stands for it is made like it."""
    x.mul_(d)
    return y * 3, x


def wrapper_in_a_wrapper() -> tuple[Any, ...]:
    whole = nested()
    return whole, whole.a


@case(wrapper_in_a_wrapper)
def a_wrapper_and_a_wrapper_inside_of_it(whole: Any, part: Any) -> Any:
    part.mul_(2)
    return whole * 1, part * 3


# ------------------------------------------------------------------- what classes do in a backward
@case(lambda: (Noisy(dense(), requires_grad=True),))
def noise_in_a_backward(x: Any) -> Any:
    """Draws of a class's ops follow the generator, as those of a custom function (RNG-5)."""
    return al.nn.functional.relu(x * x)


@case(lambda: (Odd(dense(), requires_grad=True),))
def writes_and_constants_in_a_backward(x: Any) -> Any:
    """What the class's ops write and compute with in the backward is in the compiled one."""
    return x.sum()


@pytest.mark.rules("RNG-5")
def test_a_backward_whose_class_draws_moves_the_generator() -> None:
    """RNG-5."""

    def state(function: Any) -> Any:
        al.manual_seed(0)
        x = Noisy(dense(), requires_grad=True)
        function(x).backward(Noisy(al.ones(6)))
        return al.get_rng_state(), x.grad.inner.tolist()

    def function(x: Any) -> Any:
        return al.nn.functional.relu(x * x)

    assert state(al.compile(function)) == state(function)


@pytest.mark.parametrize("error", [ValueError, al.SubclassError, KeyError])
def test_an_error_of_a_class_in_a_backward_comes_in_the_backward(error: Any) -> None:
    """Of the results that lead there alone: eager's forward knows nothing of it."""

    class Broken(NoCosine):
        """Raises this error."""

    Broken.error = error
    compiled = al.compile(lambda x, y: (x.sin(), y * 2))
    for _ in range(2):
        x, y = Broken(dense(), requires_grad=True), Broken(dense(), requires_grad=True)
        sine, double = compiled(x, y)
        double.backward(Broken(al.ones(6)), retain_graph=True)
        with pytest.raises(error, match="no cosine"):
            sine.backward(Broken(al.ones(6)))
        assert y.grad.inner.tolist() == [2.0] * 6
        assert x.grad is None


# --------------------------------------------------------------------------------- refusals, guards
@pytest.mark.rules("SUB-15")
def test_parts_are_not_put_in_each_others_place() -> None:
    """SUB-15: nothing of it would reach the caller's wrapper."""

    def swapped(x: Any) -> Any:
        x.add_(1)
        x.a, x.b = x.b, x.a
        return x * 1

    x = two()
    with pytest.raises(UnsupportedError, match="another tensor as attribute 'a' of argument 0"):
        al.compile(swapped)(x)
    assert (x.version, x.a.version) == (0, 0)


@pytest.mark.rules("SUB-21")
def test_zeros_of_two_signs_are_two_specs() -> None:
    """SUB-21: they are equal, and tell instances apart."""
    compiled = al.compile(lambda x: x * 2)
    for tag in (0.0, -0.0, 0, False, (1, -0.0), (1, 0.0), 0j, -0j):
        assert repr(compiled(Tagged(dense(), tag)).tag) == repr(tag)


@pytest.mark.rules("SUB-17")
@pytest.mark.parametrize("view", [lambda x: x.split(2), lambda x: (x * 2).unbind(0)])
def test_views_that_single_ops_do_not_make_are_refused_before_a_write(view: Any) -> None:
    """SUB-17: at run time each would be made by slice or select, which the class does not know."""
    x = Unsliced(dense())

    def written(x: Any) -> Any:
        x.add_(1)
        return view(x)

    with pytest.raises(SubclassError, match="result 0 is a view of a wrapper, a Unsliced"):
        al.compile(written)(x)
    assert (x.version, x.inner.version) == (0, 0)


@pytest.mark.rules("SUB-17")
def test_views_of_which_split_makes_others_than_slice_are_refused() -> None:
    """SUB-17."""

    class Kept(TwoTensor):
        """Leaves its second part whole where several views are taken."""

        @classmethod
        def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
            made = al.Tensor._make_wrapper_subclass(cls, size, stride)
            made.a, made.b = inner["a"], inner["b"]
            return made

        @classmethod
        def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            if func is not al.ops.split:
                return super().__tensor_dispatch__(func, types, args, kwargs)
            x, *rest = args
            views = func(x.a, *rest, **kwargs)
            return tuple(
                [
                    cls.__tensor_unflatten__({"a": a, "b": x.b}, None, a.shape, a.stride())
                    for a in views
                ]
            )

    with pytest.raises(SubclassError, match=r"'b' is f32\[2\], and not f32\[6\]"):
        al.compile(lambda x: x.split(2))(Kept(dense(), dense()))
    assert al.compile(lambda x: x[2:])(Kept(dense(), dense())).b.shape == (4,)
