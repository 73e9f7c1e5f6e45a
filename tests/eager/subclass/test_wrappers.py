"""Wrapper subclasses in eager: the class computes, and the rest is as of any tensor."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import AotliteError, AutogradError, SubclassError, UnsupportedError
from aotlite.ir.op import OPS, DataOp, InplaceOp, MultiViewOp, PureOp, ViewOp
from aotlite.subclasses import TwoTensor, flatten, is_traceable_wrapper_subclass, unflatten
from aotlite.testing.laws.samples.sample import Sample
from tests.samples import samples_of

OF_TENSORS = sorted(
    name
    for name, op in OPS.items()
    if isinstance(op, (PureOp, DataOp, ViewOp, MultiViewOp, InplaceOp))
    and (op.tensors or op.lists or op.mixed)
    and samples_of(name)
    and name != "hidden_alias"
)

OF_GRADIENTS = [
    name
    for name in OF_TENSORS
    if isinstance(OPS[name], (PureOp, ViewOp))
    and OPS[name].vjp is not None  # type: ignore[attr-defined]
    and any(sample.smooth for sample in samples_of(name))
]


def tensors(value: Any, *, turned: bool, grad: bool = False) -> Any:
    """Tensors for arrays, of their layout; `turned`, with the elements in reverse order."""
    if isinstance(value, (tuple, list)):
        return type(value)(tensors(each, turned=turned, grad=grad) for each in value)
    if not isinstance(value, np.ndarray):
        return value
    base = value
    while isinstance(base.base, np.ndarray):
        base = base.base
    memory = np.array(base)
    made = al.from_numpy(memory)
    size = value.itemsize
    start = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    stride = [step // size for step in value.strides]
    window = made.as_strided(value.shape, stride, start // size) if value.size else None
    result = al.from_numpy(np.array(value)) if window is None else window.detach()
    if turned and value.size and 0 not in value.strides:
        result.copy_(al.from_numpy(np.array(np.flip(value))))
    if grad and value.dtype.kind in "fc":
        result.requires_grad_()
    return result


def paired(first: Any, second: Any) -> Any:
    if isinstance(first, (tuple, list)):
        return type(first)(paired(*each) for each in zip(first, second, strict=True))
    return TwoTensor(first, second) if isinstance(first, Tensor) else first


def parts_of(value: Any, name: str) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(parts_of(each, name) for each in value)
    return getattr(value, name) if isinstance(value, TwoTensor) else value


def assert_same(found: Any, expected: Any) -> None:
    """Equal bits and geometry."""
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    elif isinstance(expected, Tensor):
        assert found.meta is expected.meta
        assert np.array_equal(found.detach().array, expected.detach().array, equal_nan=True) or (
            found.array.tobytes() == expected.array.tobytes()
        )
    else:
        assert found == expected


def both(sample: Sample, *, grad: bool = False) -> tuple[Any, Any]:
    first = tensors(sample.args, turned=False, grad=grad)
    return first, tensors(sample.args, turned=True, grad=grad)


def run(name: str, args: Any, kwargs: Any) -> Any:
    try:
        return call(name, *args, **kwargs)
    except AotliteError as error:
        return type(error)


@pytest.mark.rules("SUB-10", "SUB-17")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", OF_TENSORS)
def test_every_op_of_a_pair_is_the_op_of_each(name: str) -> None:
    """SUB-10, and SUB-17 for views and writes."""
    op = OPS[name]
    for sample in samples_of(name):
        given = paired(*both(sample))
        expected = [run(name, args, sample.kwargs) for args in both(sample)]
        if any(isinstance(each, type) for each in expected):
            continue  # turned around it is no sample
        if isinstance(op, DataOp) and len({str(each) for each in expected}) > 1:
            continue  # a pair has one shape
        found = call(name, *given, **sample.kwargs)
        for part, of_part in zip("ab", expected, strict=True):
            assert_same(parts_of(found, part), of_part)
        if isinstance(op, InplaceOp):
            assert found is given[0]
            assert given[0].version == 1
        elif isinstance(op, (ViewOp, MultiViewOp)):
            for each in found if isinstance(op, MultiViewOp) else (found,):
                assert each.storage is given[0].storage
                assert each.a.storage is given[0].a.storage


@pytest.mark.rules("SUB-7")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_every_gradient_of_a_pair_is_the_gradient_of_each(name: str) -> None:
    """SUB-7: the tape sees pairs."""
    compared = 0
    for sample in [each for each in samples_of(name) if each.smooth][:3]:
        pair = paired(*both(sample))
        for leaf in _flat(pair):
            if leaf.dtype.is_differentiable:
                leaf.requires_grad_()
        try:
            expected = [_gradients(name, each, sample.kwargs) for each in both(sample, grad=True)]
        except AotliteError:
            continue  # turned around it is no sample
        found = _gradients(name, pair, sample.kwargs)
        for part, of_part in zip("ab", expected, strict=True):
            assert_same(parts_of(found, part), of_part)
        compared += 1
    assert (compared > 0) == (name not in NOT_TURNED)


NOT_TURNED = ("complex", "polar", "sgn_of_complex", "view_as_complex", "view_as_complex_copy")
"""Ops of complex numbers, whose samples are none any more once they are turned around."""


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in _flat(each)]
    return [value] if isinstance(value, Tensor) else []


def _gradients(name: str, args: Any, kwargs: Any) -> Any:
    result = call(name, *args, **kwargs)
    total = sum((each * each).sum() for each in _flat(result) if each.requires_grad)
    leaves = [each for each in _flat(args) if each.requires_grad]
    found = al.autograd.grad(total, leaves, allow_unused=True)
    return tuple(found)


# ----------------------------------------------------------------------------------- the protocol
def pair_of(*numbers: float) -> TwoTensor:
    """The numbers, and ten times the numbers."""
    return TwoTensor(al.tensor(numbers), al.tensor([10 * n for n in numbers]))


def test_a_wrapper_has_geometry_and_no_memory() -> None:
    pair = pair_of(1.0, 2.0)
    assert (pair.shape, pair.stride(), pair.dtype) == ((2,), (1,), al.float32)
    assert is_traceable_wrapper_subclass(pair)
    assert not is_traceable_wrapper_subclass(al.ones(2))
    for ask in (pair.numpy, pair.tolist, pair.sum().item, pair.data_ptr):
        with pytest.raises(UnsupportedError, match="TwoTensor, which has no memory of its own"):
            ask()
    assert repr(pair).startswith("TwoTensor(f32[2], a=tensor([1., 2.]), b=tensor([10., 20.])")


def test_views_and_writes_are_those_of_any_tensor() -> None:
    """TEN-3, TEN-10, TEN-17 above the class."""
    base = pair_of(1.0, 2.0, 3.0, 4.0)
    x = (base * 1).requires_grad_()
    y = x * 2
    view = y.view(2, 2).t()
    assert view.base is y
    view[0].mul_(3)
    assert (y.version, view.version, x.version) == (1, 1, 0)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.a.tolist() == [6.0, 2.0, 6.0, 2.0] == x.grad.b.tolist()
    assert y.b.tolist() == [60.0, 40.0, 180.0, 80.0]


def test_a_saved_wrapper_that_is_written_is_an_error() -> None:
    """TEN-12."""
    x = pair_of(1.0, 2.0).requires_grad_()
    y = x.exp()
    result = y * y
    y.detach().zero_()
    with pytest.raises(AutogradError, match="expected version 0"):
        result.sum().backward()
    with pytest.raises(AutogradError, match="a leaf"):
        x.add_(1)


def test_gradients_of_gradients_hooks_and_accumulation() -> None:
    x = pair_of(1.0, 2.0).requires_grad_()
    seen = []
    x.register_hook(lambda grad: seen.append(type(grad)))
    first: Any = al.autograd.grad((x**3).sum(), x, create_graph=True)[0]
    first.sum().backward()
    square: Any = x * x
    square.sum().backward()
    assert x.grad is not None
    assert x.grad.b.tolist() == [60.0 + 20, 120.0 + 40]
    assert set(seen) == {TwoTensor}


def test_a_gradient_is_no_alias_of_what_was_given() -> None:
    x, grad = pair_of(1.0, 2.0).requires_grad_(), pair_of(1.0, 1.0)
    (x * 1).backward(grad)
    grad.zero_()
    assert x.grad is not None
    assert x.grad.a.tolist() == [1.0, 1.0]


@pytest.mark.rules("SUB-10")
def test_a_dense_operand_gets_the_gradient_that_the_class_gives() -> None:
    """SUB-10: of both, here a pair, which a dense leaf cannot take."""
    x, w = pair_of(1.0, 2.0), al.ones(2, requires_grad=True)
    (found,) = al.autograd.grad((x * w).sum(), w)
    assert isinstance(found, TwoTensor)
    assert found.b.tolist() == [10.0, 20.0]


@pytest.mark.rules("SUB-9")
def test_nesting_is_any_depth() -> None:
    """SUB-9."""
    x = TwoTensor(pair_of(1.0, 2.0), pair_of(3.0, 4.0)).requires_grad_()
    total: Any = (x.view(2, 1) * 2).t().square()
    total.sum().backward()
    assert x.grad is not None
    assert x.grad.b.a.tolist() == [24.0, 32.0]
    assert unflatten(TwoTensor, {"a": x.a, "b": x.b}, None, (2,), (1,)).b.b is x.b.b


def test_copies_are_of_the_parts() -> None:
    x = pair_of(1.0, 2.0).requires_grad_()
    twin = copy.deepcopy(x)
    assert twin.requires_grad
    twin.detach().zero_()
    assert x.a.tolist() == [1.0, 2.0]


@pytest.mark.rules("SUB-20")
def test_what_changes_form_or_memory_is_refused() -> None:
    """SUB-20."""
    x = pair_of(1.0, 2.0)
    for change in (
        lambda: x.unsqueeze_(0),
        lambda: x.as_strided_((1,), (1,)),
        lambda: x.set_(al.ones(2)),
        lambda: al.ones(2).set_(x),
        lambda: x.resize_(4),
        lambda: x.hidden_alias(),
    ):
        with pytest.raises(SubclassError, match="TwoTensor, expected one whose geometry"):
            change()
    assert (x.shape, x.version) == ((2,), 0)


class Broken(TwoTensor):
    """Breaks the protocol in the way that its class attributes say."""

    flat: Any = (["a", "b"], None)
    made: Any = staticmethod(lambda a, b: Broken(a, b))
    given: Any = None

    def __tensor_flatten__(self) -> Any:
        return type(self).flat

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return cls.made(inner["a"], inner["b"])

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if cls.given is not None:
            return cls.given(*args)
        return super().__tensor_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        (["a", "b"], r"flattens to \['a', 'b'\], expected a tuple"),
        (("a", None), "flattens to the names 'a', expected a list"),
        (([], None), "expected at least one"),
        ((["a", "a"], None), "each of them once"),
        ((["a", "c"], None), "attribute 'c', which is absent, expected a tensor"),
        ((["a", "flat"], None), "attribute 'flat', which is .*, expected a tensor"),
    ],
)
def test_a_flatten_that_breaks_the_protocol_is_named(flat: Any, message: str) -> None:
    kind = type("Flat", (Broken,), {"flat": flat})
    with pytest.raises(SubclassError, match=f"^Flat: .*{message}"):
        flatten(kind(al.ones(2), al.ones(2)))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda a, b: a, "unflattens to a Tensor, expected an instance of Made"),
        (lambda a, b: KINDS["made"](a[:1], b[:1]), "unflattens to shape"),
        (lambda a, b: KINDS["made"](a.expand(2, 2), b.expand(2, 2)), "unflattens to shape"),
    ],
)
def test_an_unflatten_that_gives_another_is_named(made: Any, message: str) -> None:
    KINDS["made"] = kind = type("Made", (Broken,), {"made": staticmethod(made)})
    with pytest.raises(SubclassError, match=f"^Made: it {message}"):
        unflatten(kind, {"a": al.ones(2), "b": al.ones(2)}, None, (2,), (1,))


KINDS: dict[str, Any] = {}


def swapped(pair: Any) -> Any:
    pair.a = pair.a * 2
    return pair


@pytest.mark.rules("SUB-15", "SUB-17", "SUB-23")
@pytest.mark.parametrize(
    ("given", "call_it", "message"),
    [
        (lambda *args: NotImplemented, lambda x: x * 2, "gives NotImplemented"),
        (lambda *args: 3, lambda x: x * 2, "gives 3, expected a tensor"),
        (lambda *args: al.ones(3), lambda x: x * 2, r"gives f32\[3\], expected shape and dtype"),
        (lambda *args: al.ones(2).long(), lambda x: x * 2, "expected shape and dtype"),
        (lambda *args: args[0], lambda x: x * 2, "expected a new tensor"),
        (lambda *args: al.ones(2), lambda x: x.view(2), "gives 'a Tensor', expected another"),
        (lambda *args: args[0], lambda x: x.view(2), "the operand itself"),
        (lambda x, *args: x, lambda x: x.split(1), "expected a tuple of 2 views"),
        (lambda x, *args: type(x)(x.a.clone(), x.b), lambda x: x.view(2), "'a' has memory of its"),
        (lambda x, *args: x.a, lambda x: x.mul_(2), "expected the tensor that is written"),
        (lambda x, *args: swapped(x), lambda x: x.mul_(2), "puts another"),
    ],
)
def test_a_dispatch_that_gives_nonsense_is_named(given: Any, call_it: Any, message: str) -> None:
    """SUB-15, SUB-17, SUB-23."""
    kind = type("Odd", (Broken,), {"given": staticmethod(given)})
    x = kind(al.ones(2), al.ones(2))
    with pytest.raises(SubclassError, match=f"Odd.*{message}"):
        call_it(x)
    assert al.is_grad_enabled()


def test_the_most_derived_class_is_asked_first() -> None:
    asked = []

    class First(TwoTensor):
        @classmethod
        def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            asked.append([kind.__name__ for kind in types])
            return NotImplemented

    one, other = pair_of(1.0), First(al.ones(1), al.ones(1))
    assert (one + other).a.tolist() == [2.0]
    assert asked == [["First", "TwoTensor"]]


def test_a_class_needs_a_dispatch() -> None:
    with pytest.raises(SubclassError, match="expected a subclass of Tensor with"):
        Tensor._make_wrapper_subclass(Tensor, (2,))
