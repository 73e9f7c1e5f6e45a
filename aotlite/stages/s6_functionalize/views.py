"""Functionalizes a view: an `Alias` with a longer chain; a pure view op where there is no group.

Used by stage 6 for each view op, each result of a multi-output view, and each geometry op.
Rules: FUN-3, FUN-11, FUN-34. Spec: `specs/s6_functionalize.md`.
"""

from __future__ import annotations

from aotlite.eager.autograd.chain_simplification import further
from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.geometry.sizes import needed
from aotlite.ir.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.s6_functionalize.alias_values import AliasValues
from aotlite.stages.s6_functionalize.aliases import SAME, Alias, Group
from aotlite.stages.s6_functionalize.view_inverses import strided
from aotlite.stages.shared.user_frames import describe


def add_view(
    values: AliasValues, node: Node, operand: Node, op: ViewOp, rest: tuple[object, ...]
) -> None:
    """Registers a view: as an alias, or as a node if its storage needs no group."""
    if not values.storages.needs_alias(operand):
        values.env[node] = _plain_view(values, node, operand, op, rest)
        return
    parent = values.alias(operand)
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    start = op.at((operand, *rest), parent.start)
    if op is AS_STRIDED:
        _check_span(node, parent.group, meta, start)
        chain = strided(parent.group.meta, meta, start)
    else:
        step = ViewStep(op, rest, operand.meta, meta)  # type: ignore[arg-type]
        is_written = values.storages.is_written(operand)  # else views stay as they are (FUN-34)
        chain = further(parent.chain, step) if is_written else parent.chain.then(step)
    if chain:
        values.views.setdefault(chain[-1], node)
    alias = values.env[node] = Alias(parent.group, chain, start, meta)
    if op in SAME:
        alias.value, alias.seen = parent.value, parent.seen
    elif not parent.group.pending:
        alias.value, alias.seen = _seen_from(values, parent, chain), parent.group.version


def _plain_view(
    values: AliasValues, node: Node, operand: Node, op: ViewOp, rest: tuple[object, ...]
) -> Node:
    """The node of a view of a storage without a group; equal views share one node."""
    value: Node = values.read(operand)
    if op in SAME:
        return value
    step = ViewStep(op, rest, operand.meta, node.meta)  # type: ignore[arg-type]
    value = values.viewable(value, step)
    key = (value, op, rest)
    found = values.memo.get(key)
    if found is None:
        if value is operand and op is node.target and op.shown is op:
            found = values.build.add(node)
        else:
            found = values.shown(op, (value, *rest))
        values.memo[key] = found
    return found


def _seen_from(values: AliasValues, parent: Alias, chain: ViewChain) -> Node:
    """The value of a view chain, computed from the parent's value if the chain continues its."""
    if chain is parent.chain:
        return values.sync(parent)
    if len(chain) <= len(parent.chain) or chain[-1].op is AS_STRIDED:
        return values.replay(parent.group, chain)
    return values.memoized(values.sync(parent), chain[-1])


def _is_inside(meta: TensorMeta, start: int, held: TensorMeta) -> bool:
    size, most = meta.dtype.itemsize, held.span * held.dtype.itemsize
    return not meta.numel or bool(0 <= start and (start + meta.span) * size <= most)


def _check_span(node: Node, group: Group, meta: TensorMeta, start: int) -> None:
    if not needed(_is_inside, meta, start, group.meta):
        place = describe(node.location)
        raise noted(
            UnsupportedError(
                f"as_strided: size {meta.shape} with stride {meta.stride} reaches outside the "
                f"{group.meta.span} elements of its base {group.meta}, expected to stay inside"
            ),
            place,
            "Pass the tensor that spans the whole storage as the argument.",
        )
