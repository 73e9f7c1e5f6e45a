"""The records of a compilation as sentences, a line each: metadata, convention, partition.

Reads `stages.records` and changes nothing. Its faces are `aotlite.inspect` and
`aotlite explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.role import (
    Family,
    Hidden,
    IntermediateBase,
    MutatedInput,
    Output,
    Role,
    Saved,
)
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.provenance.location import place_of
from aotlite.ir.symbols.assumption import unmarked
from aotlite.stages.records.backward.partition import Partition, SavedValue
from aotlite.stages.records.base import chain_text
from aotlite.stages.records.capture import ArgumentLeaf
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    BaseMeta,
    FamilyMeta,
    Fixed,
    FunctionFacts,
    InputMeta,
    IsInput,
    MemoryStep,
    OutputMeta,
    Plain,
    Repeated,
    StateStep,
    ViewFacts,
)
from aotlite.stages.records.metadata.no_backward import why_no_backward


# ------------------------------------------------------------------------------------- metadata
def explain_meta(meta: FunctionFacts) -> str:
    """What the function does to its inputs, what its results are, and what is differentiable.

    >>> import aotlite as al
    >>> double = al.compile(lambda x: x.mul_(2).t())
    >>> print(explain_meta(double(al.ones(2, 3)) is None or double.meta))
    primals_0 is argument 0, f32[2, 3]; it does not require grad.
      Its bytes are written in place; version counter +1.
      Its new value needs no tangent: nothing that requires grad is written into it.
    Result 0 is a view of argument 0, rebuilt at each call by .t().
    No tangents arrive: no value that the compiled code returns is differentiable.
    Inference: no input requires grad, so no backward graph is made.
    """
    return unmarked("\n".join(_meta_lines(meta)))


def _meta_lines(meta: FunctionFacts) -> Iterator[str]:
    for each in meta.inputs:
        yield from _input_lines(each)
    for family in meta.families:
        yield _family_text(family, meta)
    if meta.count_plan is not None:
        yield "Version counters are worked out at each call: tensors are put onto other memory."
    for role, wrapping in meta.wrappers.items():
        yield f"{role} is a {wrapping}."
    own = len(meta.outputs) - len(meta.parts)
    for index, output in enumerate(meta.outputs):
        role = meta.role_of(index)
        if isinstance(role, Output) and role.symbol:
            yield f"The size {role.symbol} depends on values: each call computes it first."
            continue
        name = f"Result {index}" if index < own else f"Part {role}"
        yield f"{name} {_output_text(output, meta)}."
    for index, base in enumerate(meta.bases):
        yield _base_text(index, base, meta)
    for grad in meta.grads:
        what = "No tensor" if grad.result is None else f"Result {grad.result}"
        yield f"{what} becomes the gradient of {_place(grad.role, meta)}."
    for hook in meta.hooks:
        place = _place(hook.role, meta)
        if hook.kind == "retained":
            yield f"Each call lets {place} retain its gradient."
        else:
            when = "the gradient" if hook.kind == "gradient" else "the accumulated gradient"
            yield f"Each call registers a hook on {when} of {place}: {hook.name}."
    if meta.training:
        named = ", ".join(
            f"tangents_{role} for {_result_name(role, meta)}" for role in meta.tangents
        )
        yield f"Tangents arrive in this order: {named}."
    elif meta.tangents:
        named = _listed([_result_name(role, meta) for role in meta.tangents])
        reason = "none would reach an input"
        yield f"No tangents arrive: {reason}, so the history of {named} ends there."
    else:
        yield "No tangents arrive: no value that the compiled code returns is differentiable."
    yield _training_text(meta)
    if meta.grad_mode_after is not None:
        yield f"Each call leaves grad mode {'on' if meta.grad_mode_after else 'off'}."


def _place(role: Any, meta: FunctionFacts) -> str:
    return f"result {role.index}" if isinstance(role, Output) else meta.input_of(role).place


# --- inputs
def _input_lines(each: InputMeta) -> Iterator[str]:
    reached = ", read from its place at each call" if isinstance(each.role, Hidden) else ""
    what = f"{each.place}, {meta_text(each.meta)}{reached}"
    yield f"{each.role} is {what}; {_requires_grad_text(each)}."
    if each.writes_metadata:
        steps = chain_text(each.geometry_steps)
        moved = f", {each.final_start} elements further on" if each.final_start else ""
        how = f", by {steps}" if each.geometry_steps else ""
        yield f"  Its geometry becomes {meta_text(each.final_meta)}{moved}{how}."
    if each.writes_data:
        by = ", by the graph itself" if each.in_graph else ""
        through = ", through a hidden alias" if each.through_hidden_alias else ""
        count = f"version counter +{each.version_bumps}"
        yield f"  Its bytes are written in place{by}{through}; {count}."
        yield f"  Its new value needs {_tangent_reason(each)}."
    elif each.version_bumps:
        yield f"  Its bytes are not written; version counter +{each.version_bumps}."
    states = [change for change in each.changes if isinstance(change, StateStep)]
    if states:
        steps = _listed([f".{change.value}" for change in states])
        yield f"  Its autograd state changes at each call, by {steps}."
    for change in each.changes:
        if isinstance(change, MemoryStep):
            yield _memory_step_text(change)
    if each.shares_outside:
        yield "  A hidden alias of it is taken, so its memory stays where it is."
    if each.written_late:
        yield "  Its bytes are written by the backward."


def _family_text(family: FamilyMeta, meta: FunctionFacts) -> str:
    """Inputs with one history (SYN-2, SYN-7)."""
    members = _listed([meta.input_of(member).place for member in family.members])
    what = f"{members} overlap and are views of one base, {meta_text(family.meta)}"
    written = f"a write of {meta.input_of(family.through).place} gives it a new history"
    history = written if family.changes_history else "its history stays"
    numbers = f"; sizes of its members are numbers where {family.reason}" if family.reason else ""
    return f"{family.role}: {what}; {history}{numbers}."


def _memory_step_text(change: MemoryStep) -> str:
    if change.grows:
        return "  Its memory grows at each call, and gets the bytes that were computed."
    match change.window:
        case AliasOfInput(role):
            of = f"that of {role}"
        case AliasOfBase(base):
            of = f"that of intermediate base {base}"
        case AliasOfOutput(index):
            of = f"that of result {index}"
    return f"  It is put onto other memory at each call, {of}; views of the old keep the old."


def _requires_grad_text(each: InputMeta) -> str:
    leaf = "a leaf that requires grad" if each.is_leaf else "it requires grad and has a history"
    if each.requires_grad:
        return leaf if each.requires_grad_at_exit else f"{leaf}, and does no longer afterwards"
    if each.requires_grad_at_exit:
        return "it does not require grad, and does afterwards"
    return "it does not require grad"


def _tangent_reason(each: InputMeta) -> str:
    if each.changes_history:
        return "a tangent: the write gives it a new history, so it is differentiable"
    if each.under_no_grad:
        return "no tangent: every write is under no_grad, which leaves its history alone"
    if each.requires_grad:
        return "no tangent: it is written through detach(), which leaves its history alone"
    return "no tangent: nothing that requires grad is written into it"


# --- results
def _output_text(output: OutputMeta, meta: FunctionFacts) -> str:
    match output:
        case Plain(requires_grad, of):
            leaf = ", a leaf" if output.is_leaf else ""
            new = f"is new memory, {meta_text(of)}{leaf}{_memory_text(output)}"
            return f"{new}{_grad_text(requires_grad)}{_moves_text(output.geometry_steps)}"
        case IsInput(role):
            return f"is {meta.input_of(role).place} itself, the same object"
        case AliasOfInput(role):
            since = output.changes_before
            late = f" after {since} of its changes" if since else ""
            old = ", written since its history was last asked for" if output.outdated else ""
            return _alias_text(f"{meta.input_of(role).place}{late}{old}", output.view)
        case AliasOfBase(base):
            return _alias_text(f"intermediate base {base}", output.view)
        case AliasOfOutput(index):
            return _alias_text(f"result {index}", output.view)
        case Repeated(index):
            return f"is result {index} again, the same object"
        case Fixed(ArgumentLeaf(index)):
            return f"is argument {index} itself, which is no tensor"
        case Fixed(value):
            return f"is no tensor: {value!r}"
    raise TypeError(f"unknown kind of result {output!r}")


def _alias_text(of: str, view: ViewFacts) -> str:
    how = f"rebuilt at each call by {chain_text(view.chain)}" if view.chain else "the whole of it"
    made = "" if view.kind is None else _kind_text(view, view.kind)
    own = "" if view.version is None else f", with a version counter of its own at {view.version}"
    leaf = ", a leaf" if view.is_leaf else ""
    leaf = ", a leaf's view whose base has a history" if view.follows_base else leaf
    leaf += ", with the tape node of before a write" if view.keeps_node else ""
    leaf += ", of an inference tensor" if view.is_inference else ""
    through = ", through the compiled backward" if view.own_history else ""
    grad = f"{_grad_text(view.requires_grad)}{through}"
    return f"is a view of {of}, {how}{made}{own}{leaf}{grad}{_moves_text(view.geometry_steps)}"


def _kind_text(view: ViewFacts, kind: CreationKind) -> str:
    """The restrictions on writing a view and on asking for its history (TEN-19 to TEN-21)."""
    later = kind is CreationKind.NO_GRAD and view.under_grad
    words = [
        f", and is {'taken with grad mode on of ' if later else ''}{kind.value}",
        ", written since" if view.stale else "",
        ", from which no gradient goes on" if view.is_dead_end and not view.stale else "",
    ]
    return "".join(words)


def _memory_text(made: Plain | BaseMeta) -> str:
    """The function's effects on its own memory."""
    count = f", its version counter at {made.version}" if made.version else ""
    return f"{count}{', with a hidden alias' if made.shares_outside else ''}"


def _moves_text(steps: ViewChain) -> str:
    """The geometry ops that the object itself went through."""
    if not steps:
        return ""
    return f"; then its geometry becomes {meta_text(steps[-1].result)}, by {chain_text(steps)}"


def _grad_text(requires_grad: bool) -> str:
    return "; it requires grad" if requires_grad else ""


def _base_text(index: int, base: BaseMeta, meta: FunctionFacts) -> str:
    views: list[Any] = [
        i for i, output in enumerate(meta.outputs)
        if isinstance(output, AliasOfBase) and output.base == index
    ]  # fmt: skip
    word, share = ("result", "is its view") if len(views) == 1 else ("results", "are its views")
    if views and views[0] >= len(meta.outputs) - len(meta.parts):
        word, views = word.replace("result", "part"), [str(meta.role_of(view)) for view in views]
    what = f"{meta_text(base.meta)}{_memory_text(base)}, returned besides the results"
    why = f"{word} {_listed(views)} {share}" if views else "an input is put onto it"
    return f"Intermediate base {index} is {what} because {why}{_grad_text(base.requires_grad)}."


def _result_name(role: Role, meta: FunctionFacts) -> str:
    match role:
        case MutatedInput(Family() as role):
            members = next(each.members for each in meta.families if each.role == role)
            places = _listed([meta.input_of(member).place for member in members])
            return f"the new value of the base of {places}"
        case MutatedInput(of):
            return f"the new value of {meta.input_of(of).place}"  # type: ignore[arg-type]
        case IntermediateBase(index):
            return f"intermediate base {index}"
        case Output(index):
            return f"result {index}"
    return str(role)


def _training_text(meta: FunctionFacts) -> str:
    givers = [each.place for each in meta.inputs if each.requires_grad]
    why = why_no_backward(meta)
    if why is not None:
        kind = "Training" if meta.training else "Inference"
        return f"{kind}: {why}, so no backward graph is made."
    if not givers:  # what happens on the way to a leaf that the function makes (TOK-4, FUN-36)
        return "Training: tangents arrive, so a backward graph is made."
    given = f"{_listed(givers)} {'requires' if len(givers) == 1 else 'require'} grad"
    return f"Training: {given} and tangents arrive, so a backward graph is made."


def _listed(items: Sequence[object]) -> str:
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


# ----------------------------------------------------------------------------------- convention
def explain_convention(convention: Any) -> str:
    """The inputs of the compiled forward in order, and what a call draws from the generator."""
    count = len(convention.inputs)
    lines = [f"The forward takes {count} {'input' if count == 1 else 'inputs'}:"]
    bases = {base.role: base for base in convention.bases}
    for role in convention.inputs:
        place = getattr(role, "place", "")
        merged = f", {_synthetic_text(bases[role])}" if role in bases else ""
        lines.append(f"  {role}{f', read at each call from {place}' if place else merged}")
    if convention.tokens:
        kinds = _listed([token.effect for token in convention.tokens])
        lines.append(f"A call has effects of type {kinds}; each happens once and in order.")
    if convention.consumed:
        lines.append(f"A call uses up {convention.consumed} offsets of the random generator.")
    if convention.sets_generator:
        lines.append("A call sets the random generator to where the graph says.")
    return "\n".join(lines)


def _synthetic_text(base: Any) -> str:
    """The members of a synthetic base (SYN-1)."""
    views = [f"{each.role} ({chain_text(each.chain) or 'all of it'})" for each in base.members]
    return f"{meta_text(base.meta)}, the memory that {_listed(views)} are windows on"


# ------------------------------------------------------------------------------------ partition
def explain_copies(graph: Graph) -> str:
    """The copies in a graph that the stage which made it inserted, and why, as sentences."""
    count = len(graph.copies)
    lines = [f"{count} {'copy' if count == 1 else 'copies'} inserted{':' if count else '.'}"]
    for copy in graph.copies:
        location = copy.node.location
        place = "" if location is None else f" ({place_of(location)})"
        what = f"{graph.names.get(copy.node, copy.node.target.name)} is {meta_text(copy.node.meta)}"
        lines.append(f"  {what}: {copy.reason}{place}")
    return "\n".join(lines)


def saved_bytes(partition: Partition) -> int:
    """Bytes that are kept for the backward beyond what inputs and results hold anyway.

    Each memory counts once, whole, however many saved values are views of it.
    """
    return sum(size for _, size, _ in _kept(partition))


def explain_partition(partition: Partition) -> str:
    """What is saved for the backward and why, and what the backward computes again.

    >>> import aotlite as al
    >>> f = al.compile(lambda x: x.exp().sin().sum())
    >>> result = f(al.ones(4).requires_grad_())
    >>> print(explain_partition(f.partition))
    The forward has 3 ops, the backward 5.
    Saved for the backward: 1 value, 16 bytes beyond what inputs and results hold.
      saved_exp: f32[4], 16 bytes; saved because the backward uses it.
    Recomputed in the backward: nothing.
    """
    return unmarked("\n".join(_partition_lines(partition)))


def _partition_lines(partition: Partition) -> Iterator[str]:
    forward, backward = partition.forward, partition.backward
    if backward is None:
        reason = f": {partition.no_backward}" if partition.no_backward else ""
        yield f"The graph has {_ops(forward)} ops and is the forward; there is no backward{reason}."
        return
    yield f"The forward has {_ops(forward)} ops, the backward {_ops(backward)}."
    count = len(partition.saved)
    yield (
        f"Saved for the backward: {count} {'value' if count == 1 else 'values'}, "
        f"{saved_bytes(partition)} bytes beyond what inputs and results hold."
    )
    for value, size, remark in _kept(partition):
        text = f"{size} bytes" if size else "no bytes of its own"
        reason = f"; saved because {value.reason}" if value.reason else ""
        yield f"  saved_{value.name}: {meta_text(value.meta)}, {text}{remark}{reason}."
    if partition.saved_sizes:
        names = _listed(list(partition.saved_sizes))
        yield f"  As numbers, which no tensor of the backward has: {names}."
    again = [node for node in backward.calls if node.phase is Phase.FORWARD]
    yield f"Recomputed in the backward: {_recomputed_text(again, backward)}."
    asked = [n for n in backward.calls if n.phase is Phase.BACKWARD and n.recompute is True]
    if asked:
        yield f"Recomputed, as a checkpoint asks: {_recomputed_text(asked, backward)}."


def _ops(graph: Graph) -> int:
    return len(graph.calls)


def _recomputed_text(nodes: list[Node], graph: Graph) -> str:
    if not nodes:
        return "nothing"
    return ", ".join(f"{graph.names[node]} ({node.target.cost.value})" for node in nodes)


def _kept(partition: Partition) -> Iterator[tuple[SavedValue, int, str]]:
    """(saved value, bytes that it alone keeps alive, remark) of each."""
    nodes = [node for _, node in partition.forward.outputs_with(Saved)]
    first: dict[Node, str] = {}
    for value, node in zip(partition.saved, nodes, strict=True):
        memory = storage_root(node)
        held = _holder(value)
        if held:
            copied = ", copied if that is written before" * value.copied_on_write
            yield value, 0, f" (memory of {held}{copied})"
        elif memory in first:
            yield value, 0, f" (memory of saved_{first[memory]})"
        else:
            first[memory] = value.name
            remark = "" if memory is node else " (with all that it is a view of)"
            yield value, _memory_bytes(memory), remark


def _holder(value: SavedValue) -> str:
    match value.owner:
        # The bytes of an updated input are copied into it: what is saved is the graph's own copy.
        case None | MutatedInput():
            return ""
        case Output(index):
            return f"result {index}"
        case IntermediateBase(index):
            return f"intermediate base {index}"
    return str(value.owner)


def _memory_bytes(node: Node) -> int:
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    return meta.span * meta.dtype.itemsize
