"""Sharded tensors: ranks that cheat are caught, bad input is refused, placements hold."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import SubclassError
from aotlite.ir.op import OPS, PureOp
from aotlite.sharding import (
    CommDebugMode,
    Mesh,
    Partial,
    Replicate,
    Shard,
    ShardedTensor,
    autograd_functions,
)
from aotlite.sharding import dispatch as sharded_dispatch
from aotlite.sharding.placements import PlacedView
from aotlite.subclasses import MaskedTensor, QuantizedTensor, TwoTensor, flatten, unflatten
from aotlite.testing.sharding import PoisonedMesh, guarded
from tests.helpers.own_ops import taken_out

MESH = PoisonedMesh(2)


def sharded(placement: Any, mesh: Any = MESH, shape: Any = (4, 6)) -> Any:
    return ShardedTensor.from_dense(al.arange(float(np.prod(shape))).view(shape), mesh, placement)


# --------------------------------------------------------------------------- cheats (SHD-1, SHD-2)
class Cheat(ShardedTensor):
    """A class whose `add`, `mul` or `neg` is wrong in a way that the right values do not show."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        x, mesh = args[0], args[0].mesh
        if func is al.ops.neg:  # reads its neighbor, where copies are equal
            parts = mesh.each(lambda r: -x.parts[(r + 1) % mesh.size], [x.parts])
            return cls.of(mesh, x.placement, parts, x.meta)
        if func is al.ops.abs:  # computes once, for everybody
            return cls.of(mesh, x.placement, [abs(x.parts[0])] * mesh.size, x.meta)
        if func is al.ops.exp:  # copies that are not equal
            parts = [part.exp() + rank for rank, part in enumerate(x.parts)]
            return cls.of(mesh, x.placement, parts, x.meta)
        return super().__tensor_dispatch__(func, types, args, kwargs)


def test_a_rank_that_reads_another_computes_nan() -> None:
    """On a plain mesh nothing would show: replicated copies are equal."""
    dense = al.ones(3)
    plain = Cheat.from_dense(dense, Mesh(2), Replicate())
    assert (-plain).full_tensor().tolist() == [-1.0, -1.0, -1.0]
    poisoned = -Cheat.from_dense(dense, MESH, Replicate())
    assert np.isnan(poisoned.to_local(0).numpy()).all()
    assert np.isnan(poisoned.to_local(1).numpy()).all()


def test_a_class_that_computes_outside_of_ranks_is_caught() -> None:
    """Nothing is poisoned there: guarded parts know whose they are."""

    class Adds(ShardedTensor):
        @classmethod
        def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            x = args[0]
            if func is al.ops.sum:
                total = x.parts[0].sum() + x.parts[1].sum()
                parts = x.mesh.each(lambda rank: total.clone(), [])
                return cls.of(x.mesh, Replicate(), parts)
            return super().__tensor_dispatch__(func, types, args, kwargs)

    x: Any = Adds.from_dense(al.ones(4), MESH, Shard(0))
    assert x.sum().full_tensor().item() == 4
    with pytest.raises(AssertionError, match=r"add: parts of ranks \[0, 1\], computed by None"):
        guarded(x).sum()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (abs, "ranks 0 and 1 hold the same memory"),
        (lambda x: x.exp(), "rank 1 holds another value than rank 0"),
    ],
)
def test_copies_that_are_shared_or_unequal_are_caught(run: Any, message: str) -> None:
    run(Cheat.from_dense(al.ones(3), Mesh(2), Replicate()))
    with pytest.raises(AssertionError, match=message):
        run(Cheat.from_dense(al.ones(3), MESH, Replicate()))


def test_poison_is_gone_afterwards_also_after_an_error() -> None:
    x = sharded(Shard(0))
    before = [part.tolist() for part in x.parts]
    with pytest.raises(ZeroDivisionError):
        MESH.each(lambda rank: 1 // 0, [x.parts])
    assert [part.tolist() for part in x.parts] == before
    ints = ShardedTensor.from_dense(al.arange(4), MESH, Shard(0))
    assert MESH.each(lambda rank: ints.to_local(1).tolist(), [ints.parts])[0] == [-1, -1]


@pytest.mark.parametrize("planted", ["sum of one rank", "taken for linear", "part of another"])
def test_planted_faults_are_caught_by_the_op_table(planted: str, monkeypatch: Any) -> None:
    """What the tests of the table would not see, they would not test."""
    from tests.sharding import test_op_table

    if planted == "sum of one rank":
        monkeypatch.setattr(
            sharded_dispatch, "redistributed", lambda mesh, parts, source, target: parts
        )
        name = "mul"
    elif planted == "taken for linear":  # parts of sums are taken for the whole
        monkeypatch.setattr(
            "aotlite.sharding.strategy.linear_groups",
            lambda op, args: iter([(True,) * len(op.operands(args))]),
        )
        name = "exp"
    else:
        cut = autograd_functions.cut
        monkeypatch.setattr(
            autograd_functions, "cut", lambda x, dim, rank, ranks: cut(x, dim, 0, ranks)
        )
        name = "exp"
    with pytest.raises((AssertionError, al.AotliteError)):
        test_op_table.test_every_op_on_parts_is_the_op_on_the_whole(name, guard=False)


# -------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mesh(0), "Mesh: size is 0, expected a number of ranks, at least 1"),
        (lambda: Mesh(True), "Mesh: size is True, expected a number of ranks"),
        (
            lambda: sharded(Shard(2)),
            r"ShardedTensor: placement is Shard\(dim=2\), expected a dimension of shape \(4, 6\)",
        ),
        (
            lambda: sharded(Shard(0), Mesh(3)),
            r"placement is Shard\(dim=0\), expected a dimension whose size is a multiple of 3, "
            r"in \(4, 6\)",
        ),
        (
            lambda: sharded(Partial("mean")),
            r"placement is Partial\(reduce_op='mean'\), expected a reduction of \['sum', 'avg', ",
        ),
        (
            lambda: ShardedTensor.from_dense(al.ones(2).bool(), MESH, Partial()),
            r"placement is Partial\(reduce_op='sum'\), expected one that is formed of bool",
        ),
        (
            lambda: ShardedTensor([al.ones(2).long()] * 2, Mesh(2), Partial("avg")),
            r"placement is Partial\(reduce_op='avg'\), expected one that is formed of int64",
        ),
        (lambda: sharded("rows"), r"placement is 'rows', expected Shard\(dim\), Replicate\(\) or"),
        (lambda: sharded(Shard), r"placement is <class .*Shard'>, expected Shard\(dim\)"),
        (lambda: sharded(Shard(0), 2), "ShardedTensor: mesh is 2, expected a Mesh"),
        (
            lambda: ShardedTensor([al.ones(2)], MESH, Shard(0)),
            r"parts is 1 tensors, expected one for each rank of PoisonedMesh\(size=2",
        ),
        (
            lambda: ShardedTensor([al.ones(2), al.ones(3)], MESH, Shard(0)),
            r"rank_1 is f32\[3\], expected shape, dtype and device of rank_0, f32\[2\]",
        ),
        (
            lambda: ShardedTensor([al.ones(2), al.ones(2).long()], MESH, Replicate()),
            r"rank_1 is i64\[2\], expected shape, dtype and device of rank_0",
        ),
        (lambda: ShardedTensor([al.ones(2), 3], MESH, Shard(0)), "rank_1 is a int, expected a ten"),  # type: ignore[list-item]
        (
            lambda: ShardedTensor([al.tensor(1.0)] * 2, Mesh(2), Shard(0)),
            r"placement is Shard\(dim=0\), expected a dimension of parts of shape \(\)",
        ),
        (
            lambda: ShardedTensor([al.ones(2)] * 2, Mesh(2), Replicate()),
            "rank_1 is a tensor that shares memory with rank_0, expected memory of its own",
        ),
        (
            lambda: ShardedTensor([*al.ones(4).as_strided((2, 3), (1, 1))], Mesh(2), Shard(0)),
            "rank_1 is a tensor that shares memory with rank_0, expected memory of its own",
        ),
        (
            lambda: al.compile(lambda x: ShardedTensor([x, x[:]], Mesh(2), Shard(0)))(al.ones(2)),
            "rank_1 is a tensor that shares memory with rank_0, expected memory of its own",
        ),
        (
            lambda: ShardedTensor.from_dense(sharded(Shard(0)), MESH, Shard(1)),
            r"tensor is a ShardedTensor, expected a dense tensor, or redistribute\(\)",
        ),
        (
            lambda: sharded(Shard(0)) + sharded(Shard(0), Mesh(2)),
            "add: operands of ShardedTensor have mesh PoisonedMesh.* and Mesh.*, expected one",
        ),
    ],
)
def test_bad_input_is_named(make: Any, message: str) -> None:
    with pytest.raises(SubclassError, match=message) as caught:
        make()
    assert "SHD-" in "".join(caught.value.__notes__)


def test_a_pair_of_sharded_tensors_is_asked_before_the_sharded_one() -> None:
    """And where it does not know the other, nobody makes parts of it."""
    x = sharded(Shard(0))
    pair = TwoTensor(x, x.clone())
    assert type((pair + pair).a) is ShardedTensor
    with pytest.raises(SubclassError, match="TwoTensor and ShardedTensor give NotImplemented"):
        pair + x


# ------------------------------------------------------------------------------------- placements
@pytest.mark.parametrize("target", [Replicate(), Shard(0), Shard(1), Shard(-1), Partial("max")])
@pytest.mark.parametrize(
    "source", [Replicate(), Shard(0), Shard(1), Partial(), Partial("avg"), Partial("product")]
)
def test_every_placement_leads_to_every_other(source: Any, target: Any) -> None:
    """SHD-4, SHD-5."""
    x = sharded(source)
    y = x.redistribute(target)
    assert y.placement == (Shard(1) if target == Shard(-1) else target)
    assert y.full_tensor().tolist() == al.arange(24.0).view(4, 6).tolist()
    if y is x:
        return
    for a in x.parts:
        assert all(a.storage is not b.storage for b in y.parts)


def test_flat_and_back_is_the_same_tensor() -> None:
    """SUB-1, of a window too; the spec is plain data."""
    rows = sharded(Shard(0))
    for x in (sharded(Shard(1)), sharded(Partial()), rows[1], sharded(Replicate()).t()):
        names, spec = flatten(x)
        inner = {name: getattr(x, name) for name in names}
        twin = unflatten(type(x), inner, spec, x.shape, x.stride())
        assert twin.placement == x.placement
        assert hash(spec) == hash(copy.deepcopy(spec))
        assert twin.full_tensor().tolist() == x.full_tensor().tolist()
    deep = copy.deepcopy(sharded(Shard(0)))
    assert deep.zero_().to_local(1).sum().item() == 0


def test_what_ops_redistribute_is_listed() -> None:
    """SHD-10."""
    x, y = sharded(Shard(0)), sharded(Shard(1))
    with CommDebugMode() as outer:
        with CommDebugMode() as comm:
            x + y
            x.sort(0)
        x.sum().full_tensor()
    assert comm.implicit == [
        "add: Shard(dim=1) -> Shard(dim=0) of f32[4, 6]",
        "sort: Shard(dim=0) -> Replicate() of f32[4, 6]",
    ]
    assert comm.get_comm_counts() == {"all_to_all": 1, "all_gather": 1}
    assert outer.get_comm_counts() == {"all_reduce": 1}
    assert comm.get_total_counts() == 2


def test_draws_are_one_for_all_ranks_and_those_of_eager() -> None:
    """SHD-12."""
    dense = al.full((4, 6), 0.5)
    for placement in (Replicate(), Shard(1), Partial()):
        al.manual_seed(3)
        expected = (al.bernoulli(dense).tolist(), al.rand(2).tolist())
        al.manual_seed(3)
        x = ShardedTensor.from_dense(dense, MESH, placement)
        drawn = al.bernoulli(x)
        assert drawn.placement == Replicate()
        assert (drawn.full_tensor().tolist(), al.rand(2).tolist()) == expected
    found, dense = (sharded(Shard(0)) > 3).nonzero(), al.arange(24.0).view(4, 6)
    assert found.full_tensor().tolist() == (dense > 3).nonzero().tolist()


def test_effects_happen_once(capsys: Any) -> None:
    """SHD-12: also where the function is compiled."""

    def function(x: Any) -> Any:
        al.effects.print("x is {}", x)
        return x * 2

    for each in (function, al.compile(function)):
        each(ShardedTensor.from_dense(al.arange(4.0), MESH, Shard(0)))
        assert capsys.readouterr().out == "x is [0. 1. 2. 3.]\n"


def test_a_dense_tensor_takes_the_whole_of_a_sharded_one() -> None:
    """SHD-11."""
    dense = al.ones(4, 6)
    assert dense.add_(sharded(Shard(0))) is dense
    assert type(dense) is al.Tensor
    assert dense.tolist() == (al.arange(24.0).view(4, 6) + 1).tolist()


# --------------------------------------------------------------------------------------- gradients
def test_gradients_have_the_placement_of_what_they_are_of() -> None:
    """SHD-13: data parallel, the weight's gradient is a sum over ranks, which is formed at once."""
    weight = ShardedTensor.from_dense(al.ones(6, 2), MESH, Replicate()).requires_grad_()
    (sharded(Shard(0)) @ weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.placement == Replicate()
    assert weight.grad.rank_1.tolist() == weight.grad.full_tensor().tolist()
    columns = ShardedTensor.from_dense(al.ones(6, 2), MESH, Shard(1)).requires_grad_()
    (al.ones(3, 6) @ columns).square().sum().backward()
    assert columns.grad is not None
    assert columns.grad.placement == Shard(1)


def test_a_dense_leaf_among_sharded_tensors_has_a_dense_gradient() -> None:
    """SHD-13."""
    leaf = al.ones(6).requires_grad_()
    (sharded(Shard(0)) * leaf).sum().backward()
    assert type(leaf.grad) is al.Tensor
    expected = (al.ones(6) - al.arange(24.0).view(4, 6).sum(0) * 0.5).tolist()
    al.optim.SGD([leaf], lr=0.5).step()
    assert type(leaf) is al.Tensor
    assert leaf.tolist() == expected


def test_gradients_of_moving_are_those_of_the_whole() -> None:
    """SHD-13: no rank's copy is counted twice."""
    for first in (Replicate(), Shard(0), Partial(), Partial("max")):
        for then in (Replicate(), Shard(1), Partial()):
            dense = al.arange(8.0).view(2, 4).requires_grad_()
            x = ShardedTensor.from_dense(dense, MESH, first)
            y = x.redistribute(then).full_tensor()
            (y * al.arange(8.0).view(2, 4)).sum().backward()
            assert dense.grad is not None
            assert type(dense.grad) is al.Tensor
            assert dense.grad.tolist() == al.arange(8.0).view(2, 4).tolist()


@pytest.mark.rules("TAN-5", "TAN-6")
def test_tangents_are_coerced() -> None:
    """SHD-14; TAN-5, TAN-6."""
    for made in (sharded(Partial()), sharded(Shard(0))[1]):
        assert made.__coerce_tangent_metadata__().placement == Replicate()
    x = sharded(Shard(0))
    assert x.__coerce_tangent_metadata__() is x
    spec = flatten(sharded(Shard(1)))[1]
    coerced = x.__coerce_same_metadata_as_tangent__(spec, ShardedTensor)
    assert coerced is not None
    assert flatten(coerced)[1] == spec
    assert coerced.full_tensor().tolist() == x.full_tensor().tolist()
    assert x.__coerce_same_metadata_as_tangent__((Mesh(3), Shard(0))) is None
    assert x.__coerce_same_metadata_as_tangent__(spec, TwoTensor) is None
    window = flatten(sharded(Shard(0))[1])[1]
    assert isinstance(window[1], PlacedView)
    assert x.__coerce_same_metadata_as_tangent__(window) is None


@pytest.mark.rules("TAN-5")
def test_a_tangent_of_another_placement_reaches_a_compiled_backward() -> None:
    """TAN-5: redistributed, and the gradient is eager's."""
    found = []
    for function in (lambda x: x * x, al.compile(lambda x: x * x)):
        x = sharded(Shard(0)).requires_grad_()
        function(x).backward(sharded(Replicate()))
        assert x.grad is not None
        found.append(x.grad.full_tensor().tolist())
    assert found[0] == found[1]


# --------------------------------------------------------------------------------------- nesting
def pair(dense: Any) -> TwoTensor:
    return TwoTensor(dense, dense * 10)


def quantized(dense: Any) -> QuantizedTensor:
    return QuantizedTensor.quantize(dense, al.tensor(0.5))


def by_rows(dense: Any) -> QuantizedTensor:
    return QuantizedTensor.from_dense(dense, axis=0)


NESTED = {
    "pair": (pair, lambda t: al.stack([t.a, t.b])),
    "quantized": (quantized, lambda t: t.decode()),
    "quantized by rows": (by_rows, lambda t: t.decode()),
}
PROGRAMS: dict[str, Any] = {
    "matmul": lambda x: x @ al.arange(12.0).view(6, 2),
    "view": lambda x: x.t()[1:3] * 2,
    "sum": lambda x: x.sum(0) + x.sum(),
    "softmax": lambda x: x.softmax(-1),
    "write": lambda x: x.clone().mul_(2),
    "write through a window": lambda x: [y := x.clone(), y[0].add_(1), y][-1] * 1,
    "cat": lambda x: al.cat([x, x], 1),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1)], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_sharded_of_a_wrapper_means_what_the_wrapper_means(
    name: str, placement: Any, program: str
) -> None:
    """SUB-9: parts are wrappers of the class."""
    make, meaning = NESTED[name]
    inner = make(al.arange(24.0).view(4, 6) - 7)
    x = ShardedTensor.from_dense(inner, MESH, placement)
    assert all(type(part) is type(inner) for part in x.parts)
    run = PROGRAMS[program]
    expected, found = run(inner), run(x)
    shown = [
        meaning(each) if type(each) is type(inner) else each
        for each in (expected, found.full_tensor())
    ]
    assert np.allclose(shown[0].numpy(), shown[1].numpy(), rtol=1e-6)


def test_a_pair_of_sharded_is_a_sharded_of_pairs() -> None:
    """Nesting commutes."""
    dense = al.arange(24.0).view(4, 6)
    one = TwoTensor(
        ShardedTensor.from_dense(dense, MESH, Shard(0)),
        ShardedTensor.from_dense(dense * 10, MESH, Shard(0)),
    )
    other = ShardedTensor.from_dense(pair(dense), MESH, Shard(0))
    for run in (lambda x: (x * x).sum(0), lambda x: x[1].mul_(3), lambda x: x.view(24) + 1):
        a, b = run(one), run(other).full_tensor()
        assert a.a.full_tensor().tolist() == b.a.tolist()
        assert a.b.full_tensor().tolist() == b.b.tolist()


def test_masked_parts_are_masked_on_every_rank() -> None:
    dense = al.arange(24.0).view(4, 6)
    mask = dense % 3 == 0
    x = ShardedTensor.from_dense(MaskedTensor(dense, mask), MESH, Shard(0))
    assert all(type(part) is MaskedTensor for part in x.parts)
    expected = MaskedTensor(dense, mask).sum(1)
    assert x.sum(1).placement == Shard(0)
    for part, of in zip(x.sum(1).parts, (slice(0, 2), slice(2, 4)), strict=True):
        assert part.data.tolist() == expected.data[of].tolist()


# -------------------------------------------------------------------------------------- user ops
def test_a_pointwise_op_of_ones_own_is_computed_on_parts() -> None:
    """Its declaration says that elements are computed by themselves."""
    with taken_out():
        cube = al.register_op(
            "cube(Tensor self) -> Tensor",
            kernel=lambda xp, a: a * a * a,
            scalar=lambda a: a * a * a,
            vjp={"self": lambda grad, self: grad * 3 * self * self},
        )
        x = sharded(Shard(1)).requires_grad_()
        found = cube(x)
        found.sum().backward()
        assert found.placement == x.grad.placement == Shard(1)
        assert x.grad.full_tensor().tolist() == (al.arange(24.0).view(4, 6) ** 2 * 3).tolist()


def test_an_op_without_rule_is_computed_on_replicated_operands() -> None:
    """SHD-12: right, and listed."""
    undeclared: Any = OPS["histc"]
    assert isinstance(undeclared, PureOp)
    assert undeclared.dims is None
    x = sharded(Shard(0))
    with CommDebugMode() as comm:
        found = dispatch(undeclared, undeclared.bind((x, 4), {}))
    assert found.placement == Replicate()
    assert found.full_tensor().tolist() == al.arange(24.0).histc(4).tolist()
    assert comm.implicit == ["histc: Shard(dim=0) -> Replicate() of f32[4, 6]"]


def test_ranks_may_hold_windows_of_one_tensor_that_are_apart() -> None:
    """SHD-2: no byte is that of two ranks."""
    x = al.arange(4.0)
    ShardedTensor([x[:2], x[2:]], Mesh(2), Shard(0)).mul_(2)
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]
