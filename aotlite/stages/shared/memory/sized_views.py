"""Views of one base among the arguments, with symbols for their sizes.

Used by `subclass_fakes` and by the pipeline, which captures again where it was no use.
Rule: SYN-12. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Part, Primal
from aotlite.ir.op import GeometryOp, InplaceOp
from aotlite.ir.symbols.cases.results import rules_of, share_rules
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.symbolic_sizes import SymbolicSizes, place_of_role
from aotlite.stages.shared.memory.view_families import ViewFamilies


# Note [views with symbols for sizes]
#     def f(a, b): return a * b.sum()
#     x = al.ones(5); f(x[:2], x[2:])        # and then f(x[:3], x[3:])
# A view family has the root of the caller's tensors, and their views from it, whose arguments are
# numbers. It is needed for a write with a history alone: that changes the history of the base, and
# so of all its views. So where sizes are to be symbols, such inputs are captured without a family,
# as inputs that share a base which nobody else has. If the function has written one of them and a
# gradient flows there, or has changed its geometry or autograd state, it is captured again with
# numbers for their sizes; a mark on one of these is an error. Which inputs share memory is another
# question, and compared at each call.
def leave_family(
    sizes: SymbolicSizes, families: ViewFamilies, tensor: Tensor, role: InputRole
) -> None:
    """Takes an argument out of its view family if it is to have symbols for sizes."""
    if isinstance(role, Primal) and any(each.argument == role.index for each in sizes.requests):
        families.leave(tensor)


def with_a_family(captured: Captured) -> list[InputRole]:
    """The inputs that were captured without their view family, and need it."""
    by_fake = {id(each.fake): each for each in captured.inputs}
    pairs = [(by_fake[id(a)], by_fake[id(b)]) for a, b in captured.late]
    return list(dict.fromkeys(each.role for pair in pairs if _is_needed(*pair) for each in pair))


def _is_needed(one: CapturedInput, other: CapturedInput) -> bool:
    both = (one, other)
    if any(each.storage.version for each in both) and any(map(_has_gradient, both)):
        return True
    return any(each.fake.meta is not each.entry_meta for each in both) or any(
        each.fake.offset != each.entry_offset or each.fake.storage is not each.storage
        for each in both
    )


def changing_node(captured: Captured, roles: Collection[InputRole]) -> Node | None:
    """The first op that writes one of these inputs, or changes its geometry or autograd state."""
    for node in captured.graph.calls:
        if isinstance(node.target, (InplaceOp, GeometryOp)):
            first: Any = node
            while first.op == "call" and first.args and isinstance(first.args[0], Node):
                first = first.args[0]
            if first.role in roles:
                return node
    return None


def _has_gradient(given: CapturedInput) -> bool:
    return given.requires_grad or given.fake.requires_grad_outside()


def without(sizes: SymbolicSizes, roles: list[InputRole]) -> SymbolicSizes:
    """The same requests, but for the sizes of these inputs."""
    numbers = set(arguments_of(roles))
    kept = {each: ask for each, ask in sizes.requests.items() if each.argument not in numbers}
    return SymbolicSizes(kept, share_rules(SymbolTable(), rules_of(sizes.table)))


def why_numbers(meta: FunctionMeta, role: InputRole) -> str:
    """Why an input had to have numbers for its sizes, as a view; or empty."""
    families = [each for each in meta.families if role in each.members]
    if any(each.changes_history for each in families):
        return "sizes of views of one base are numbers where a write to one has a gradient"
    moved = {each.role for each in meta.inputs if each.writes_metadata or each.changes}
    if any(moved.intersection(each.members) for each in families):
        return "sizes of views of one base are numbers where the geometry of one changes"
    return ""


def arguments_of(roles: Collection[InputRole]) -> Iterator[int]:
    """The numbers of the flat arguments that these are, or are parts of."""
    for role in roles:
        if isinstance(role, Part) and isinstance(role.whole, Primal):
            yield place_of_role(role)[0]
        elif isinstance(role, Primal):
            yield role.index
