"""Ops of the user's own: declared once, they are ops like any other."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir import scalar
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.testing.laws.ops.table import laws_of
from aotlite.testing.laws.samples.sample import Sample, array, flipped, gapped
from tests.helpers.own_ops import evens, softclip, taken_out


@pytest.fixture
def registered():
    """`register_op`, whose ops are taken out of the table afterwards."""
    with taken_out():
        yield al.register_op


def windowed_max(register):
    return register(
        "my_row_max(Tensor self) -> Tensor",
        meta=lambda self: tensor_meta(self.shape[:1], None, self.dtype, self.device),
        kernel=lambda xp, meta, a: xp.max(a, axis=1),
        vjp={
            "self": lambda grad, self, result: (
                grad.unsqueeze(1) * (self == result.unsqueeze(1)).to(self.dtype)
            )
        },
        cost="reduction",
    )


SAMPLES = [
    Sample((array((2, 3)),), smooth=True),
    Sample((flipped(array((2, 3))),), smooth=True),
    Sample((gapped(array((3, 2), "float32")),)),
]


@pytest.mark.parametrize("make", [softclip, windowed_max, evens])
def test_an_own_op_obeys_the_laws(registered, make):
    make(registered)
    name = next(name for name in reversed(OPS) if not name.endswith("_"))
    laws = laws_of(OPS[name])
    assert len(laws) > 5
    for law in laws:
        law(OPS[name], SAMPLES)


def test_an_own_op_is_function_method_in_place_and_out(registered):
    clip = softclip(registered)
    x = al.tensor([0.5, 3.0])
    expected = np.tanh(np.float32([0.25, 1.5])) * np.float32(2)
    for got in (clip(x, 2.0), x.my_softclip(2.0), al.my_softclip(x, at=2.0)):
        np.testing.assert_array_equal(expected, got.numpy())
    out = al.empty(2)
    assert clip(x, 2.0, out=out) is out
    np.testing.assert_array_equal(expected, out.numpy())
    assert x.my_softclip_(2.0) is x
    np.testing.assert_array_equal(expected, x.numpy())
    assert 1 == x.version


def test_compiled_code_and_its_graphs_have_the_own_op(registered):
    softclip(registered)
    windowed_max(registered)
    evens(registered)

    def program(x):
        x.my_evens().mul_(2)
        return x.my_softclip(2.0).my_row_max()

    x, y = (al.tensor(array((3, 2)), requires_grad=True) for _ in range(2))
    compiled = al.compile(lambda x: program(x * 1))
    a, b = compiled(x), program(y * 1)
    assert a.tolist() == b.tolist()
    a.sum().backward()
    b.sum().backward()
    assert x.grad.tolist() == y.grad.tolist()
    printed = al.capture(program)(al.zeros(3, 2)).print_readable()
    for name in ("my_evens", "my_softclip", "my_row_max"):
        assert name in printed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "add(Tensor self) -> Tensor"}, "register_op: the name is 'add', expected one"),
        ({"schema": "shape(Tensor self) -> Tensor"}, "the name is 'shape', expected one that no"),
        ({"schema": "my_op Tensor self"}, r"schema: column 7 is 'T', expected '\('"),
        ({"kernel": None}, "the parts of my_softclip are scalar, expected kernel and scalar"),
        ({"kernel": 3}, "argument 'kernel' is 3, expected a function"),
        (
            {"scalar": None},
            "the parts of my_softclip are kernel, expected kernel and meta",
        ),
        ({"put": print}, "are kernel and put and scalar, expected kernel and scalar"),
        ({"vjp": {"otter": print}}, "is for 'otter', expected one of self"),
        (
            {"vjp": {"self": lambda grad, otter: grad}},
            "my_softclip: a gradient formula has the parameter 'otter', expected one of",
        ),
        ({"result": "complex"}, "argument 'result' is 'complex', expected one of same, float"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused_and_leaves_no_trace(
    registered, changes, message
):
    before = list(OPS)
    with pytest.raises(al.ArgumentError, match=message):
        softclip(registered, **changes)
    assert before == list(OPS)


def test_a_cost_class_that_does_not_exist_is_refused(registered):
    with pytest.raises(al.ArgumentError, match="argument 'cost' is 'free', expected one of pointw"):
        registered("my_op(Tensor self) -> Tensor", meta=print, kernel=print, vjp=None, cost="free")


def test_an_op_whose_results_are_several_has_no_in_place_form(registered):
    before = list(OPS)
    with pytest.raises(al.ArgumentError, match="'inplace' is True for my_two, expected it of an"):
        registered(
            "my_two(Tensor self) -> (Tensor a, Tensor b)",
            meta=print,
            kernel=print,
            vjp=None,
            inplace=True,
        )
    assert before == list(OPS)


def test_a_name_is_given_once(registered):
    softclip(registered)
    with pytest.raises(al.ArgumentError, match="the name is 'my_softclip', expected one"):
        softclip(registered)


def _own(register, **parts):
    declared = {
        "schema": "my_op(Tensor self) -> Tensor",
        "meta": lambda self: self,
        "kernel": lambda xp, meta, a: a + 0,
        "vjp": None,
    }
    return register(**{**declared, **parts})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"meta": lambda self: 3}, "my_op: its 'meta' gives 3, expected a TensorMeta"),
        ({"meta": lambda self: (self, self)}, "my_op: its 'meta' gives .*, expected a TensorMeta"),
        (
            {"kernel": lambda xp, meta, a: a[:1]},
            r"my_op: its kernel gives float32\[1\], expected f32\[2\] as its 'meta'",
        ),
        (
            {"kernel": lambda xp, meta, a: a.astype("float64")},
            r"my_op: its kernel gives float64\[2\], expected f32\[2\]",
        ),
        ({"kernel": lambda xp, meta, a: 1.0}, "my_op: its kernel gives float, expected f32"),
        (
            {
                "schema": "my_op(Tensor(a) self) -> Tensor(a)",
                "meta": lambda self: self,
                "kernel": None,
                "put": lambda parent, value: value,
            },
            "my_op: its 'meta' gives .*, expected a TensorMeta and the start of the view",
        ),
    ],
)
def test_parts_that_give_something_else_are_told_at_the_first_call(registered, parts, message):
    own = _own(registered, **parts)
    with pytest.raises(al.ArgumentError, match=message):
        own(al.ones(2))


@pytest.mark.parametrize(
    "expression",
    [
        lambda a: a if a > 0 else -a,
        lambda a: max(a, 0),
        lambda a: scalar.where(0 < a < 2, a, 0),
        lambda a: (a > 0) and a,
    ],
)
def test_a_branch_on_an_element_is_told_when_kernels_are_made(registered, expression):
    """It is no reason to run the op's kernel in place of loops."""
    op = registered(
        "my_branch(Tensor self) -> Tensor",
        kernel=lambda xp, a: xp.abs(a),
        scalar=expression,
        vjp=None,
        result="float",
    )
    with pytest.raises(al.BackendError) as caught:
        al.compile(op, backend="loops")(al.ones(2))
    assert "expected scalar.where(condition, then, other)" in caught.value.__notes__[0]


def test_an_expression_that_is_none_is_told_when_kernels_are_made(registered):
    """Of None NumPy makes a nan."""
    op = registered(
        "my_nothing(Tensor self) -> Tensor",
        kernel=lambda xp, a: a + 1,
        scalar=lambda a: None,
        vjp=None,
        result="float",
    )
    with pytest.raises(al.BackendError) as caught:
        al.compile(op, backend="loops")(al.ones(2))
    message = "my_nothing: its 'scalar' gives None, expected a Scalar or a number"
    assert message == caught.value.__notes__[0]
