"""Toy classes obey the laws, and compiled functions of them do what eager does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ArgumentError, DTypeError, ProtocolError, SubclassError
from aotlite.ir.op import OPS
from aotlite.subclasses import EncodedTensor, QuantizedTensor, flatten
from aotlite.testing import subclass_laws
from aotlite.testing.laws import LawError
from tests.samples import samples_of
from tests.subclasses.helpers.toys import Boxed, Labeled, Log, Scaled, pair, scaled


@pytest.mark.slow("the laws over the op table, with two samples")
def test_a_scaled_tensor_obeys_the_laws() -> None:
    found = subclass_laws(
        scaled, lambda x: x.inner * x.by, samples=samples_of, most=2, programs=15, compiled=3
    )
    assert set(found.refused) == {"view_as_complex", "view_as_real", "view_dtype"} & set(
        found.refused
    )


def test_a_scaled_tensor_keeps_its_number_apart() -> None:
    x = scaled(al.tensor([1.0, 2.0]))
    assert (flatten(x * 3.0)[1], (x * 3.0).tolist()) == (6.0, [3.0, 6.0])
    assert x.mul_(3.0).by == 2.0


def positive(x: Tensor) -> Any:
    if not x.dtype.is_floating_point:
        raise DTypeError(f"Log: dtype is {x.dtype}, expected floats")
    return Log((x.abs() + 0.5).log())


def test_logarithms_obey_the_laws_of_ops_within_rounding() -> None:
    found = subclass_laws(
        positive,
        lambda x: x.log.exp(),
        stored=lambda x, value: value.log().exp(),
        tolerance=2e-5,
        ops=["mul", "div", "add", "sum", "mul_", "add_", "t", "select", "view", "relu", "sqrt"],
        laws=["S1", "S2", "S3", "S4", "S5"],
    )
    assert not found.refused
    x = Log(al.tensor([0.0, 1.0]))
    assert isinstance(x * x, Log)
    assert (x / x).log.tolist() == [0.0, 0.0]


def labeled(x: Tensor) -> Any:
    return Labeled(x, "a")


def boxed_twice(x: Tensor) -> Any:
    return Boxed(Boxed(x))


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("make", "ops"),
    [
        (Boxed, None),
        (labeled, [*OPS][::3]),
        (boxed_twice, [*OPS][1::3]),
        pytest.param(labeled, None, marks=pytest.mark.long),
        pytest.param(boxed_twice, None, marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "__name__", "all" if value is None else "some"),
)
@pytest.mark.rules("SUB-9")
def test_boxes_obey_the_laws_around_tensors(make: Any, ops: list[str] | None) -> None:
    """SUB-9: of boxes, too."""
    kinds = [one_of(Boxed)]
    found = subclass_laws(make, lambda x: x.inner, kinds=kinds, samples=samples_of, most=1, ops=ops)
    assert not found.refused


def one_of(cls: Any) -> Any:
    from aotlite.testing.subclasses import SubclassKind

    return SubclassKind(cls, cls, lambda x: x.inner)


@pytest.mark.parametrize("programs", [3, pytest.param(30, marks=pytest.mark.long)])
def test_boxes_obey_the_laws_around_pairs(programs: int) -> None:
    names = ["add", "mul", "sum", "exp", "mul_", "copy_", "t", "view", "select", "split"]
    found = subclass_laws(lambda x: Boxed(pair(x)), lambda x: x.inner, ops=names, programs=programs)
    assert not found.refused


def test_labels_are_kept_and_do_not_mix() -> None:
    x, y = Labeled(al.ones(2), "a"), Labeled(al.ones(2), "b")
    assert [each.label for each in (x + 1, x.t(), x.mul_(2), x.split(1)[1])] == ["a"] * 4
    with pytest.raises(SubclassError, match=r"add: labels are \['a', 'b'\], expected one"):
        x + y


def test_a_strategy_is_of_functions() -> None:
    numbers = st.sampled_from([1.0, 2.0, 0.5]).map(lambda by: lambda x: Scaled(x / by, by))
    found = subclass_laws(numbers, lambda x: x.inner * x.by, ops=["mul", "add_", "t"], programs=1)
    assert "subclass 'Scaled' obeys S1" in str(found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: subclass_laws(Boxed), "meaning of .* is None, expected a function"),
        (
            lambda: subclass_laws(lambda x: x, lambda x: x),
            "of a tensor .* makes a Tensor, expected a wrapper",
        ),
        (lambda: subclass_laws(Boxed, lambda x: x.inner, laws=["S9"]), r"laws has \['S9'\]"),
        (lambda: subclass_laws(Boxed, lambda x: x.inner, ops=["no"]), "an op is 'no', expected"),
        (lambda: subclass_laws(positive_none, lambda x: x), "no tensor can be wrapped"),
    ],
)
def test_arguments_that_are_none_are_named(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"subclass_laws: {message}"):
        call()


def positive_none(x: Tensor) -> Any:
    raise DTypeError("none: dtype is any, expected none")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("make", [scaled, positive, Boxed, lambda x: Boxed(pair(x))])
@pytest.mark.rules("SUB-3", "SUB-7")
def test_compiled_functions_of_toys_do_what_eager_does(make: Any) -> None:
    """SUB-3, SUB-7."""

    def function(x: Any, y: Any) -> Any:
        z = x * y + x
        return z, z.t().sum()

    found = []
    for run in (function, al.compile(function)):
        x = make(al.tensor([[1.0, 2.0], [3.0, 4.0]])).requires_grad_()
        y = make(al.tensor([[2.0, 0.5], [1.0, 1.0]]))
        results: Any = run(x, y)
        results[1].backward()
        found.append([repr(each) for each in (*results, x.grad)])
    plain = [[text.split(", grad_fn")[0] for text in each] for each in found]
    assert plain[0] == plain[1]


def numbers(shape: tuple[int, ...]) -> Any:
    """Tensors of halves."""
    count = int(np.prod(shape))
    return st.lists(st.integers(-20, 20), min_size=count, max_size=count).map(
        lambda found: al.tensor(np.array(found, "float32").reshape(shape) / 2)
    )


def test_a_strategy_may_be_of_wrappers() -> None:
    shapes = st.sampled_from([(2, 4), (3,), (), (4, 1)])
    scales = shapes.flatmap(numbers).map(lambda x: Scaled(x, 2.0))
    found = subclass_laws(scales, lambda x: x.inner * x.by)
    assert found.laws == ("S1", "S2", "S3", "S4", "S5")
    assert not found.refused
    quantized = shapes.flatmap(numbers).map(lambda x: QuantizedTensor.quantize(x, al.tensor(0.5)))
    assert subclass_laws(quantized).cases > 100


@pytest.mark.slow("Hypothesis shrinks the wrapper")
def test_a_wrapper_of_a_strategy_that_is_wrong_is_named() -> None:
    class Adds(Scaled):
        @classmethod
        def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            found = super().__tensor_dispatch__(func, types, args, kwargs)
            return found + 1 if func is al.ops.relu else found

    made = numbers((2,)).map(lambda x: Adds(x, 2.0))
    with pytest.raises(LawError, match=r"^S2 .*'Adds' of f32\[.*\], x.relu\(\): result 0 is"):
        subclass_laws(made, lambda x: x.inner * x.by, ops=["mul", "t", "relu", "add_"])


def test_a_derived_class_without_a_method_is_named() -> None:
    """SUB-1."""

    class Half(EncodedTensor):
        """Says nothing of what it stands for."""

    made = al.Tensor._make_wrapper_subclass(Half, (2,))
    with pytest.raises(ProtocolError, match="Half: it has no method 'decode', expected a class"):
        made.decode()
