"""Views of one base among the arguments, with symbols for their sizes.

Used by `subclass_fakes` and by the pipeline, which captures again where it was no use.
Rule: SYN-12. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from aotlite.eager.autograd.differentiable_views import root_of
from aotlite.eager.autograd.nodes.retained_grads import is_watched
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
from aotlite.stages.shared.memory.view_families import is_apart, is_of_its_own
from aotlite.stages.shared.tape_queries import root_changed


# Note [views with symbols for sizes]
#     def f(a, b): return a * b.sum()
#     x = al.ones(5); f(x[:2], x[2:])        # and then f(x[:3], x[3:])
# A view family has the root of the caller's tensors, and their views from it, whose arguments are
# numbers. It is needed for few things: a write with a history changes the history of the base, and
# so of all its views; after any write a view takes its history from the base anew. So where sizes
# are to be symbols, such inputs are captured without a family, as inputs that share a base which
# nobody else has. What requires grad on memory of a base that does not gets a base of its own,
# which does not either (`view_families.py`). If the function needed the family, it is captured
# again with numbers for their sizes; a mark on one of these is an error. Which inputs share memory
# is another question, and compared at each call.
def arguments_with_symbols(sizes: SymbolicSizes, leaves: Sequence[object]) -> set[int]:
    """The ids of the arguments that are to have symbols for sizes; no parts of wrappers."""
    places = {each.argument for each in sizes.requests}
    places |= {role.index for role in sizes.fixed or () if isinstance(role, Primal)}
    first: dict[int, int] = {}
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            first.setdefault(id(leaf), place)
    return {tensor for tensor, place in first.items() if place in places}


def with_a_family(captured: Captured) -> dict[InputRole, str]:
    """The inputs that were captured without their view family, and need it, with the reason."""
    by_fake = {id(each.fake): each for each in captured.inputs}
    found: dict[InputRole, str] = {}
    for fakes in captured.without_family:
        members = [by_fake[id(fake)] for fake in fakes]
        reason = family_reason(captured, members, changes=any(map(root_changed, members)))
        if reason:
            found |= {each.role: reason for each in members}
    return found


def family_reason(captured: Captured, members: Sequence[CapturedInput], *, changes: bool) -> str:
    """Why these inputs, views of one base, need their view family, in words; empty if they do not.

    `changes` says whether a write has changed the history of the base.
    """
    if changes:
        return "a write to one has a gradient"
    if any(each.requires_grad and each.role in captured.reach for each in members):
        return "as_strided reaches beyond one that requires grad"
    if len(members) > 1 and any(map(_is_moved, members)):
        return "the geometry of one changes"
    if len(members) > 1 and any(each.role in captured.recorder.changes.of for each in members):
        return "one becomes a leaf or ceases to be one"
    if not any(each.storage.version for each in members):
        return ""
    return _reason_of_write(captured, members)


def _reason_of_write(captured: Captured, members: Sequence[CapturedInput]) -> str:
    """Why these inputs need their family where one is written, and no write has a history: a view
    takes its history from the base anew then."""
    pairs = [(each, captured.recorder.real_of(each.fake)) for each in members]
    reals = [real for _, real in pairs if real._base is not None]
    if any(real._node is not None and is_watched(real) for real in reals):
        return "one that is written has hooks"
    if any(is_of_its_own(real) and root_of(real).left for real in reals):
        return "one is written whose base has left its history"
    if any(real._is_tracked_leaf() and not is_of_its_own(real) for real in reals):
        return "one that is written is a leaf, and its base has a history"
    others = [given for given, real in pairs if not is_of_its_own(real)]
    if len(members) > 1 and any(map(_has_gradient, others)):
        return "one is written, and another has a history"
    return ""


def _is_moved(given: CapturedInput) -> bool:
    moved = given.fake.meta is not given.entry_meta or given.fake.offset != given.entry_offset
    return moved or given.fake.storage is not given.storage


def view_arguments(sizes: SymbolicSizes, leaves: Sequence[object]) -> list[InputRole]:
    """The arguments with symbols for sizes that may be of a view family."""
    tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}
    roots = Counter([id(tensor._root) for tensor in tensors.values()])
    sized = arguments_with_symbols(sizes, leaves)
    return [
        Primal(place)
        for place, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor)
        and id(leaf) in sized
        and leaf._root is not None
        and (roots[id(leaf._root)] > 1 or is_apart(leaf))
    ]


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


def without(sizes: SymbolicSizes, roles: Collection[InputRole]) -> SymbolicSizes:
    """The same requests, but for the sizes of these inputs."""
    numbers = set(arguments_of(roles))
    kept = {each: ask for each, ask in sizes.requests.items() if each.argument not in numbers}
    return SymbolicSizes(kept, share_rules(SymbolTable(), rules_of(sizes.table)))


def why_numbers(meta: FunctionMeta, role: InputRole) -> str:
    """Why an input had to have numbers for its sizes, as a view; or empty."""
    reasons = [each.reason for each in meta.families if role in each.members and each.reason]
    return f"sizes of views of one base are numbers where {reasons[0]}" if reasons else ""


def arguments_of(roles: Collection[InputRole]) -> Iterator[int]:
    """The numbers of the flat arguments that these are, or are parts of."""
    for role in roles:
        if isinstance(role, Part) and isinstance(role.whole, Primal):
            yield place_of_role(role)[0]
        elif isinstance(role, Primal):
            yield role.index
