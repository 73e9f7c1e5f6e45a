"""`MaskedTensor`: what it stands for is the elements that its mask keeps, as numpy.ma has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, DTypeError, SubclassError
from aotlite.subclasses import (
    MaskedTensor,
    QuantizedTensor,
    TwoTensor,
    flatten,
    masked_tensor,
    unflatten,
)

DATA = np.array([[1.0, -2.0, 3.0, np.nan], [4.0, 0.5, -6.0, np.inf]], "float32")
KEEP = np.array([[True, False, True, False], [True, True, False, False]])


def masked(data: Any = DATA, keep: Any = KEEP, *, grad: bool = False) -> Any:
    made = MaskedTensor(al.from_numpy(np.array(data)), al.from_numpy(np.array(keep)))
    return made.requires_grad_() if grad else made


def as_numpy(x: Any) -> Any:
    return np.ma.MaskedArray(x.data.numpy(), ~x.mask.numpy())


def assert_like(expected: Any, found: Any) -> None:
    """The same elements are kept, and they are the same numbers."""
    assert isinstance(found, MaskedTensor)
    assert np.ma.getmaskarray(np.ma.asanyarray(expected)).tolist() == (~found.mask.numpy()).tolist()
    kept = found.mask.numpy()
    assert np.allclose(
        np.asarray(np.ma.getdata(expected))[kept], found.data.numpy()[kept], equal_nan=True
    )


@pytest.mark.parametrize("name", ["add", "mul", "sub", "div", "maximum", "pow", "lt", "atan2"])
def test_an_op_between_elements_keeps_what_both_keep(name: str) -> None:
    x, y = masked(), masked(DATA[::-1].copy(), KEEP[::-1, ::-1].copy())
    numpy = {"mul": "multiply", "sub": "subtract", "div": "true_divide", "pow": "power",
             "lt": "less", "atan2": "arctan2"}.get(name, name)  # fmt: skip
    with np.errstate(all="ignore"):
        both = np.ma.getmaskarray(as_numpy(x)) | np.ma.getmaskarray(as_numpy(y))
        expected = getattr(np, numpy)(x.data.numpy(), y.data.numpy())
    assert_like(np.ma.MaskedArray(expected, both), getattr(al, name)(x, y))
    row = al.tensor([1.0, 2.0, 3.0, 4.0])
    with np.errstate(all="ignore"):
        expected = getattr(np, numpy)(x.data.numpy(), row.numpy())
    assert_like(np.ma.MaskedArray(expected, ~KEEP), getattr(al, name)(x, row))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "any", "all"])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_reduction_leaves_out_what_the_mask_does(name: str, dim: Any, keepdim: bool) -> None:
    x = masked()
    if name == "prod" and dim is None:
        found, keepdim = x.prod(), False
    else:
        found = getattr(x, name)(dim, keepdim)
    numpy = {"amax": "max", "amin": "min"}.get(name, name)
    with np.errstate(all="ignore"):
        expected = getattr(as_numpy(x), numpy)(axis=dim, keepdims=keepdim)
    assert_like(expected, found)


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("correction", [0, 1])
def test_variances_are_of_what_is_kept(dim: Any, correction: int) -> None:
    x = masked()
    with np.errstate(all="ignore"):
        expected = as_numpy(x).var(axis=dim, ddof=correction)
    found = x.var(dim, correction=correction)
    some = found.mask.numpy() & ~np.ma.getmaskarray(np.ma.asanyarray(expected))
    assert np.allclose(np.asarray(expected)[some], found.data.numpy()[some])
    with np.errstate(all="ignore"):
        deviation = np.sqrt(np.asarray(expected)[some])
    assert np.allclose(deviation, x.std(dim, correction=correction).data.numpy()[some])


def test_softmax_and_sums_along_a_dimension_and_products() -> None:
    x = masked([[1.0, 7.0, 2.0]], [[True, False, True]])
    dense = al.tensor([[1.0, 2.0]])
    assert x.softmax(1).tolist()[0][1] is None
    found = x.softmax(1).filled(0.0)[:, ::2].numpy()
    assert np.allclose(dense.softmax(1).numpy(), found)
    assert np.allclose(dense.logsumexp(1).numpy(), x.logsumexp(1).filled(0.0).numpy())
    assert x.cumsum(1).tolist() == [[1.0, None, 3.0]]
    assert np.allclose(dense.logcumsumexp(1).numpy(), x.logcumsumexp(1).filled(0.0)[:, ::2].numpy())
    assert (x @ al.ones(3, 1, dtype=al.float64)).tolist() == [[3.0]]
    assert (al.ones(2, 1, dtype=al.float64) @ x).tolist() == [[1.0, None, 2.0]] * 2
    assert al.linalg.vector_norm(x).filled(0.0).item() == np.sqrt(5.0)


@pytest.mark.parametrize("dtype", [al.float16, al.float32, al.complex64])
def test_logs_of_sums_of_exponentials_so_far_are_of_what_is_kept(dtype: al.DType) -> None:
    """Whatever is left out, also in front, and more than once in a row."""
    data = al.tensor([5.0, np.nan, 1.0, np.inf, 2.0]).to(dtype)
    x = MaskedTensor(data, al.tensor([False, False, True, False, True])).requires_grad_()
    kept = al.tensor([1.0, 2.0]).to(dtype).requires_grad_()
    found, expected = x.logcumsumexp(0), kept.logcumsumexp(0)
    first, second = expected.tolist()
    assert found.tolist() == [None, None, first, None, second]
    found.abs().sum().backward()
    expected.abs().sum().backward()
    assert kept.grad is not None and x.grad is not None
    first, second = kept.grad.tolist()
    assert x.grad.tolist() == [None, None, first, None, second]


@pytest.mark.rules("SUB-10")
def test_gradients_come_from_what_is_kept_alone() -> None:
    """SUB-7; data that is left out may be anything."""
    x, w = masked(grad=True), al.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = (x * w).log().mean()
    y.backward()
    assert x.grad.tolist() == [[0.25, None, np.float32(1 / 12), None], [0.0625, 0.5, None, None]]
    assert type(w.grad) is Tensor
    assert w.grad.tolist() == [0.5, 0.125, np.float32(1 / 12), 0.0]


def test_gradients_of_two_uses_add_up_where_one_of_them_leaves_out() -> None:
    x = masked([1.0, 2.0, 3.0], [True, True, False], grad=True)
    other = masked([5.0, 6.0, 7.0], [True, False, True])
    w = al.ones(3, requires_grad=True)
    ((x * other).sum() + (x * w * 3.0).sum() + w.sum()).filled(0.0).backward()
    assert x.grad.tolist() == [8.0, 3.0, None]
    assert w.grad is not None
    assert w.grad.tolist() == [4.0, 7.0, 1.0]


def test_gradients_through_views_and_writes() -> None:
    """SUB-15, SUB-17."""
    x = masked([[1.0, 2.0], [3.0, 4.0]], [[True, False], [True, True]], grad=True)
    y = x * 2.0
    y.t()[0].mul_(masked([5.0, 7.0], [True, False]))
    assert y.tolist() == [[10.0, None], [6.0, 8.0]]
    assert y.version == 1
    y.sum().backward()
    assert x.grad.tolist() == [[10.0, None], [2.0, 2.0]]
    x.grad = None
    x[1].sum().backward()
    assert x.grad.filled(0.0).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_writes_are_to_what_all_operands_keep() -> None:
    """SUB-15: data and mask are views for a view, and the mask is never written."""
    x = masked([1.0, 2.0, 3.0], [True, True, False])
    mask = x.mask
    assert x.add_(masked([10.0, 10.0, 10.0], [True, False, True])) is x
    assert x.tolist() == [11.0, 2.0, None]
    x[1:].copy_(al.tensor([7.0, 8.0]))
    assert x.tolist() == [11.0, 7.0, None]
    x.zero_()
    assert (x.tolist(), x.version) == ([0.0, 0.0, None], 3)
    assert x.mask is mask
    x[al.tensor([1])] = 5.0
    x.masked_fill_(al.tensor([True, False, True]), -1.0)
    assert x.tolist() == [-1.0, 5.0, None]
    with pytest.raises(SubclassError, match="is a Tensor, expected a MaskedTensor, which a"):
        al.ones(3).add_(x)
    with pytest.raises(DTypeError, match="add_: the destination has dtype int64"):
        masked([1], [True]).add_(0.5)
    with pytest.raises(AutogradError, match="add_: .*a leaf"):
        masked([1.0], [True], grad=True).add_(1.0)


def test_a_saved_tensor_that_is_written_is_an_error() -> None:
    x = masked([1.0, 2.0], [True, False], grad=True)
    y = x * 1.0
    z = y * y
    y.detach().mul_(2.0)
    with pytest.raises(AutogradError, match="expected version 0"):
        z.sum().backward()


def test_gradients_of_gradients() -> None:
    x = masked([1.0, 2.0, 3.0], [True, False, True], grad=True)
    first: Any = al.autograd.grad((x**3).sum(), x, create_graph=True)[0]
    first.sum().backward()
    assert x.grad.tolist() == [6.0, None, 18.0]


def test_made_of_data_that_requires_grad() -> None:
    data = al.tensor([1.0, 2.0], requires_grad=True)
    masked_tensor(data * 2.0, al.tensor([True, False])).sum().backward()
    assert data.grad is not None
    assert data.grad.tolist() == [2.0, 0.0]


def test_what_it_does_not_know_is_an_error() -> None:
    for ask in (
        lambda x: x.sort(),
        lambda x: x.nonzero(),
        lambda x: x.tril(),
        lambda x: x.argmax(),
    ):
        with pytest.raises(SubclassError, match="MaskedTensor gives NotImplemented"):
            ask(masked())
    with pytest.raises(SubclassError, match="MaskedTensor and TwoTensor give NotImplemented"):
        masked([1.0], [True]) * TwoTensor(al.ones(1), al.ones(1))


@pytest.mark.rules("SUB-9", "SUB-10")
def test_nested_with_others() -> None:
    """SUB-9: a mask over a pair is the pair of masks over its halves."""
    keep = al.tensor([True, False])
    pair = TwoTensor(al.tensor([1.0, 2.0]), al.tensor([3.0, 4.0]))
    outer: Any = MaskedTensor(pair, keep).requires_grad_()
    inner: Any = TwoTensor(MaskedTensor(pair.a, keep), MaskedTensor(pair.b, keep))
    (outer * outer).sum().backward()
    assert outer.grad.data.b.tolist()[0] == 6.0
    assert (inner * inner).b.tolist() == [9.0, None]
    with pytest.raises(SubclassError, match="TwoTensor with a MaskedTensor inside, expected the M"):
        inner.requires_grad_().mean()
    q = QuantizedTensor.quantize(al.tensor([1.2, 2.0]), al.tensor(0.5))
    over = MaskedTensor(q, keep)
    assert over.mul_(3.0).tolist() == [3.0, None]
    assert (q * MaskedTensor(al.ones(2), keep)).tolist() == [3.0, None]
    of_masked = QuantizedTensor.from_dense(MaskedTensor(al.tensor([127.0, 1e9]), keep))
    assert (of_masked + 0.0).tolist() == [127.0, None]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((3, al.ones(2)), "data is a int, expected a tensor"),
        ((al.ones(2), al.ones(2)), r"mask is f32\[2\], expected bool of shape \(2,\)"),
        ((al.ones(2), al.ones(1) > 0), r"mask is b8\[1\], expected bool"),
        ((masked([1.0], [True]), al.ones(1) > 0), "data is a MaskedTensor with a mask, expected"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts: Any, message: str) -> None:
    """SUB-1."""
    with pytest.raises(SubclassError, match=f"^MaskedTensor: {message}"):
        MaskedTensor(*parts)


def test_it_is_rebuilt_of_its_parts() -> None:
    x = masked()
    inner = {"data": x.data, "mask": x.mask}
    again = unflatten(MaskedTensor, inner, flatten(x)[1], x.shape, x.stride())
    assert again.data is x.data
    assert again.mask is x.mask
    turned = MaskedTensor(al.ones(2, 3).t(), al.ones(3, 2) > 0)
    assert turned.mask.stride() == (1, 3)


@pytest.mark.parametrize("inside", [lambda x: x, lambda x: TwoTensor(x, -x)])
def test_compiled_writes_have_the_gradients_of_eager_ones(inside: Any) -> None:
    """A tangent that does not arrive is zeros: it leaves nothing out (TAN-8)."""

    def function(x: Any) -> Any:
        x.mul_(2.0)
        return -x

    found = []
    for run in (function, al.compile(function)):
        leaf = MaskedTensor(inside(al.tensor([1.0, 2.0])), al.tensor([True, False]))
        leaf.requires_grad_()
        run(leaf * 1).backward(inside(al.tensor([3.0, 5.0])))
        assert isinstance(leaf.grad, MaskedTensor)
        found.append(repr(leaf.grad))
    assert found[0] == found[1]
    assert "-6." in found[0]


SHOWN = [
    ("{}", "MaskedTensor(data=[1. 2.], mask=[ True False])"),
    ("{{{}}}", "{MaskedTensor(data=[1. 2.], mask=[ True False])}"),
    ("{1} {0}", "[3. 4.] MaskedTensor(data=[1. 2.], mask=[ True False])"),
    ("{0} {0} {1}", None),
]


@pytest.mark.rules("TOK-1")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("format", "expected"), SHOWN)
def test_a_masked_tensor_is_printed_with_its_mask(
    format: str, expected: Any, compiled: Any, capsys: Any
) -> None:
    """As its text shows it, among other tensors, at each call."""
    others = [al.tensor([3.0, 4.0])] if "1" in format or expected is None else []

    def function(x: Any, *others: Any) -> None:
        al.effects.print(format, x, *others)

    function = al.compile(function) if compiled else function
    x = MaskedTensor(al.tensor([1.0, 2.0]), al.tensor([True, False]))
    for _ in range(2):
        function(x, *others)
    masked = "MaskedTensor(data=[1. 2.], mask=[ True False])"
    expected = expected or f"{masked} {masked} [3. 4.]"
    assert capsys.readouterr().out == f"{expected}\n{expected}\n"


def test_a_masked_number_is_printed_as_its_field_says(capsys: Any) -> None:
    x = MaskedTensor(al.tensor(1.0), al.tensor(False))
    al.effects.print("{:.2f} {}", x, TwoTensor(x.data, x.data * 2))
    assert capsys.readouterr().out.startswith("MaskedTensor(data=1.00, mask=False) 1.0\n")


def test_a_number_that_scatter_writes_is_kept() -> None:
    """Also 0: its mask was once the number itself."""
    for number in (0.0, 2.0):
        found = masked().scatter(1, al.tensor([[1, 2]]), number)
        assert found.mask.tolist() == [[True, True, True, False], [True, True, False, False]]
        assert found.data[0, 1:3].tolist() == [number, number]
