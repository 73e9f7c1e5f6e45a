"""What ops that move elements refuse, and how; in-place forms write nothing where they raise."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import (
    AliasError,
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
)

I = al.tensor([0, 1])
FAR = al.tensor([0, 2])
WIDE = al.tensor([[0, 1, 1]])
MASK = al.tensor([True, False, True])
ONES = al.ones(2, 3)
SUMS = "expected one of sum, mean, prod, amax, amin"

# Each is given zeros of shape (2, 3).
REFUSED = [
    # --- by a mask
    (lambda x: x.masked_select(al.tensor([1, 0, 1])), DTypeError, "masked_select: the mask has dt"),
    (lambda x: x.masked_select(MASK[:2]), ShapeError, "masked_select: shapes are"),
    (lambda x: x.masked_fill_(MASK[:2], 1.0), ShapeError, "masked_fill: shapes are"),
    (lambda x: x.masked_fill_(MASK, I), ShapeError, "masked_fill: the value has shape (2,), expec"),
    (lambda x: x.masked_fill_(MASK, 1j), DTypeError, "masked_fill: the value has dtype complex"),
    (
        lambda x: x.masked_scatter_(MASK, al.ones(3)),
        ShapeError,
        "masked_scatter: argument 'source' has 3 elements, expected at least 4, one for each place",
    ),
    (lambda x: x.masked_scatter_(MASK, I), DTypeError, "masked_scatter: argument 'source' has dty"),
    # --- index_put, take, put
    (lambda x: x.index_put_((I, I, I), al.ones(2)), IndexOutOfRangeError, "3 indices are given"),
    (lambda x: x.index_put_((FAR,), al.ones(3)), IndexOutOfRangeError, "index_put: an index is 2"),
    (lambda x: x.index_put_((I,), al.ones(4)), ShapeError, "'values' has shape (4,), expected one"),
    (lambda x: x.index_put_((I,), al.ones(1, 4)), ShapeError, "'values' has shape (4,), expected"),
    (lambda x: x.index_put_((I.float(),), al.ones(3)), DTypeError, "index_put: an index has dtype"),
    (lambda x: x.index_put_((MASK,), al.ones(3)), ShapeError, "index_put_: the mask has shape (3,"),
    (lambda x: x.take(al.tensor([6])), IndexOutOfRangeError, "take: an index is 6, expected -6 <="),
    (lambda x: x.take(I.float()), DTypeError, "take: the index has dtype float32, expected"),
    (lambda x: x[:0].take(I), IndexOutOfRangeError, "take: the index has shape (2,), expected an"),
    (lambda x: x.put_(al.tensor([-7, 0]), al.ones(2)), IndexOutOfRangeError, "put: an index is -7"),
    (lambda x: x.put_(I, al.ones(3)), ShapeError, "put: argument 'source' has shape (3,), expecte"),
    (lambda x: x.put_(I, I), DTypeError, "put: argument 'source' has dtype int64, expected float3"),
    (lambda x: x.take_along_dim(I, 0), ShapeError, "take_along_dim: argument 'indices' has shape"),
    (lambda x: x.take_along_dim(ONES, 0), DTypeError, "take_along_dim: argument 'indices' has dty"),
    # --- along a dimension
    (lambda x: x.gather(2, WIDE), IndexOutOfRangeError, "gather: dimension is 2, expected -2 to 1"),
    (lambda x: x.gather(0, WIDE, sparse_grad=True), ArgumentError, "'sparse_grad' is True, expec"),
    (lambda x: x.scatter_(0, WIDE * 2, 1.0), IndexOutOfRangeError, "scatter: an index is 2, expec"),
    (lambda x: x.scatter_(0, I, 1.0), ShapeError, "scatter: the index has shape (2,), expected 2"),
    (lambda x: x.scatter_(0, WIDE, ONES[:, :2]), ShapeError, "scatter: argument 'src' has shape"),
    (lambda x: x.scatter_(0, WIDE, WIDE), DTypeError, "scatter: argument 'src' has dtype int64"),
    (lambda x: x.scatter_(0, WIDE, 1j), DTypeError, "scatter: the value is complex, expected a re"),
    (lambda x: x.scatter_(0, WIDE), ArgumentError, "scatter: arguments 'src' and 'value' are None"),
    (
        lambda x: x.scatter_(0, WIDE, ONES, reduce="mean"),
        ArgumentError,
        "scatter: argument 'reduce' is 'mean', expected 'add' or 'multiply'",
    ),
    (lambda x: x.scatter_reduce_(0, WIDE, ONES, "max"), ArgumentError, f"'max', {SUMS}"),
    (
        lambda x: x.scatter_reduce_(0, WIDE - 1, ONES, "sum"),
        IndexOutOfRangeError,
        "scatter_reduce: an index is -1, expected 0 <= index < 2",
    ),
    (
        lambda x: x.to(al.complex64).scatter_reduce(0, WIDE, ONES.to(al.complex64), "amax"),
        DTypeError,
        "scatter_reduce: dtype is complex64, expected another one for 'amax'",
    ),
    # --- rows
    (lambda x: x.index_copy_(0, FAR, ONES), IndexOutOfRangeError, "index_copy: an index is 2, exp"),
    (lambda x: x.index_copy_(0, I, ONES[:1]), ShapeError, "index_copy: argument 'source' has shap"),
    (lambda x: x.index_copy_(0, WIDE, ONES), ShapeError, "index_copy: the index has shape (1, 3)"),
    (lambda x: x.index_copy_(0, I.to(al.int32), ONES), DTypeError, "index_copy: the index has dty"),
    (lambda x: x.index_fill_(0, FAR, 1.0), IndexOutOfRangeError, "index_fill: an index is 2, expe"),
    (lambda x: x.index_fill_(0, I, ONES[0]), ShapeError, "index_fill: the value has shape (3,), e"),
    (lambda x: x.index_fill_(0, I, 1j), DTypeError, "index_fill: the value has dtype complex"),
    (lambda x: x.index_reduce_(0, I, ONES, "sum"), ArgumentError, "'sum', expected prod, mean, am"),
    (lambda x: x.index_reduce_(0, I, ONES[0], "prod"), ShapeError, "index_reduce: argument 'sourc"),
    # --- repeating
    (lambda x: x.repeat_interleave(-1), ShapeError, "repeat_interleave: argument 'repeats' is -1,"),
    (lambda x: x.repeat_interleave(1.5), ArgumentError, "'repeats' is 1.5, expected an integer or"),
    (lambda x: x.repeat_interleave(I - 1, 0), ShapeError, "repeat_interleave: a repeat is -1, exp"),
    (lambda x: x.repeat_interleave(I, 1), ShapeError, "'repeats' has shape (2,), expected (3,)"),
    (lambda x: x.repeat_interleave(2, 0, output_size=5), ShapeError, "is 5, expected 4"),
    (lambda x: x.repeat_interleave(I, 0, output_size=5), ShapeError, "is 5, expected 1, the sum o"),
    (lambda x: x.repeat_interleave(2, 2), IndexOutOfRangeError, "repeat_interleave: dimension is"),
    (lambda x: x.repeat(2), ShapeError, "repeat: argument 'repeats' is (2,), expected at least 2"),
    (lambda x: x.repeat(1, -1), ShapeError, "repeat: argument 'repeats' is (1, -1), expected no n"),
    # --- padding
    (lambda x: al.nn.functional.pad(x, (1,)), ShapeError, "'pad' is (1,), expected an even number"),
    (lambda x: al.nn.functional.pad(x, (1,) * 6), ShapeError, "expected an even number of values,"),
    (lambda x: al.nn.functional.pad(x, (-2, -2)), ShapeError, "expected to cut off no more than t"),
    (lambda x: al.nn.functional.pad(x, (1, 1), "odd"), ArgumentError, "'mode' is 'odd', expected"),
    (lambda x: al.nn.functional.pad(x, (1, 1), value=1j), DTypeError, "the value is complex, expe"),
    (
        lambda x: al.nn.functional.pad(x, (1, 1), "circular", 2.0),
        ArgumentError,
        "pad: argument 'value' is 2.0, expected none for mode 'circular'",
    ),
    (
        lambda x: al.nn.functional.pad(x, (3, 0), "reflect"),
        ShapeError,
        "reflection_pad: the padding of dimension 1 is (3, 0), expected at most 2, its size being",
    ),
    (lambda x: al.nn.functional.pad(x, (4, 0), "circular"), ShapeError, "is (4, 0), expected at m"),
    (lambda x: al.nn.functional.pad(x, (-2, -1), "replicate"), ShapeError, "at least 1 element"),
    (lambda x: al.nn.functional.pad(x[0], (1, 1), "reflect"), ShapeError, "for shape (3,), expect"),
    (lambda x: al.nn.functional.pad(x > 0, (1, 1), "reflect"), DTypeError, "dtype is bool, expect"),
    # --- joining
    (lambda x: al.hstack([]), ArgumentError, "hstack: argument 'tensors' is empty, expected at le"),
    (lambda x: al.vstack([x, x.t()]), ShapeError, "cat: a tensor has shape (3, 2), expected that"),
    (lambda x: al.concat([x, x], 2), IndexOutOfRangeError, "cat: dimension is 2, expected -2 to 1"),
    (lambda x: al.block_diag(x[None]), ShapeError, "block_diag: a tensor has shape (1, 2, 3), exp"),
    (lambda x: al.meshgrid(x[0], I), DTypeError, "meshgrid: dtypes are float32 and int64, expecte"),
    (lambda x: al.meshgrid(x), ShapeError, "meshgrid: a tensor has shape (2, 3), expected at most"),
    (lambda x: al.meshgrid(x[0], indexing="yx"), ArgumentError, "'indexing' is 'yx', expected 'ij"),
    (lambda x: al.cartesian_prod(x), ShapeError, "cartesian_prod: a tensor has shape (2, 3), expe"),
    # --- order and diagonals
    (lambda x: x.flip(0, 2), IndexOutOfRangeError, "flip: dimension is 2, expected -2 to 1"),
    (lambda x: x.flip(0, -2), ArgumentError, "flip: dimensions are (0, -2), expected each dimensi"),
    (lambda x: x[0].fliplr(), ShapeError, "fliplr: the tensor has shape (3,), expected at least 2"),
    (lambda x: x.rot90(1, (0,)), ShapeError, "rot90: argument 'dims' is (0,) for shape (2, 3), ex"),
    (lambda x: x.roll((1, 2), 0), ShapeError, "roll: shifts is (1, 2), expected 1 for dims (0,)"),
    (lambda x: x.diff(-1), ArgumentError, "diff: argument 'n' is -1, expected at least 0"),
    (lambda x: x.sum().diff(), ShapeError, "diff: the tensor has shape (), expected at least 1 di"),
    (lambda x: x[None].diag(), ShapeError, "diag: the tensor has shape (1, 2, 3), expected 1 or 2"),
    (lambda x: x.diag_embed(0, 1, -2), ArgumentError, "diag_embed: dimensions are 1 and -2, expec"),
    (lambda x: x[0].trace(), ShapeError, "trace: the tensor has shape (3,), expected 2 dimensions"),
    (lambda x: al.tril_indices(-1, 2), ShapeError, "tril_indices: argument 'row' is -1, expected"),
    (lambda x: al.triu_indices(2, 2, dtype=al.float32), DTypeError, "triu_indices: dtype is float"),
]


def _texts(text):
    return text.replace("aotlite.", "")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    REFUSED,
    ids=[f"{i}-{text[:24]}" for i, (_, _, text) in enumerate(REFUSED)],
)
def test_bad_input_is_refused_and_nothing_is_written(call, error, text):
    x = al.zeros(2, 3)
    with pytest.raises(error) as caught:
        call(x)
    assert text in _texts(str(caught.value))
    assert (0, [[0.0] * 3] * 2) == (x.version, x.tolist())


def test_a_write_by_position_to_a_repeated_destination_is_refused():
    for call in (
        lambda x: x.scatter_(0, WIDE, 1.0),
        lambda x: x.index_fill_(0, I, 1.0),
        lambda x: x.put_(I, al.ones(2)),
        lambda x: x.masked_scatter_(MASK, ONES),
    ):
        base = al.zeros(3)
        with pytest.raises(AliasError, match="the destination .* overlaps itself"):
            call(base.expand(2, 3))
        assert [0.0, 0.0, 0.0] == base.tolist()


def test_what_is_cut_off_to_nothing_is_empty_with_the_strides_of_its_operand():
    got = al.zeros(2, 3).constant_pad_nd((-1, -2))
    assert ((2, 0), (3, 1)) == (got.shape, got.stride())


def test_products_by_scatter_reduce_wrap_around():
    x = al.tensor([100, 1], dtype=al.int8)
    got = x.scatter_reduce(0, al.tensor([0, 1]), al.tensor([2, 3], dtype=al.int8), "prod")
    assert [-56, 3] == got.tolist()


def test_repeats_of_a_known_sum_are_captured():
    function = lambda x, repeats: x.repeat_interleave(repeats, 0, output_size=3)
    x, repeats = al.tensor([[1.0], [2.0], [3.0]]), al.tensor([2, 0, 1])
    assert [[1.0], [1.0], [3.0]] == al.compile(function)(x, repeats).tolist()


def test_positions_in_half_precision_keep_the_dtype():
    x = al.from_numpy(np.arange(4, dtype=np.float16))
    assert al.float16 is al.nn.functional.pad(x[None], (1, 1), "circular").dtype
    assert [0.0, 3.0] == x.take(al.tensor([0, -1])).tolist()
