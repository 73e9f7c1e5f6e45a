"""Views and conversions: what is refused and how it is said; what only a few samples can show."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.op import OPS, MultiViewOp, ViewOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.ir.ops import BUILT_IN

REFUSED = [
    (lambda x: x.view(4), ShapeError, r"view: shape is \(4,\), expected a shape of 6 elements"),
    (lambda x: x.view(-1, -1), ShapeError, "view: shape is .* expected at most one -1"),
    (lambda x: x.t().view(6), ShapeError, "view: shape .* is not expressible .* use reshape"),
    (lambda x: x.view("a"), ArgumentError, "view: argument 'size' is 'a', expected int"),
    (lambda x: x.view(2, 3, size=1), ArgumentError, "view: the call does not fit"),
    (lambda x: x.reshape(4), ShapeError, "reshape: shape is .*expected a shape of 6 elements"),
    (lambda x: x.reshape(-2, 3), ShapeError, "reshape: shape is .* expected sizes of at least 0"),
    (lambda x: x.unflatten(1, (2, 2)), ShapeError, "unflatten: shape is .* of 3 elements"),
    (lambda x: x.unflatten(2, (2, 2)), IndexOutOfRangeError, "unflatten: dimension is 2"),
    (lambda x: x.unflatten(0, ()), ShapeError, "unflatten: argument 'sizes' is .* at least one"),
    (lambda x: x.flatten(1, 0), ShapeError, "flatten: start_dim is 1, expected at most end_dim 0"),
    (lambda x: x.flatten(3), IndexOutOfRangeError, "flatten: dimension is 3, expected -2 to 1"),
    (lambda x: x.squeeze(2), IndexOutOfRangeError, "squeeze: dimension is 2, expected -2 to 1"),
    (lambda x: x.squeeze((0, 0)), ArgumentError, "squeeze: dimensions are .* each dimension once"),
    (lambda x: x.unsqueeze(3), IndexOutOfRangeError, "unsqueeze: dimension is 3, expected -3 to 2"),
    (lambda x: x.transpose(0, 2), IndexOutOfRangeError, "transpose: dimension is 2"),
    (lambda x: x.swapaxes(0, -3), IndexOutOfRangeError, "transpose: dimension is -3"),
    (lambda x: x.permute(0, 0), ShapeError, "permute: dims is .* each of 2 dimensions once"),
    (lambda x: x.permute(0), ShapeError, "permute: dims is .* each of 2 dimensions once"),
    (lambda x: x.permute(0, 1, 2), ShapeError, "permute: dims is .* each of 2 dimensions once"),
    (lambda x: x.permute(0, 2), IndexOutOfRangeError, "permute: dimension is 2, expected -2 to 1"),
    (lambda x: x.movedim(0, (0, 1)), ShapeError, "movedim: source is .* as many dimensions in"),
    (lambda x: x.movedim((0, 0), (0, 1)), ArgumentError, "movedim: dimensions are .* once"),
    (lambda x: x.moveaxis(2, 0), IndexOutOfRangeError, "moveaxis: dimension is 2"),
    (lambda x: x[0].mT, ShapeError, r"mT: the tensor has shape \(3,\), expected 2 dimensions"),
    (lambda x: x[0].H, ShapeError, "H: the tensor has shape .* expected 2 dimensions"),
    (lambda x: x.unsqueeze(0).t(), ShapeError, "t: the tensor has shape .* at most 2 dimensions"),
    (lambda x: x.expand(2), ShapeError, "expand: size .* has 1 dimensions, expected at least 2"),
    (lambda x: x.expand(2, 4), ShapeError, "expand: size 4 at dimension 1 does not fit size 3"),
    (lambda x: al.broadcast_tensors(x, al.ones(2)), ShapeError, "broadcast_tensors: shapes are"),
    (lambda x: al.broadcast_tensors(x, 2), ArgumentError, "broadcast_tensors: an argument is no"),
    (lambda x: x.select(0, 2), IndexOutOfRangeError, "select: index is 2, expected -2 <= index"),
    (lambda x: x.select(2, 0), IndexOutOfRangeError, "select: dimension is 2"),
    (lambda x: x[0, 0].select(0, 0), ShapeError, "select: the tensor has no dimensions"),
    (lambda x: al.slice(x, 0, 0, 2, 0), ArgumentError, "slice: argument 'step' is 0"),
    (lambda x: x.narrow(1, 2, 2), ShapeError, "narrow: start 2 with length 2 is outside dimension"),
    (lambda x: x.narrow(1, 4, 0), IndexOutOfRangeError, "narrow: start is 4, expected -3 to 3"),
    (lambda x: x.narrow(1, 0, -1), ShapeError, "narrow: length is -1, expected at least 0"),
    (lambda x: x.narrow(1, 0.5, 1), ArgumentError, "narrow: argument 'start' is 0.5"),
    (lambda x: x.narrow(1, al.ones(1), 1), DTypeError, "narrow: argument 'start' is f32"),
    (lambda x: x.split(0), ArgumentError, "split: argument 'split_size' is 0, expected at least 1"),
    (lambda x: x.split((1, 2)), ShapeError, "split_with_sizes: split_sizes .* sum to 3, exp"),
    (lambda x: x.split(1, 2), IndexOutOfRangeError, "split: dimension is 2"),
    (lambda x: x.chunk(0), ArgumentError, "chunk: chunks is 0, expected at least 1"),
    (lambda x: x.tensor_split(0), ArgumentError, "tensor_split: sections is 0, expected at least"),
    (lambda x: x.tensor_split(1.5), ArgumentError, "tensor_split: argument 'indices_or_sections'"),
    (lambda x: x.tensor_split(al.ones(2)), DTypeError, "tensor_split: the tensor is f32"),
    (lambda x: x.hsplit(2), ArgumentError, "hsplit: sections is 2, expected a divisor of 3"),
    (lambda x: x[0].vsplit(1), ShapeError, "vsplit: the tensor has shape .* at least 2 dimensions"),
    (lambda x: x.dsplit(1), ShapeError, "dsplit: the tensor has shape .* at least 3 dimensions"),
    (lambda x: x.unbind(2), IndexOutOfRangeError, "unbind: dimension is 2"),
    (lambda x: x.diagonal(0, 0, 0), ShapeError, "diagonal: dim1 and dim2 are both 0"),
    (lambda x: x.diagonal(0, 0, 2), IndexOutOfRangeError, "diagonal: dimension is 2"),
    (lambda x: x.unfold(1, 4, 1), ShapeError, "unfold: size is 4, expected at most 3"),
    (lambda x: x.unfold(1, 1, 0), ArgumentError, "unfold: size is 1 and step is 0"),
    (lambda x: x.as_strided((2, 2), (9, 1)), ShapeError, "as_strided: size .* needs 44 bytes"),
    (lambda x: x.as_strided((2,), (1, 1)), ShapeError, "as_strided: size .* differ in length"),
    (lambda x: x.as_strided((2,), (-1,)), ShapeError, "as_strided: .* expected no negative number"),
    (lambda x: x.as_strided((2,), (1,), -1), ShapeError, "as_strided: .* at storage offset -1"),
    # --- other dtypes and layouts
    (lambda x: x.view(al.float64), ShapeError, "view_dtype: the size of the last dimension is 3"),
    (lambda x: x.t().view(al.int8), ShapeError, "view_dtype: the stride of the last .* is 3"),
    (lambda x: x[:, 1:].view(al.float64), ShapeError, "view_dtype: the stride of dimension 0 is 3"),
    (lambda x: x[0][1:].view(al.float64), ShapeError, "view_dtype: the storage offset is 1"),
    (lambda x: x[0, 0].view(al.int8), ShapeError, "view_dtype: the tensor has no dimensions"),
    (lambda x: al.view_as_real(x), DTypeError, "view_as_real: dtype is float32, expected"),
    (lambda x: x.imag, DTypeError, "imag: dtype is float32, expected a complex one"),
    (lambda x: al.view_as_complex(x), ShapeError, "view_as_complex: .* last dimension of size 2"),
    (lambda x: al.view_as_complex(x.long()), DTypeError, "view_as_complex: dtype is int64"),
    (lambda x: al.view_as_complex(x[0][1:]), ShapeError, "view_as_complex: the storage off.* is 1"),
    (lambda x: x.contiguous(memory_format=al.channels_last), ShapeError, "contiguous: .* 4 dim"),
    (lambda x: x.contiguous(memory_format=al.preserve_format), ArgumentError, "contiguous: arg"),
    (lambda x: x.is_contiguous(memory_format=al.preserve_format), ArgumentError, "is_contiguous:"),
    (lambda x: x.clone(memory_format=al.channels_last_3d), ShapeError, "clone: .* 5 dimensions"),
    (lambda x: x.clone(memory_format="a"), ArgumentError, "clone: argument 'memory_format' is 'a'"),
    (lambda x: x.to("gpu"), al.DeviceError, "to: device is 'gpu', expected 'cpu'"),
    (lambda x: x.to(3), ArgumentError, r"to: argument 'device' is 3, expected device\?"),
    (lambda x: x.to(al.float32, 1), ArgumentError, "to: argument 'non_blocking' is 1"),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_a_view_that_makes_no_sense_is_refused(call, kind, text):
    x = al.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    with pytest.raises(kind, match=f"^{text}"):
        call(x)
    assert (0, [0.0, 1.0, 2.0]) == (x.version, x[0].tolist())


def test_an_empty_tensor_is_seen_in_any_dtype_that_fits():
    x = al.empty((0, 4))
    assert ((0, 2), (2, 1)) == (x.view(al.float64).shape, x.view(al.float64).stride())
    assert (0, 2) == al.view_as_complex(x.view(0, 2, 2)).shape


def test_a_write_to_a_view_in_another_dtype_is_seen_in_the_bytes():
    x = al.zeros((2,))
    x.view(al.int32).fill_(0x3F800000)
    assert ([1.0, 1.0], 1) == (x.tolist(), x.version)


@pytest.mark.parametrize("call", [lambda a, b: a.add_(b), lambda a, b: a.copy_(b)])
def test_an_operand_that_shares_bytes_in_another_dtype_is_refused(call):
    x = al.zeros((8,), dtype=al.float64)
    with pytest.raises(al.AliasError, match="overlaps the destination"):
        call(x.view(al.float32)[:4], x[1:5])
    call(x.view(al.float32)[:4], x[2:6])
    call(x.view(al.int64).view(al.float64), x)  # the same places


def test_tensors_of_two_dtypes_on_one_memory_are_told_apart_by_bytes():
    """The guard on who shares memory counts bytes: offsets of two dtypes cannot be compared."""
    x = al.tensor(np.arange(8, dtype=np.float32))
    calls = []

    def function(a, b):
        calls.append(1)
        a.add_(1)
        return b * 1

    compiled = al.compile(function)
    whole, halves = x.view(al.int64), x
    assert [4.0, 5.0] == compiled(whole[:1], halves[4:6]).tolist()
    assert 1 == len(calls)
    before = halves[2:4].view(al.int64).item()
    found = compiled(whole[1:2], halves[2:4])
    assert (2, before + 1) == (len(calls), found.view(al.int64).item())
    assert [6.0, 7.0] == compiled(whole[1:2], halves[6:8]).tolist()


def test_a_window_on_complex_memory_seen_as_real_has_a_gradient():
    z = (al.tensor(np.array([1 + 2j, 3 + 4j])).requires_grad_()) * 1
    z.retain_grad()
    parts = al.view_as_real(z).as_strided((2,), (3,), 0)
    assert [1.0, 4.0] == parts.tolist()
    (parts * al.tensor([2.0, 3.0], dtype=al.float64)).sum().backward()
    assert [2 + 0j, 3j] == z.grad.tolist()


def test_a_window_on_real_memory_seen_as_complex_has_a_gradient():
    base = al.tensor(np.arange(7.0)).requires_grad_()
    x = base.clone()[1:]
    pairs = al.view_as_complex(x[1:5].view(2, 2)).as_strided((1,), (1,), 2)
    assert [4 + 5j] == pairs.tolist()
    (pairs * (2 - 1j)).real.sum().backward()
    assert [0, 0, 0, 0, 2, 1, 0] == base.grad.tolist()


def test_parts_of_complex_numbers_are_written_with_history():
    x = al.tensor(np.array([1 + 2j, 3 + 4j])).requires_grad_()
    w = al.tensor([2.0, 3.0], dtype=al.float64).requires_grad_()
    z = x * 1
    z.imag.mul_(w)
    assert [1 + 4j, 3 + 12j] == z.tolist()
    z.imag.sum().backward()
    assert ([2j, 3j], [2.0, 4.0]) == (x.grad.tolist(), w.grad.tolist())


def test_what_shares_memory_is_told_from_what_does_not():
    x = al.arange(6).view(2, 3)
    assert x.reshape(3, 2).base is not None and x.t().reshape(6).base is None
    assert x.flatten(1, 1) is x and x.contiguous() is x and x.to(al.int64) is x and x.real is x
    assert x.to(al.int64, copy=True) is not x and x.t().contiguous().base is None
    assert [o.base is x.base for o in x.chunk(2)] == [True, True]
    assert al.broadcast_tensors(x, al.ones(3))[0] is x and al.atleast_2d(x) is x


def test_parts_that_are_slices_may_be_written_and_outputs_of_split_may_not():
    """TEN-19: tensor_split is several slices, chunk is one op with several views."""
    x = al.ones(4).requires_grad_() * 1
    x.tensor_split(2)[0].mul_(2)
    assert [2.0, 2.0, 1.0, 1.0] == x.tolist()
    with pytest.raises(al.AutogradError, match="an output of an op that returns several views"):
        x.chunk(2)[0].mul_(2)


def test_tensors_that_say_where_to_cut_are_read():
    x = al.arange(6)
    start, ends = al.tensor(2), al.tensor([1, 4])
    assert [2, 3] == x.narrow(0, start, 2).tolist()
    assert [1, 3, 2] == [len(part) for part in x.tensor_split(ends)]
    assert [3, 3] == [len(part) for part in al.tensor_split(x, al.tensor(2))]
    narrowed = al.compile(lambda x, at: x.narrow(0, at[0], 2))
    assert [[1, 2], [4, 5]] == [narrowed(x, al.tensor([k, 0])).tolist() for k in (1, 4)]
    with pytest.raises(al.UnsupportedError, match="of a tensor"):
        al.compile(lambda x, at: x.tensor_split(at))(x, ends)


def test_a_window_counts_from_the_start_of_the_storage_also_where_it_is_put():
    x = al.arange(6)[2:]
    put = x.as_strided_scatter(al.tensor([7, 8]), (2,), (2,), 3)
    assert [2, 7, 4, 8] == put.tolist()
    assert [2, 7, 4, 8] == al.as_strided_scatter(x, al.tensor([7, 8]), (2,), (2,), 3).tolist()
    assert [[3, 5]] == al.as_strided_copy(x, (1, 2), (1, 2), 3).tolist()
    assert [7, 3, 8, 5] == x.as_strided_scatter(al.tensor([7, 8]), (2,), (2,)).tolist()


@pytest.mark.parametrize("name", ["transpose_", "swapaxes_", "swapdims_"])
def test_a_geometry_is_changed_in_place(name):
    x = al.arange(6).view(2, 3)
    view = x[0]
    assert getattr(x, name)(0, -1) is x
    assert ((3, 2), (1, 3), 1, [0, 1, 2]) == (x.shape, x.stride(), x.version, view.tolist())


def test_parts_of_complex_numbers_are_assigned():
    """`z.imag *= 2` assigns too, in Python."""

    def assign(z, x):
        z.real = x
        z.imag *= 2
        return z * 1

    for run in (assign, al.compile(assign)):
        z = al.tensor(np.array([1 + 2j, 3 + 4j]))
        out = run(z, al.tensor([5, 6]))
        assert [5 + 4j, 6 + 8j] == out.tolist() == z.tolist()
    x = al.ones(2)
    x.real = al.zeros(2)
    assert [0.0, 0.0] == x.tolist()
    with pytest.raises(DTypeError, match="^imag: dtype is float32"):
        x.imag = x
    with pytest.raises(AttributeError):
        x.T = x


def test_every_view_has_a_copying_form():
    views = {op.name for op in BUILT_IN if isinstance(op, (ViewOp, MultiViewOp))}
    copies = {f"{name}_copy" for name in views - {"hidden_alias"}}
    assert copies <= COMPOSITES.keys() | OPS.keys()
