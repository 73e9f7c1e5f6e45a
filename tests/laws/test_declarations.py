"""What the laws found wrong in declarations, each as a test of its own; layouts in bulk."""

import itertools
import random

import numpy as np
import pytest

import aotlite as al
from aotlite.autograd import grad
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, PureOp, parse_vjp, schema_of


class Layout:
    """A tensor of which only the meta is known."""

    def __init__(self, shape, stride, dtype=al.float32):
        self.meta = tensor_meta(shape, stride, dtype)


def random_layout(rng):
    """Sizes 0 and 1, gaps, repetitions and strides that say nothing come often."""
    shape = [rng.choice([0, 1, 1, 2, 3]) for _ in range(rng.randint(0, 4))]
    order = rng.sample(range(len(shape)), len(shape))
    stride, step = [0] * len(shape), 1
    for dim in order:
        stride[dim] = step * rng.choice([1, 1, 1, 2])
        step = stride[dim] * max(shape[dim], 1)
        if rng.random() < 0.15:
            stride[dim] = 0
        if shape[dim] == 1 and rng.random() < 0.4:
            stride[dim] = rng.randint(0, 9)
    return tuple(shape), tuple(stride)


NUMBER_CALLS = {
    "add": (lambda torch, x: x + 2, lambda x: (x, 2)),
    "rsub": (lambda torch, x: 2 - x, lambda x: (x, 2)),
    "eq": (lambda torch, x: x == 2, lambda x: (x, 2)),
    "pow": (lambda torch, x: x**2.5, lambda x: (x, 2.5)),
    "pow of a number": (lambda torch, x: torch.pow(2.0, x), lambda x: (2.0, x)),
    "clamp": (lambda torch, x: x.clamp(0, 1), lambda x: (x, 0, 1)),
    "exp": (lambda torch, x: x.exp(), lambda x: (x,)),
    "isnan": (lambda torch, x: x.isnan(), lambda x: (x,)),
    "clone": (lambda torch, x: x.clone(), lambda x: (x,)),
    "cast": (lambda torch, x: x.double(), lambda x: (x, al.float64)),
    "fill": (lambda torch, x: torch.ops.aten.fill(x, 3.0), lambda x: (x, 3.0)),
    "roll": (lambda torch, x: torch.roll(x, 1), lambda x: (x, (1,))),
}


@pytest.mark.torch
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", NUMBER_CALLS)
def test_strides_of_a_tensor_and_a_number_equal_torch(torch, name):
    """A number is an operand without dimensions, or none at all: that decides ambiguous layouts."""
    theirs, arguments = NUMBER_CALLS[name]
    op = OPS[name.split()[0]]
    rng = random.Random(0)
    for _ in range(200):
        shape, stride = random_layout(rng)
        expected = theirs(torch, torch.ones(4000).as_strided(shape, stride)).stride()
        args = op.bind(arguments(Layout(shape, stride)), {})
        assert op.infer(args).stride == expected, (shape, stride)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["add", "rsub", "maximum"])
def test_strides_of_two_tensors_equal_torch(torch, name):
    rng = random.Random(1)
    twin = getattr(torch.ops.aten, name)
    for _ in range(1000):
        shape, stride = random_layout(rng)
        other = tuple(rng.sample(stride, len(stride)))
        pair = [(shape, stride), (shape, other)]
        expected = twin(*[torch.ones(4000).as_strided(*each) for each in pair]).stride()
        args = tuple(Layout(*each) for each in pair)
        assert OPS[name].infer(OPS[name].bind(args, {})).stride == expected, pair


CONDITIONAL_CALLS = {
    "masked_fill": (lambda torch, c, x: x.masked_fill(c, 1.0), lambda c, x: (x, c, 1.0)),
    "where": (lambda torch, c, x: torch.where(c, x, x), lambda c, x: (c, x, x)),
    "where with other": (lambda torch, c, x: torch.where(c, x, 2.0), lambda c, x: (c, x, 2.0)),
    "where with value": (lambda torch, c, x: torch.where(c, 2.0, x), lambda c, x: (c, 2.0, x)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CONDITIONAL_CALLS)
def test_strides_of_a_choice_equal_torch(torch, name):
    theirs, arguments = CONDITIONAL_CALLS[name]
    op = OPS[name.split()[0]]
    rng = random.Random(2)
    for _ in range(1000):
        shape, stride = random_layout(rng)
        other = tuple(rng.sample(stride, len(stride)))
        mask = torch.ones(4000, dtype=torch.bool).as_strided(shape, other)
        expected = theirs(torch, mask, torch.ones(4000).as_strided(shape, stride)).stride()
        pair = Layout(shape, other, al.bool_), Layout(shape, stride)
        assert op.infer(op.bind(arguments(*pair), {})).stride == expected, (shape, other, stride)


VIEWS = {
    "select_scatter": (lambda x: x.select(0, 0), (0, 0)),
    "slice_scatter": (lambda x: x[:2], (0, 0, 2, 1)),
    "diagonal_scatter": (lambda x: x.diagonal(), (0, 0, 1)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", VIEWS)
def test_strides_of_a_put_view_equal_torch(torch, name):
    """Gaps are kept, repeated elements are not."""
    seen, args = VIEWS[name]
    op = OPS[name]
    rng = random.Random(3)
    for _ in range(1000):
        shape, stride = random_layout(rng)
        x = torch.ones(4000).as_strided(shape, stride)
        if len(shape) < 2 or 0 in shape:
            continue
        src = torch.zeros(seen(x).shape)
        expected = getattr(torch, name)(x, src, *args).stride()
        ours = op.bind((Layout(shape, stride), Layout(src.shape, src.stride()), *args), {})
        assert op.infer(ours).stride == expected, (shape, stride)


# ---------------------------------------------------------------------------------- declarations
def test_a_formula_cannot_mistake_a_parameter_for_the_result():
    """relu_backward had a parameter `result`, which its formula got its own result for."""
    schema = schema_of("f(Tensor self, Tensor result) -> Tensor")
    with pytest.raises(ArgumentError) as caught:
        parse_vjp(schema, {"self": lambda grad, result: grad * result})
    assert str(caught.value) in {
        f"f: {name!r} is the name of a parameter, and in gradient formulas that of a result or its "
        "gradient, expected different names"
        for name in ("result", "result_meta")
    }


def test_derived_ops_keep_keyword_only_parameters():
    for name in ("index_add", "index_add_"):
        assert [p.name for p in OPS[name].schema.parameters if p.keyword_only] == ["alpha"]


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("sub", al.bool_, "sub: dtype is bool, expected one of numbers"),
        ("rsub", al.bool_, "rsub: dtype is bool, expected one of numbers"),
        ("maximum", al.complex64, "maximum: dtype is complex64, expected a real one"),
        ("lt", al.complex64, "lt: dtype is complex64, expected a real one"),
    ],
)
def test_dtypes_without_a_meaning_are_refused(name, dtype, message):
    x = al.ones(2).to(dtype)
    with pytest.raises(DTypeError) as caught:
        call(name, x, x)
    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("neg", al.bool_, "neg: dtype is bool, expected one of numbers"),
        ("abs", al.bool_, "abs: dtype is bool, expected one of numbers"),
        ("sign", al.complex64, "sign: dtype is complex64, expected a real one"),
        ("floor", al.complex64, "floor: dtype is complex64, expected one of real numbers"),
        ("ceil", al.bool_, "ceil: dtype is bool, expected one of real numbers"),
        ("relu", al.bool_, "relu: dtype is bool, expected one of real numbers"),
    ],
)
def test_dtypes_of_one_operand_without_a_meaning_are_refused(name, dtype, message):
    with pytest.raises(DTypeError) as caught:
        call(name, al.ones(2).to(dtype))
    assert message == str(caught.value)


def test_a_window_outside_of_the_memory_is_not_put():
    x = al.ones(2, 3)
    with pytest.raises(ShapeError) as caught:
        call("as_strided_scatter", x, al.ones(2), (2,), (4,), 3)
    assert str(caught.value) == (
        "as_strided_scatter: the window f32[2][4] at 3 leaves the memory of f32[2, 3], expected "
        "one inside it"
    )


# ------------------------------------------------------------------------------------- gradients
def test_the_second_gradient_of_relu_does_not_look_at_the_incoming_gradient():
    """It did: where that was negative, it gave 0."""
    x = al.tensor([1.0, 2.0, -3.0], requires_grad=True)
    incoming = al.tensor([1.0, -1.0, -1.0], requires_grad=True)
    (first,) = grad(x.relu(), x, incoming, create_graph=True)
    (second,) = grad(first.sum(), incoming)
    assert second.tolist() == [1.0, 1.0, 0.0]


def test_the_gradient_of_a_put_window_counts_from_the_gradient_not_its_storage():
    src = al.zeros(2, 2, requires_grad=True)
    put = call("as_strided_scatter", al.zeros(2, 3), src, (2, 2), (3, 1), 1)
    incoming = al.arange(12.0).view(4, 3)[2:]
    (found,) = grad(put, src, incoming)
    assert found.tolist() == [[7.0, 8.0], [10.0, 11.0]]


@pytest.mark.parametrize("laid_out", [lambda g: g.t().clone().t(), lambda g: g + 0])
def test_the_gradient_of_a_put_window_does_not_depend_on_the_layout_of_the_gradient(laid_out):
    x = al.zeros(2, 3, requires_grad=True)
    put = call("as_strided_scatter", x, al.zeros(3), (3,), (1,), 0)
    (found,) = grad(put, x, laid_out(al.ones(2, 3)))
    assert found.tolist() == [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]


def test_the_gradient_of_a_power_of_zero_is_zero_and_not_nan():
    base = al.tensor([0.0, 0.0])
    exponent = al.tensor([2.0, 0.0], requires_grad=True)
    (base**exponent).sum().backward()
    assert exponent.grad.tolist() == [0.0, 0.0]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_gradients_of_extremes_at_nan_and_ties_equal_torch(torch, name):
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]
    a, b = map(np.array, zip(*itertools.product(values, values), strict=True))
    ours = [al.from_numpy(a).requires_grad_(), al.from_numpy(b).requires_grad_()]
    theirs = [torch.from_numpy(a).requires_grad_(), torch.from_numpy(b).requires_grad_()]
    call(name, *ours).sum().backward()
    getattr(torch, name)(*theirs).sum().backward()
    for x, y in zip(theirs, ours, strict=True):
        assert x.grad.tolist() == y.grad.tolist()


@pytest.mark.parametrize("name", ["sign", "abs", "relu"])
def test_nan_has_the_gradient_and_sign_that_pytorch_gives(name):
    x = al.tensor([np.nan, -2.0, 0.0, 2.0], requires_grad=True)
    out = call(name, x)
    (found,) = grad(out.sum(), x)
    expected = {"sign": [0, 0, 0, 0], "abs": [0, -1, 0, 1], "relu": [1, 0, 0, 1]}
    assert found.tolist() == expected[name]
    assert name != "sign" or out.tolist() == [0, -1, 0, 1]


NEUTRAL = [name for name, op in OPS.items() if isinstance(op, PureOp) and op.neutral is not None]
PLACES = [2, 4, 5]


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize(
    "dtype", [al.bool, al.uint8, al.int64, al.float16, al.bfloat16, al.float64, al.complex64]
)
def test_an_element_that_changes_nothing_changes_nothing(name, dtype):
    """Of a reduction, a scan or a softmax: in front, in between, behind, and twice in a row."""
    kept = al.tensor([[1.0, 3.0, 2.0], [2.0, 0.0, 1.0]]).to(dtype)
    if dtype.is_complex:
        kept = kept * (1 + 0.5j)
    schema = OPS[name].schema
    dims = {each.name: each for each in schema.parameters}.get("dim")
    args = () if dims is None else ((1,) if dims.type.text.startswith("int[]") else 1,)
    try:
        expected = call(name, kept, *args)
    except DTypeError:
        return
    spread, mask = kept.new_zeros((2, 7)), al.zeros(7, dtype=al.bool)
    spread[:, PLACES], mask[PLACES] = kept, True
    found = call(name, al.where(mask, spread, OPS[name].neutral(dtype)), *args)
    if found.shape == spread.shape:
        found = found[:, PLACES]
    assert expected.shape == found.shape
    np.testing.assert_allclose(
        expected.to(al.complex128).numpy(), found.to(al.complex128).numpy(), rtol=1e-6
    )
