"""`out=` of ops and composites (TEN-7, TEN-9, TEN-10)."""

import numpy as np
import pytest

import aotlite as al


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("exp", ([0.5, 1.0],)),
        ("add", ([0.5, 1.0], [1.0, 2.0])),
        ("sum", ([[0.5, 1.0], [2.0, 3.0]], 1)),
        ("matmul", ([[0.5, 1.0], [2.0, 3.0]], [1.0, 2.0])),
        ("flatten", ([[0.5, 1.0]],)),
        ("zeros", (2, 3)),
        ("empty", (2, 3)),
    ],
)
def test_out_holds_the_result_and_is_returned(name, args):
    tensors = [al.tensor(a) if isinstance(a, list) else a for a in args]
    expected = getattr(al, name)(*tensors)
    out = al.full(expected.shape, 7.0)  # `empty` holds zeros, as some of the results do
    assert getattr(al, name)(*tensors, out=out) is out
    if name != "empty":
        np.testing.assert_array_equal(expected.numpy(), out.numpy())
    assert 1 == out.version


@pytest.mark.parametrize("name", ["cat", "concat", "stack"])
def test_out_holds_what_is_joined(name):
    tensors = [al.tensor([0.5, 1.0]), al.tensor([2.0, 3.0])]
    expected = getattr(al, name)(tensors)
    out = al.empty(*expected.shape)
    assert getattr(al, name)(tensors, out=out) is out
    assert expected.tolist() == out.tolist()


def test_where_fills_out_and_finds_places():
    condition = al.tensor([True, False])
    out = al.zeros(2)
    assert al.where(condition, input=2.0, other=al.ones(2), out=out) is out
    assert [2, 1] == out.tolist()
    (places,) = al.where(condition)
    assert [0] == places.tolist()
    with pytest.raises(al.ArgumentError, match="^where: argument 'condition' is True, expected"):
        al.where(True)


def test_several_results_go_to_several_destinations():
    x = al.tensor([[3.0, 1.0], [0.0, 2.0]])
    values, indices = al.empty(2), al.empty(2, dtype=al.int64)
    found = al.max(x, 1, out=(values, indices))
    assert found[0] is values
    assert found[1] is indices
    assert ([3, 2], [0, 1]) == (values.tolist(), indices.tolist())


def test_a_destination_of_a_wider_dtype_or_other_strides_is_cast_into():
    out = al.zeros(3, 2, dtype=al.float64).t()
    al.add(al.ones(2, 3), 1, out=out)
    assert [[2, 2, 2], [2, 2, 2]] == out.tolist()
    assert (1, 2) == out.stride()


def test_an_empty_destination_takes_the_results_shape():
    out = al.empty(0)
    al.add(al.ones(2, 3), 1, out=out)
    assert (2, 3) == out.shape


def test_a_destination_may_be_an_operand_of_the_same_place():
    x = al.tensor([1.0, 2.0])
    assert al.mul(x, x, out=x) is x
    assert [1, 4] == x.tolist()


BAD = {
    "shape": (
        lambda out: al.exp(al.ones(3), out=out),
        lambda: al.zeros(2),
        al.ShapeError,
        r"exp: argument 'out' has shape \(2,\), expected \(3,\)",
    ),
    "dtype": (
        lambda out: al.exp(al.ones(2), out=out),
        lambda: al.zeros(2, dtype=al.int64),
        al.DTypeError,
        "exp: argument 'out' has dtype int64, expected one that takes a result of float32",
    ),
    "kind": (
        lambda out: al.exp(al.ones(2), out="x"),
        lambda: al.zeros(2),
        al.ArgumentError,
        "exp: argument 'out' is 'x', expected a tensor",
    ),
    "number": (
        lambda out: al.exp(al.ones(2), out=(out, out)),
        lambda: al.zeros(2),
        al.ArgumentError,
        "exp: argument 'out' has 2 tensors, expected 1",
    ),
    "overlaps itself": (
        lambda out: al.exp(al.ones(2), out=out.expand(2)),
        lambda: al.zeros(1),
        al.AliasError,
        "exp: the destination .* overlaps itself, expected one memory place for each element",
    ),
    "overlaps an operand": (
        lambda out: al.exp(out[:2], out=out[1:]),
        lambda: al.zeros(3),
        al.AliasError,
        "exp: an operand .* overlaps the destination .* in part, expected the same memory",
    ),
    "the same twice": (
        lambda out: al.aminmax(al.ones(2, 2), dim=1, out=(out, out)),
        lambda: al.zeros(2),
        al.AliasError,
        "aminmax: two tensors of argument 'out' share memory, expected one place for each result",
    ),
    "overlap each other": (
        lambda out: al.aminmax(al.ones(2, 2), dim=1, out=(out[:2], out[1:])),
        lambda: al.zeros(3),
        al.AliasError,
        "aminmax: two tensors of argument 'out' share memory",
    ),
    "history": (
        lambda out: al.exp(al.ones(2, requires_grad=True), out=out),
        lambda: al.zeros(2),
        al.AutogradError,
        "exp: a tensor requires grad and 'out' is given, expected one or the other",
    ),
    "history of out": (
        lambda out: al.exp(al.ones(2), out=out.requires_grad_()),
        lambda: al.zeros(2),
        al.AutogradError,
        "exp: a tensor requires grad and 'out' is given",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_destination_is_refused_and_stays_as_it_is(case):
    call, make, kind, message = BAD[case]
    out = make()
    with pytest.raises(kind, match=message):
        call(out)
    assert {0.0} == set(out.detach().flatten().tolist())
    assert 0 == out.version


def test_a_compiled_function_writes_to_its_destination():
    def program(x, out):
        return al.exp(x, out=out)

    x, out, eager = al.tensor([1.0, 2.0]), al.zeros(2), al.zeros(2)
    compiled = al.compile(program)
    assert compiled(x, out) is out
    program(x, eager)
    assert (eager.tolist(), eager.version) == (out.tolist(), out.version)


@pytest.mark.torch
def test_what_out_takes_is_what_it_takes_in_torch(torch):
    for result in ("float32", "float64", "int64", "bool", "complex64"):
        for target in ("float32", "int64", "int32", "bool", "complex64"):
            ours = _takes(al, result, target, al.AotliteError)
            assert _takes(torch, result, target, RuntimeError) == ours, (result, target)


def _takes(library, result, target, error):
    x = library.ones(2, dtype=_dtype(library, result))
    try:
        library.mul(x, x, out=library.zeros(2, dtype=_dtype(library, target)))
    except error:
        return False
    return True


def _dtype(library, name):
    return getattr(library, "bool_" if name == "bool" and library is al else name)


def test_no_destination_is_written_where_another_is_bad():
    """OPS-11: every one is checked first."""
    values, x = al.zeros(2), al.tensor([[3.0, 1.0], [0.0, 2.0]])
    for indices, kind in (
        (al.zeros(3, dtype=al.int64), al.ShapeError),
        (al.zeros(2, dtype=al.bool_), al.DTypeError),
    ):
        with pytest.raises(kind, match="^max: argument 'out' has "):
            al.max(x, 1, out=(values, indices))
        assert ([0, 0], 0, 0) == (values.tolist(), values.version, indices.version)


def _wrappers():
    from aotlite.sharding import Mesh, Shard, ShardedTensor
    from aotlite.subclasses import MaskedTensor, QuantizedTensor, TwoTensor

    return {
        "two": (TwoTensor(al.ones(2), al.zeros(2)), "a=tensor([2., 2.]), b=tensor([2., 2.])"),
        "masked": (MaskedTensor(al.ones(2), al.tensor([True, False])), "data=tensor([2., 1.])"),
        "quantized": (
            QuantizedTensor(al.ones(2).to(al.int8), al.tensor(1.0)),
            "values=tensor([2, 2], dtype=int8)",
        ),
        "sharded": (
            ShardedTensor.from_dense(al.ones(2), Mesh(2), Shard(0)),
            "rank_0=tensor([2.]), rank_1=tensor([2.])",
        ),
    }


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", _wrappers())
def test_a_wrapper_may_be_a_destination(name, compiled):
    """It is written as by `copy_`."""
    out, expected = _wrappers()[name]
    x = al.ones(2)

    def function(out):
        return al.add(x, x, out=out)

    assert (al.compile(function) if compiled else function)(out) is out
    assert expected in repr(out)
    assert 1 == out.version


def test_a_wrapper_as_a_destination_of_another_size_is_refused():
    """SUB-20."""
    from aotlite.subclasses import TwoTensor

    for shape in ((3,), (0,)):
        out = TwoTensor(al.ones(shape), al.ones(shape))
        with pytest.raises((al.ShapeError, al.SubclassError), match="^add: .* expected"):
            al.add(al.ones(2), al.ones(2), out=out)
        assert (shape, 0) == (out.shape, out.version)


def test_what_a_plain_destination_cannot_take_is_not_half_written():
    """SUB-15: nor is the other destination."""
    from aotlite.subclasses import TwoTensor

    out, x = al.zeros(2), TwoTensor(al.ones(2), al.ones(2))
    with pytest.raises(al.SubclassError, match="the tensor that is written is a Tensor, expected"):
        al.add(x, x, out=out)
    assert (0, [0.0, 0.0]) == (out.version, out.tolist())


def test_wrappers_that_share_a_part_are_no_two_destinations():
    from aotlite.subclasses import TwoTensor

    part = al.zeros(2)
    outs = TwoTensor(part, al.zeros(2)), TwoTensor(al.zeros(2), part)
    with pytest.raises(al.AliasError, match="two tensors of argument 'out' share memory"):
        al.aminmax(al.ones(3, 2), dim=0, out=outs)
    assert (0, 0) == (part.version, outs[0].version)


def test_a_hidden_operand_beside_a_destination_is_captured():
    """TEN-7 is asked of what stands for it."""
    x = al.arange(4.0)
    assert [2.0] * 2 == al.compile(lambda out: al.add(al.ones(2), 1, out=out))(x[:2]).tolist()
    with pytest.raises(al.AliasError, match="overlaps the destination"):
        al.compile(lambda out: al.add(x[:3], 1, out=out))(x[1:])
    assert [2.0, 2.0, 2.0, 3.0] == x.tolist()
