"""Stage 1, capture: runs the user's function once, on fake tensors, and records every op.

Input: the function and its flat arguments. Output: `Captured`, which holds

    graph      imperative: views, in-place ops and detach are nodes, in the order in which they ran
    inputs     arguments, and hidden inputs: tensors reached through closures, globals, Modules
    results    flat, as fakes, whose live tape stage 4 runs; guards, hooks, `.grad` writes

No value is read: fakes have no data. Rules: GEN-7, GEN-8. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.eager.base.modes import STATE, eager_mode, mode_left_on
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import raising_refusals
from aotlite.eager.subclass.protocol import nesting
from aotlite.eager.tracked_objects import TrackedObject, observing
from aotlite.ir.errors import AotliteError, UnsupportedError, noted
from aotlite.ir.graph import Graph, output_node
from aotlite.ir.graph.role import Output
from aotlite.ir.symbols.assumption import Texts
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.stages.records.capture import ArgumentLeaf, Captured, Containers
from aotlite.stages.records.guards.snapshots import PLAIN
from aotlite.stages.records.symbolic_sizes import SymbolicSizes, computing, running, with_numbers
from aotlite.stages.records.trace import Trace
from aotlite.stages.s1_capture.environment.scan import watching
from aotlite.stages.s1_capture.hooks.dry_run import HookDryRun
from aotlite.stages.s1_capture.recorder import CaptureRecorder
from aotlite.stages.s1_capture.symbolic_floats import kind
from aotlite.stages.shared.user_frames import note_place


def capture(
    function: Callable[..., object],
    call: Callable[[list[Any]], object],
    leaves: Sequence[object],
    tensors: Sequence[tuple[int, Tensor]],
    flatten: Callable[[object], tuple[list[object], Containers]],
    name: str = "graph",
    sizes: SymbolicSizes | None = None,
) -> Captured:
    """Runs `call(leaves)` with the listed `tensors` replaced by fakes; returns what was recorded.
    Hidden inputs are searched in `function`; `flatten` returns flat results and their containers;
    `sizes` has symbols for sizes. Modes are restored on every exit. Raises UnsupportedError, with
    the user's line, for what cannot be captured; a fake that is stored keeps nothing alive then."""
    recorder = (CaptureRecorder if sizes is None else kind(sizes))(function, [*leaves], HookDryRun)
    recorder.sizes = sizes
    try:
        with running(sizes, Texts.HINTS):
            return _captured(recorder, call, leaves, tensors, flatten, name)
    except BaseException as error:
        recorder.around.numbers.put_numbers(recorder, error)
        abandon(recorder)
        raise


def abandon(recorder: Trace) -> None:
    """Empties the recorder of a failed capture.
    A fake that the function stored holds the recorder, which must not hold the arguments then."""
    CaptureRecorder.__init__(recorder, None, [], HookDryRun)  # type: ignore[arg-type]
    recorder.close()


def _captured(
    recorder: CaptureRecorder,
    call: Callable[[list[Any]], object],
    leaves: Sequence[object],
    tensors: Sequence[tuple[int, Tensor]],
    flatten: Callable[[Any], tuple[list[Any], Containers]],
    name: str,
) -> Captured:
    recorder.note_surroundings()
    faked = with_numbers(recorder.sizes, leaves)
    seen: dict[int, Tensor] = {}
    for index, tensor in sorted(tensors, key=lambda each: nesting(each[1])):  # inner tensors first
        fake = seen.get(id(tensor))
        if fake is None:
            fake = seen[id(tensor)] = recorder.add_argument(index, tensor)
        faked[index] = fake
    before, outer = STATE.grad_mode, (STATE.recorder, STATE.watch)
    STATE.recorder, STATE.watch = recorder, None  # hooks of the caller must not see fakes (GEN-8)
    try:
        with raising_refusals(recorder), observing(), computing(recorder.sizes), watching(recorder):
            flat, containers = flatten(call(faked))
            results = [_result(recorder, leaf, leaves) for leaf in flat]
            hooks = recorder.hooks.leaving(results)
        after = STATE.grad_mode
        if eager_mode():
            raise recorder.refuse(*mode_left_on())
    except AotliteError as error:
        note_place(error)
        raise
    finally:
        STATE.recorder, STATE.watch = outer
        STATE.grad_mode = before
    recorder.wrapped.check_parts()
    recorder.finish_guards()
    recorder.streams.end_forward()
    grads = recorder.grads.written(results)
    values = recorder.data.end() if recorder.sizes else ()
    counts = tuple(recorder.sizes.counts) if recorder.sizes and values else ()
    results += values
    recorder.grads.guard_unused()
    recorder.wrapped.put_in_order(recorder.inputs, recorder.placeholders)
    return Captured(
        _graph(recorder, results, counts, name),
        recorder,
        tuple(recorder.inputs),
        tuple(results),
        before,
        after,
        recorder.families.all(),
        recorder.families.without(),
        dict(recorder.reach.extents),
        grads=grads,
        hooks=hooks,
        containers=containers,
        computed_sizes=counts,
    )


def _result(recorder: CaptureRecorder, leaf: object, arguments: Sequence[object]) -> Any:
    if isinstance(leaf, Tensor):
        return recorder.here(leaf)
    for index, argument in enumerate(arguments):
        if argument is leaf and isinstance(leaf, TrackedObject):
            return ArgumentLeaf(index)
    leaf = bool(leaf) if isinstance(leaf, SymBool) else leaf
    if not isinstance(leaf, (*PLAIN, SymInt, SymFloat, SizeFloat)):
        raise noted(
            UnsupportedError(
                f"capture: the function returns {leaf!r} of type {type(leaf).__name__}, expected "
                "tensors, numbers, strings and None in lists, tuples and dicts"
            ),
            "Return the tensors it holds. (GEN-7)",
        )
    return leaf.plain() if type(leaf) is SymFloat else leaf


def _graph(
    recorder: CaptureRecorder, results: list[object], counts: tuple[str, ...], name: str
) -> Graph:
    values = [r.value if isinstance(r, Tensor) else None for r in results]
    own = len(values) - len(counts)
    roles = [*map(Output, range(own)), *[Output(own + k, s) for k, s in enumerate(counts)]]
    closing = output_node(values, roles)
    inputs = (*recorder.placeholders, *recorder.streams.placeholders())
    return Graph((*inputs, *recorder.nodes, closing), name)
