"""Every op on sharded tensors is the op on what they mean, for every placement of its operands."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import AotliteError
from aotlite.ir.op import OPS, DataOp, InplaceOp, MultiViewOp, PureOp, ViewOp
from aotlite.sharding import Partial, Replicate, Shard, ShardedTensor
from aotlite.testing.laws.ops.runs import bound
from aotlite.testing.laws.samples.sample import Sample, arrays_in
from aotlite.testing.sharding import COLLECTIVES, PoisonedMesh, RankTensor, guarded
from tests.samples import samples_of
from tests.thinning import thinned

EXCLUDED = {
    "hidden_alias": "refused (SUB-20)",
    "as_strided": "it speaks of memory, which a copy has not: tests/sharding/test_views.py",
    "as_strided_scatter": "the same",
}
NAMES = sorted(
    name
    for name, op in OPS.items()
    if isinstance(op, (PureOp, DataOp, ViewOp, MultiViewOp, InplaceOp))
    and (op.tensors or op.lists or op.mixed)
    and samples_of(name)
    and name not in EXCLUDED
    and any(list(arrays_in(sample.args)) for sample in samples_of(name))
)
SLACK = {"float16": 1e-2, "bfloat16": 1e-1, "float32": 1e-5, "complex64": 1e-5}
"""What is added up over ranks is rounded elsewhere; of float64 1e-12 is enough."""


def placements_of(tensor: Tensor, ranks: int) -> Iterator[Any]:
    yield Replicate()
    for dim, size in enumerate(tensor.shape):
        if size % ranks == 0:
            yield Shard(dim)
    if tensor.dtype.is_differentiable and tensor.isfinite().all().item():  # SHD-9
        yield Partial()
        yield Partial("avg")
        if not tensor.is_complex():
            yield from (Partial(each) for each in ("max", "min", "product"))


def sharded(value: Any, mesh: Any, rng: Any, *, keep: bool = False, guard: bool = False) -> Any:
    """Each tensor in a placement that is drawn; some stay dense unless all are to be sharded."""
    if isinstance(value, tuple):
        return tuple(sharded(each, mesh, rng, keep=keep, guard=guard) for each in value)
    if not isinstance(value, Tensor) or (not keep and rng.random() < 0.2):
        return value
    found = list(placements_of(value, mesh.size))
    made = ShardedTensor.from_dense(value, mesh, found[rng.integers(len(found))])
    return guarded(made) if guard else made


def meaning(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(meaning, value))
    value = value.full_tensor() if isinstance(value, ShardedTensor) else value
    return value.inner if isinstance(value, RankTensor) else value


def run(op: Any, args: tuple[Any, ...]) -> Any:
    given, named = op.schema.given(args)
    return call(op.name, *given, **named)


def assert_close(expected: Any, found: Any, what: str) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(expected) == len(found), what
        for pair in zip(expected, found, strict=True):
            assert_close(*pair, what)
        return
    assert (expected.shape, expected.dtype) == (found.shape, found.dtype), what
    a, b = np.asarray(expected.detach().numpy()), np.asarray(found.detach().numpy())
    if a.dtype.kind == "V":
        a, b = a.astype(np.float32), b.astype(np.float32)
    slack = SLACK.get(expected.dtype.name, 1e-12)
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=1.0) if a.dtype.kind in "fc" else 0
    close = np.allclose(a, b, rtol=slack, atol=slack * scale, equal_nan=a.dtype.kind in "fc")
    assert close, f"{what}: {a} and {b}"


def cases(name: str, *, few: bool) -> Iterator[tuple[Sample, int, Any]]:
    """A draw of placements for every second sample, two for smooth ones; of every sixth for few."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    of_tensors = [sample for sample in samples_of(name) if list(arrays_in(sample.args))]
    for sample in of_tensors[:: 6 if few else 2]:
        for ranks in (2, 3) if sample.smooth else (2,):
            yield sample, ranks, rng


@pytest.mark.thinned(3)
@pytest.mark.parametrize("guard", [False, True], ids=["", "guarded"])
@pytest.mark.parametrize("name", thinned(NAMES))
@pytest.mark.filterwarnings("ignore")
def test_every_op_on_parts_is_the_op_on_the_whole(name: str, guard: bool) -> None:
    """SHD-7 to SHD-12; SUB-10, SUB-15, SUB-17. Guarded, no op but a collective meets two ranks."""
    op: Any = OPS[name]
    if guard and op in COLLECTIVES:
        pytest.skip("its operands are no parts of one tensor")
    tried = 0
    for sample, ranks, rng in cases(name, few=guard):
        args = bound(op, sample)
        mesh = PoisonedMesh(ranks)
        given = sharded(args, mesh, rng, keep=not tried, guard=guard)
        first = given[0] if not isinstance(given[0], tuple) else given[0][0]
        if not any(isinstance(each, ShardedTensor) for each in op.operands(given)):
            continue
        if isinstance(op, (ViewOp, MultiViewOp)) and not isinstance(first, ShardedTensor):
            continue
        what = f"{name}{sample} of {[getattr(a, 'placement', '-') for a in op.operands(given)]}"
        try:
            expected = run(op, args)
        except AotliteError as error:
            with pytest.raises(type(error)):
                run(op, given)
            continue
        found = run(op, given)
        tried += 1
        assert_close(expected, meaning(found), what)
        if isinstance(op, InplaceOp):
            assert found is given[0]
    assert tried or guard


GRADIENTS = [
    name
    for name in NAMES
    if isinstance(OPS[name], (PureOp, ViewOp))
    and OPS[name].vjp is not None  # type: ignore[attr-defined]
    and any(sample.smooth for sample in samples_of(name))
]


@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.filterwarnings("ignore")
def test_every_gradient_on_parts_is_the_gradient_of_the_whole(name: str) -> None:
    """SHD-13; SUB-7."""
    op: Any = OPS[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for sample in [each for each in samples_of(name) if each.smooth][:4]:
        mesh = PoisonedMesh(2)
        dense = bound(op, sample)
        given = sharded(bound(op, sample), mesh, rng, keep=True)
        expected = gradients(op, dense)
        found = gradients(op, given)
        assert_close(expected, tuple(map(meaning, found)), f"{name}{sample}")


def gradients(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    leaves = [each for each in op.operands(args) if each.dtype.is_differentiable]
    for leaf in leaves:
        leaf.requires_grad_()
    result = run(op, args)
    results = result if isinstance(result, tuple) else (result,)
    results = tuple([each.abs() if each.is_complex() else each for each in results])
    total: Any = sum((each * each).sum() for each in results if each.requires_grad)
    found = al.autograd.grad(total, leaves, allow_unused=True)
    zeros = [al.zeros(leaf.shape, dtype=leaf.dtype) for leaf in leaves]
    return tuple([z if g is None else g for g, z in zip(found, zeros, strict=True)])
