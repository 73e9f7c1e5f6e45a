"""Checks that replaying a view chain on a wrapper gives the view that the program made.

A result that is a view of a wrapper is rebuilt at run time by its class, step by step, with
`slice` for a `split` and `select` for an `unbind`. The class might treat these differently. So the
chain is replayed once at compile time, and compared. Used by `subclass_parts` alone.
Rules: SUB-17, RT-6. Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.eager.base.modes import STATE, recording
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.meta.symbolic import same_meta
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    ViewFacts,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.trace import Trace


def check_views(captured: Captured, meta: FunctionMeta) -> None:
    """Raises SubclassError for a result that its replayed view chain does not give."""
    for index, output in enumerate(meta.outputs):
        result = captured.results[index]
        if isinstance(output, Alias) and is_wrapper(result):
            origin = _origin(captured, meta, output)
            if origin is not None:
                _check(captured.recorder, index, origin, output.view, result)


def _origin(captured: Captured, meta: FunctionMeta, output: Alias) -> Tensor | None:
    """The wrapper that a result is rebuilt from."""
    match output:
        case AliasOfInput(role):
            fakes = [each.fake for each in captured.inputs if each.role == role]
            return fakes[0]
        case AliasOfBase(base):
            node = meta.bases[base].node
            return None if node is None else captured.recorder.wrapped.nodes.get(node)
        case AliasOfOutput(of):
            before: Tensor = captured.results[of]
            return before
    return None


def _check(recorder: Trace, index: int, origin: Tensor, view: ViewFacts, result: Tensor) -> None:
    try:
        again = _replayed(recorder, origin, view)
    except SubclassError as error:
        raise _refused(index, result, str(error)) from error
    what = _difference(result, again, {id(leaf.storage) for _, leaf in _leaves(origin, "")})
    if what is not None:
        raise _refused(index, result, what)


def _replayed(recorder: Trace, origin: Tensor, view: ViewFacts) -> Tensor:
    """The chain applied to the origin; the nodes recorded for it are removed."""
    start, mode = len(recorder.nodes), STATE.grad_mode
    STATE.grad_mode = None if mode is None else False
    try:
        with recording(recorder):
            for step in view.chain:
                origin = origin._apply(step.op, (origin, *step.args))
    finally:
        STATE.grad_mode = mode
        del recorder.nodes[start:]
    return origin


def _difference(one: Tensor, other: Tensor, shared: set[int]) -> str | None:
    """A difference of two views in class, spec, or the geometry or storage of parts; else None."""
    if type(other) is not type(one):
        return f"it gives a {type(other).__name__}"
    names, spec = flatten(one)
    found = flatten(other)
    if found[0] != names or not found[1] == spec:
        return f"parts {found[0]} and spec {found[1]!r}, and not {names} and {spec!r}"
    for (path, mine), (_, its) in zip(_leaves(one, ""), _leaves(other, ""), strict=False):
        if not same_meta(mine.meta, its.meta):
            return f"part {path!r} is {its.meta}, and not {mine.meta}"
        moved = mine.storage is not its.storage or mine.offset != its.offset
        if id(mine.storage) in shared and moved:
            return f"part {path!r} is another window"
    return None


def _leaves(tensor: Tensor, path: str) -> Iterator[tuple[str, Tensor]]:
    for name, inner in inner_tensors(tensor).items():
        if is_wrapper(inner):
            yield from _leaves(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", inner


def _refused(index: int, result: Tensor, what: str) -> Exception:
    return noted(
        SubclassError(
            f"compile: result {index} is a view of a wrapper, a {type(result).__name__}, and "
            f"replaying its views gives another one: {what}, expected the same view of slice as of "
            "split, and the like"
        ),
        "A result that is a view is rebuilt by single ops: slice for split, select for unbind. "
        "Let the class do the same for both, or return a clone(). (SUB-17)",
    )
