"""Laws of gradient formulas: their values, the values that they save, the form of gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aotlite import no_grad
from aotlite.autograd import grad
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError
from aotlite.ir.op import (
    DataOp,
    Formula,
    GeometryOp,
    MultiViewOp,
    Op,
    PureOp,
    Source,
    ViewOp,
)
from aotlite.testing.laws.ops.exceptions import (
    CONSTANT,
    OF_SYMMETRIC,
    SAVED_FOR_SHAPE,
    WITHOUT_GRADIENT,
)
from aotlite.testing.laws.ops.runs import (
    bound,
    changes_first,
    cotangents,
    is_viewing,
    kernel_op,
    run,
    same_bits,
    tensor_of,
    tensors_in,
    vjp_of,
)
from aotlite.testing.laws.samples.sample import Sample

Samples = Sequence[Sample]

STEP = 1e-5
TOLERANCE = 1e-6
"""The error of a central difference of step 1e-5 in float64 is about 1e-10 times the third
derivative, and 1e-11 of rounding; the values of the samples are of order 1."""

DIRECTIONS = 2
"""The number of random directions for each operand; a wrong element shows in almost all."""


# ------------------------------------------------------------------------------ differentiating
def forward(op: Op, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The differentiable results. An op that changes its first operand gets a copy of it."""
    if changes_first(op):
        args = (args[0].clone(), *args[1:])
    return tuple(out for out in run(op, args) if out.dtype.is_differentiable)


def leaves_of(args: tuple[object, ...], only: int | None = None) -> list[Tensor]:
    """Makes the differentiable operands (at the position `only`, if given) leaves; returns them."""
    chosen = args if only is None else args[only]
    return [t.requires_grad_() for t in tensors_in(chosen) if t.dtype.is_differentiable]


def gradients(
    outs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    weights: Sequence[object],
    *,
    again: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the weighted results for the leaves; None for a leaf without one."""
    pairs = [(o, w) for o, w in zip(outs, weights, strict=True) if o.requires_grad]
    if not pairs:
        return (None,) * len(leaves)
    live, given = zip(*pairs, strict=True)
    return grad(live, leaves, given, create_graph=again, allow_unused=True)


def weights_of(outs: Sequence[Tensor]) -> list[Tensor]:
    """Fixed cotangents of the results, all different."""
    weights = cotangents(tuple(outs))
    return [
        tensor_of((w + 1j * np.sin(3 * w) if out.dtype.is_complex else w).astype(out.dtype.numpy))
        for out, w in zip(outs, weights, strict=True)
    ]


def _smooth(samples: Samples) -> list[Sample]:
    return [sample for sample in samples if sample.smooth]


# ------------------------------------------------------------------- L2: vjp = finite differences
def vjp_is_the_derivative(op: Op, samples: Samples) -> None:
    """L2: gradients, and gradients of gradients, agree with finite differences."""
    if op.name in CONSTANT or op.name in OF_SYMMETRIC:
        return
    for sample in _smooth(samples):
        rng = np.random.default_rng(3)
        _check_first(op, sample, rng)
        _check_second(op, sample, rng)


def _check_first(op: Op, sample: Sample, rng: np.random.Generator) -> None:
    args = bound(op, sample)
    leaves = leaves_of(args)
    outs = forward(op, args)
    weights = weights_of(outs)
    found = gradients(outs, leaves, weights)

    def value(moved: tuple[object, ...]) -> float:
        return _weighed(forward(op, moved), weights)

    for k, gradient in enumerate(found):
        _compare(op, sample, f"the gradient of operand {k}", gradient, value, k, rng)


def _check_second(op: Op, sample: Sample, rng: np.random.Generator) -> None:
    args = bound(op, sample)
    leaves = leaves_of(args)
    outs = forward(op, args)
    weights = [w.requires_grad_() for w in weights_of(outs)]
    first = [g for g in gradients(outs, leaves, weights, again=True) if g is not None]
    factors = weights_of(first)
    found = gradients(first, [*leaves, *weights], factors)

    def slope(moved: tuple[object, ...]) -> float:
        weights_ = weights if len(moved) == len(args) else moved[len(args) :]
        moved = moved[: len(args)]
        leaves = leaves_of(moved)
        inner = gradients(forward(op, moved), leaves, weights_)
        return _weighed([g for g in inner if g is not None], factors)

    for k, gradient in enumerate(found[: len(leaves)]):
        what = f"the second gradient of operand {k}"
        _compare(op, sample, what, gradient, slope, k, rng)
    for k, gradient in enumerate(found[len(leaves) :]):
        moved = lambda a, k=k: _moved_weights(a, weights, k)
        what = f"the second gradient of incoming gradient {k}"
        _compare(op, sample, what, gradient, slope, k, rng, move=moved)


def _weighed(values: Sequence[Tensor], weights: Sequence[Tensor]) -> float:
    return sum(_product(w.array, v.array) for v, w in zip(values, weights, strict=True))


def _product(a: np.ndarray, b: np.ndarray) -> float:
    """The real inner product, with which PyTorch defines complex gradients."""
    return float((np.conj(a) * b).sum().real)


def _moved_weights(direction: object, weights: Sequence[Tensor], k: int) -> tuple[Tensor, ...]:
    return tuple(
        tensor_of(w.array + direction) if i == k else tensor_of(np.array(w.array))
        for i, w in enumerate(weights)
    )


def _compare(
    op: Op,
    sample: Sample,
    what: str,
    gradient: Any,
    function: Any,
    k: int,
    rng: np.random.Generator,
    move: Any = None,
) -> None:
    """Compares the gradient with central differences of `function` along random directions."""
    operand = _moved(op, sample, k, 0)[1] if move is None else move(0)[k]
    shape = operand.shape
    for _ in range(DIRECTIONS):
        direction = rng.uniform(-1, 1, shape)
        if operand.dtype.is_complex:
            direction = direction + 1j * rng.uniform(-1, 1, shape)
        ends = []
        for sign in (STEP, -STEP):
            if move is None:
                args = _moved(op, sample, k, sign * direction)[0]
            else:
                args = (*bound(op, sample), *move(sign * direction))
            ends.append(function(args))
        expected = (ends[0] - ends[1]) / (2 * STEP)
        got = 0.0 if gradient is None else _product(_like(gradient, shape), direction)
        assert abs(got - expected) <= TOLERANCE * max(1.0, abs(expected)), (
            f"{op.name}{sample}: {what} is {got:.9g} along a direction, expected {expected:.9g} by "
            "differences"
        )


def _like(gradient: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(gradient.array)
    return array if array.shape == tuple(shape) else np.full(shape, np.nan)


def _moved(op: Op, sample: Sample, k: int, by: object) -> tuple[tuple[object, ...], Tensor]:
    """Returns fresh arguments with `by` added to differentiable operand `k`, and that operand."""
    args = bound(op, sample)
    operand = [t for t in tensors_in(args) if t.dtype.is_differentiable][k]
    operand.array[...] += by
    return args, operand


# ----------------------------------------------------------------- L7: saved = read by the vjp
def saved_is_what_the_vjp_reads(op: Op, samples: Samples) -> None:
    """L7: the gradient depends on each saved value, and on no value that is not saved."""
    chosen = _smooth(samples)
    if isinstance(op, (ViewOp, MultiViewOp, GeometryOp)):
        for view in _views(op, chosen):
            _check_reads_geometry_only(view)
    elif vjp_of(op) is not None:
        _check_each_save_matters(op, [*chosen, *samples])
    for sample in chosen[:2]:
        for only in (None, *_positions(op)):
            _check_versions(op, sample, only)


def _views(op: Op, samples: Samples) -> Iterator[ViewOp | MultiViewOp]:
    match op:
        case ViewOp():
            yield op
        case GeometryOp():
            yield op.view
        case MultiViewOp():
            yield op
            yield from (view for s in samples[:1] for view, _ in op.parts(bound(op, s)))


def _check_reads_geometry_only(view: ViewOp | MultiViewOp) -> None:
    """Checks that a view's gradient reads geometry alone, of which its history is made (TEN-3)."""
    for formula in () if view.vjp is None else view.vjp.formulas.values():
        read = formula.reads(Source.OPERAND) + formula.reads(Source.RESULT)
        assert not read, f"{view.name}: its gradient saves values, expected geometry alone"


def _positions(op: Op) -> tuple[int, ...]:
    vjp = vjp_of(op)
    return () if vjp is None or len(vjp.formulas) < 2 else tuple(vjp.formulas)


def _check_each_save_matters(op: Op, samples: Samples) -> None:
    vjp, pure = vjp_of(op), kernel_op(op)
    assert vjp is not None and pure is not None
    for position, formula in vjp.formulas.items():
        for kind in (Source.OPERAND, Source.RESULT):
            for index in formula.reads(kind):
                name = _saved_name(pure, kind, index)
                what = f"{op.name}: the gradient of operand {position} saves {name}"
                if (pure.name, name) in SAVED_FOR_SHAPE:
                    continue
                assert any(_matters(pure, position, s, (kind, index)) for s in samples), (
                    f"{what}, expected it to depend on that value"
                )


def _saved_name(op: PureOp | DataOp, kind: Source, index: int) -> str:
    if kind is Source.OPERAND:
        return op.schema.parameters[index].name
    return op.schema.returns[index].name or "result"


def _matters(op: PureOp | DataOp, position: int, sample: Sample, saved: Any) -> bool:
    """Whether another saved value gives another gradient."""
    args = bound(op, sample)
    outs = run(op, args)
    value = args[saved[1]] if saved[0] is Source.OPERAND else outs[saved[1]]
    if not tensors_in(value) or not tensors_in(args[position]):
        return False
    formula = op.vjp.formulas[position]  # type: ignore[union-attr]
    poisoned = tuple(map(_poisoned, value)) if type(value) is tuple else _poisoned(value)
    clean = _apply(op, formula, args, outs, {})
    with np.errstate(all="ignore"):
        dirty = _apply(op, formula, args, outs, {saved: poisoned})
    return not all(same_bits(a.array, b.array) for a, b in zip(clean, dirty, strict=True))


def _poisoned(tensor: Tensor) -> Tensor:
    """Other values: nan; inverted booleans; for integers zeros, which are valid indices."""
    array = np.array(tensor.array)
    if array.dtype == bool:
        return tensor_of(~array)
    return tensor_of(np.full_like(array, 0 if array.dtype.kind in "iu" else np.nan))


def _apply(
    op: PureOp | DataOp,
    formula: Formula,
    args: tuple[object, ...],
    outs: tuple[Tensor, ...],
    instead: Any,
) -> list[Tensor]:
    grads, key = weights_of(outs), op.key(args)
    given: dict[Source, Any] = {
        Source.GRAD: grads,
        Source.GRAD_OR_NONE: grads,
        Source.GRADS: [grads],
        Source.GRADS_OR_NONE: [grads],
        Source.OPERAND: args,
        Source.OPERAND_META: key,
        Source.RESULT: outs,
        Source.RESULT_META: [out.meta for out in outs],
        Source.CONSTANT: args,
    }
    values = [instead[s] if s in instead else given[s[0]][s[1]] for s in formula.sources]
    with no_grad():
        return tensors_in(formula.function(*values))


def _check_versions(op: Op, sample: Sample, only: int | None) -> None:
    """Checks that a write after the forward makes the backward raise iff the value is saved."""
    expected = [_bits(g) for g in _loss_gradients(op, sample, only, None)[0]]
    _, saves = _loss_gradients(op, sample, only, None)
    for target, name in _targets(op, sample):
        try:
            got, _ = _loss_gradients(op, sample, only, target)
        except AutogradError as error:
            assert "saved tensor" in str(error), f"{op.name}{sample}: {error}"
            assert target in saves, (
                f"{op.name}{sample}: writing {name} raises in the backward, expected it not to: "
                "the table does not save it"
            )
            continue
        assert target not in saves, (
            f"{op.name}{sample}: writing {name} does not raise in the backward, expected it to: "
            "the table saves it"
        )
        assert expected == [_bits(g) for g in got], (
            f"{op.name}{sample}: writing {name} changes the gradient, expected it to be saved"
        )


def _bits(gradient: Tensor | None) -> bytes:
    return b"" if gradient is None else np.ascontiguousarray(gradient.array).tobytes()


def _targets(op: Op, sample: Sample) -> list[tuple[tuple[Source, int], str]]:
    """The tensors to write after the forward: operands, and results that are no operands."""
    args = bound(op, sample)
    found = [((Source.OPERAND, i), f"operand {i}") for i, a in enumerate(args) if tensors_in(a)]
    if not is_viewing(op) and not isinstance(op, GeometryOp):
        outs = run(op, args)
        found += [((Source.RESULT, k), f"result {k}") for k in range(len(outs))]
    return found


def _loss_gradients(
    op: Op, sample: Sample, only: int | None, target: tuple[Source, int] | None
) -> tuple[tuple[Any, ...], set[tuple[Source, int]]]:
    """Returns the gradients after a write to `target`, and the values that the table saves.

    The weighted results are summed before the write: a view of the written operand would show the
    new values, and may not be used at all if it is one of several (TEN-19).
    """
    args = bound(op, sample)
    leaves = leaves_of(args, only)
    inner = (args[0].clone(), *args[1:]) if changes_first(op) else args
    outs = run(op, inner)
    live = [out for out in outs if out.requires_grad]
    loss = [(out * w).sum() for out, w in zip(live, weights_of(live), strict=True)]
    if target is not None:
        for tensor in tensors_in(
            args[target[1]] if target[0] is Source.OPERAND else outs[target[1]]
        ):
            with no_grad():
                tensor.fill_(0)
    found = gradients(loss, leaves, [w.sum() * 0 + 1 for w in loss]) if loss else ()
    return found, _table_saves(op, args, leaves)


def _table_saves(op: Op, args: tuple[object, ...], leaves: list[Tensor]) -> set[tuple[Source, int]]:
    vjp = vjp_of(op)
    if vjp is None:
        return set()
    needed = tuple(
        i for i in vjp.formulas if any(t is leaf for t in tensors_in(args[i]) for leaf in leaves)
    )
    operands, results = vjp.saves(needed)
    # An in-place op saves a copy of the operand that it overwrites.
    kept = {(Source.OPERAND, i) for i in operands if i or not changes_first(op)}
    return kept | {(Source.RESULT, k) for k in results}


# ---------------------------------------------------------- L8: linear, and of the operands' form
def vjp_is_linear(op: Op, samples: Samples) -> None:
    """L8: the vjp is linear; each operand with a formula has a gradient of its shape and dtype."""
    if op.name in CONSTANT:
        return
    for sample in samples:
        try:
            _check_form(op, sample)
        except AutogradError as error:
            if WITHOUT_GRADIENT.get(op.name, "nothing") not in str(error):
                raise
    for sample in _smooth(samples):
        _check_linear(op, sample)


def _check_form(op: Op, sample: Sample) -> None:
    args = bound(op, sample)
    outs_exist = [out for out in _plain_outs(op, sample) if out.dtype.is_differentiable]
    if not outs_exist:
        return
    for position, value in enumerate(args):
        _check_operand_form(op, sample, position, tensors_in(value))


def _plain_outs(op: Op, sample: Sample) -> tuple[Tensor, ...]:
    return run(op, bound(op, sample))


def _check_operand_form(op: Op, sample: Sample, position: int, operands: list[Tensor]) -> None:
    if not operands or not any(t.dtype.is_differentiable for t in operands):
        return
    args = bound(op, sample)
    leaves = leaves_of(args, position)
    outs = forward(op, args)
    found = gradients(outs, leaves, weights_of(outs))
    for leaf, gradient in zip(leaves, found, strict=True):
        expected = _has_formula(op, position) and bool(outs)
        assert (gradient is not None) == expected, (
            f"{op.name}{sample}: the gradient of operand {position} is "
            f"{'there' if expected is False else 'None'}, expected "
            f"{'a tensor, of zeros if nothing flows' if expected else 'None: it has no formula'}"
        )
        if gradient is not None:
            got, wanted = (gradient.shape, gradient.dtype), (leaf.shape, leaf.dtype)
            assert got == wanted, (
                f"{op.name}{sample}: the gradient of operand {position} has {got}, expected "
                f"{wanted}"
            )


def _has_formula(op: Op, position: int) -> bool:
    vjp = vjp_of(op)
    return vjp is not None and position in vjp.formulas


def _check_linear(op: Op, sample: Sample) -> None:
    args = bound(op, sample)
    leaves = leaves_of(args)
    outs = forward(op, args)
    first = weights_of(outs)
    second = [tensor_of(np.cos(np.array(w.array) * 7 + 1) * 1000) for w in first]
    both = [tensor_of(a.array * 2 - b.array) for a, b in zip(first, second, strict=True)]
    nothing = [tensor_of(np.zeros_like(w.array)) for w in first]
    images = []
    for weights in (first, second, both, nothing):
        args = bound(op, sample)
        leaves = leaves_of(args)
        images.append(gradients(forward(op, args), leaves, weights))
    for k, (a, b, sum_, zero) in enumerate(zip(*images, strict=True)):
        if a is None:
            continue
        expected = 2 * a.array - b.array
        scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
        assert np.allclose(sum_.array, expected, rtol=0, atol=1e-11 * scale), (
            f"{op.name}{sample}: the gradient of operand {k} for 2 a - b is not twice that for a "
            "minus that for b, expected a linear function"
        )
        assert not np.any(zero.array), (
            f"{op.name}{sample}: the gradient of operand {k} for a zero gradient is not zero"
        )
