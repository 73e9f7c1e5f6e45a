"""The laws of ops, with the classes of op that each applies to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from aotlite.eager.rng.generator import get_rng_state, set_rng_state
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import AotliteError
from aotlite.ir.op import (
    OPS,
    Cost,
    DataOp,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    Op,
    PureOp,
    RandomOp,
    ViewOp,
)
from aotlite.ir.ops import BUILT_IN
from aotlite.testing.laws.errors import LawError
from aotlite.testing.laws.ops import (
    data_dependent,
    forward,
    gradient,
    scalar,
    sharding,
    symbolic,
    view_inverses,
)
from aotlite.testing.laws.ops.runs import has_gradient
from aotlite.testing.laws.samples.sample import Sample

_DECLARED = [op for op in OPS.values() if op in BUILT_IN]
WITHOUT_SAMPLES = {
    "getitem": "it takes a node with several results, which only a graph has: L9 runs it for each "
    "op with several results",
    **dict.fromkeys(
        [op.name for op in _DECLARED if isinstance(op, TokenOp)],
        "it takes or gives tokens, which only a graph has: tests/rules/test_tok_*.py",
    ),
    **dict.fromkeys(
        [op.name for op in _DECLARED if isinstance(op, EffectOp)],
        "its effect is no value: tests/rules/test_tok_*.py",
    ),
}
"""Op without samples -> the reason, and the place of its tests."""


DATA = "data-dependent"
"""The class of ops whose results' shapes depend on values; no graph contains one (GEN-8)."""


def class_of(op: Op) -> str:
    """Returns the class of an op, as in the laws: for a pure op, its cost.

    A pure op of unknown cost counts as an indexing op.
    """
    match op:
        case PureOp(cost=Cost.OPAQUE):
            return Cost.INDEXING.value
        case PureOp():
            return "random (pure)" if op.cost is Cost.RANDOM else op.cost.value
        case ViewOp():
            return "view"
        case MultiViewOp():
            return "several views"
        case InplaceOp():
            return "in-place"
        case GeometryOp():
            return "geometry"
        case RandomOp():
            return "random"
        case DataOp():
            return DATA
        case EffectOp():
            return "effect"
        case TokenOp():
            return "tokens"
    return "graph"


PURE = ("pointwise", "reduction", "contraction", "indexing", "factory", "random (pure)")
VIEWS = ("view", "several views")
EVERY = (*PURE, *VIEWS, "in-place", "geometry", "random")


def takes_floats(op: Op) -> bool:
    """Whether the op has tensor operands, which may be differentiated."""
    return any(parameter.type.holds_tensor for parameter in op.schema.parameters)


@attrs.frozen
class Law:
    """A law of ops: `law(op, samples)` raises LawError if the op breaks it."""

    name: str
    claim: str
    check: Callable[[Op, Sequence[Sample]], None]
    classes: tuple[str, ...]
    only: Callable[[Op], bool] = attrs.field(default=lambda op: True, kw_only=True)
    together: bool = attrs.field(default=False, kw_only=True)
    """Whether the law is about all samples together: one of them has to show something."""

    def applies(self, op: Op) -> bool:
        """Whether the law applies to this op."""
        return class_of(op) in self.classes and self.only(op)

    def __call__(self, op: Op, samples: Sequence[Sample]) -> None:
        state = get_rng_state()
        try:
            set_rng_state((0, 0))
            self.check(op, samples)
        except AssertionError as error:
            raise LawError(self.name, self.claim, str(error)) from error
        except (AotliteError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise LawError(self.name, self.claim, f"{op.name} raises: {error!r}") from error
        finally:
            set_rng_state(state)


DIFFERENTIABLE = (*(c for c in EVERY if c not in ("random (pure)", "random")), DATA)

LAWS = (
    Law("L1", "meta = kernel", forward.meta_is_what_the_kernel_gives, (*EVERY, DATA)),
    Law(
        "L2",
        "vjp = finite differences, second order too",
        gradient.vjp_is_the_derivative,
        DIFFERENTIABLE,
        only=takes_floats,
    ),
    Law(
        "L3",
        "declared aliasing = actual aliasing",
        forward.memory_shows_the_declared_aliasing,
        (*EVERY, DATA),
    ),
    Law("L4", "views are lenses", view_inverses.views_are_lenses, VIEWS),
    Law(
        "L5",
        "in-place = functional, then copy",
        forward.in_place_is_functional_then_copy,
        ("in-place", "geometry"),
    ),
    Law("L6", "scalar = kernel", scalar.scalar_is_the_kernel, ("pointwise",)),
    Law(
        "L7",
        "saved = read by the vjp",
        gradient.saved_is_what_the_vjp_reads,
        DIFFERENTIABLE,
        only=has_gradient,
        together=True,
    ),
    Law(
        "L8",
        "the vjp is linear, and gradients have their operands' shape and dtype",
        gradient.vjp_is_linear,
        DIFFERENTIABLE,
        only=has_gradient,
    ),
    Law(
        "L9",
        "interpreted graph = eager, bit for bit",
        forward.interpreted_graph_is_eager,
        tuple(c for c in EVERY if c != "random"),
    ),
    Law("L10", "draw = pure form", forward.draws_are_the_pure_form, ("random",)),
    Law(
        "L11",
        "captured = eager, for data-dependent shapes",
        data_dependent.captures_its_size,
        (DATA,),
        only=takes_floats,
    ),
    Law("L12", "symbolic = concrete", symbolic.symbolic_is_concrete, EVERY, together=True),
    Law(
        "L13",
        "declared linear = linear",
        sharding.linear_is_linear,
        ("pointwise", "reduction", "contraction", "indexing"),
        only=sharding.claims_linearity,
    ),
    # `pointwise` gives each op the same dims: of such an op they are no claim of its declaration.
    Law(
        "L14",
        "declared dims = how the op is cut",
        sharding.dims_cut_the_op,
        ("reduction", "contraction", "indexing", "factory"),
        only=sharding.claims_dims,
    ),
)
"""The laws of ops."""


def laws_of(op: Op) -> tuple[Law, ...]:
    """The laws that apply to an op."""
    return tuple(law for law in LAWS if law.applies(op))
