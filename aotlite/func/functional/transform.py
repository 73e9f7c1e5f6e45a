"""`functionalize(f)`: a function like `f`, in which no op writes.

It runs `f` in a functional mode, copies what `f` wrote into the arguments at the end, and makes the
results anew: `FunctionalRecorder`. Rules: FNT-1 to FNT-12.
Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import optree

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import raising_refusals
from aotlite.func.functional.argument_containers import ArgumentContainers, tensors_in
from aotlite.func.functional.functional_recorder import FunctionalRecorder
from aotlite.func.functional.view_program import ViewProgram
from aotlite.ir.errors import ArgumentError
from aotlite.pipeline.arguments import flattened

REMOVES = ("mutations", "mutations_and_views")


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function that does what `func` does, by ops that write nothing.

    Writes to arguments, and to tensors that `func` reaches otherwise, become one `copy_` each, at
    the end. Results alias the arguments and each other as those of `func` do.
    `remove="mutations_and_views"` also has a copy taken of each view, so that no two values that
    are computed share memory. Raises UnsupportedError for what FNT-11 lists.

    >>> import aotlite as al
    >>> def f(x):
    ...     row = x[0]
    ...     row.add_(1.0)
    ...     return row, x.sum()
    >>> x = al.zeros(2, 3)
    >>> row, total = al.func.functionalize(f)(x)
    >>> row.base is x, total.item(), x.tolist()
    (True, 3.0, [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    """
    if not callable(func):
        raise ArgumentError(f"functionalize: func is {func!r}, expected a function")
    if remove not in REMOVES:
        raise ArgumentError(
            f"functionalize: remove is {remove!r}, expected 'mutations' or 'mutations_and_views'"
        )

    @wraps(func)
    def functionalized(*args: Any, **kwargs: Any) -> Any:
        recorder = FunctionalRecorder(removes_views=remove == "mutations_and_views")
        try:
            return _called(recorder, func, args, kwargs)
        finally:
            recorder.closed = True

    return functionalized


def _called(
    recorder: FunctionalRecorder, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    containers = ArgumentContainers()
    recorder.look_at(tensors_in((args, kwargs, _closure_of(func))))
    try:
        mine, mine_by_name = [containers.inside(each, recorder.here) for each in (args, kwargs)]
        leaves, spec = _run(recorder, func, mine, mine_by_name)
        leaves = _finished(recorder, leaves, containers)
    except BaseException:
        containers.take_back()
        raise
    return optree.tree_unflatten(spec, leaves)


def _run(
    recorder: FunctionalRecorder, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> tuple[list[Any], Any]:
    """The results as stand-ins, and how they are nested."""
    before = STATE.recorder, STATE.watch
    STATE.recorder, STATE.watch = recorder, None
    try:
        with raising_refusals(recorder):
            leaves, spec = flattened(func(*args, **kwargs), "the results")
        leaves = [recorder.here(x) if isinstance(x, Tensor) else x for x in leaves]
        recorder.changes.check()
    except BaseException:
        recorder.take_back()
        raise
    finally:
        STATE.recorder, STATE.watch = before
    return leaves, spec


def _closure_of(func: Callable[..., Any]) -> list[Any]:
    """The values of the variables around a function, where they are set."""
    found = []
    for cell in getattr(func, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not set yet
            continue
    return found


def _finished(
    recorder: FunctionalRecorder, leaves: list[Any], containers: ArgumentContainers
) -> list[Any]:
    """Writes what the function wrote, and returns the results for the caller."""
    grads = list(recorder.grads.now.values())
    tensors = [*[leaf for leaf in leaves if isinstance(leaf, Tensor)], *containers.tensors()]
    own = [each for each in tensors if each._grad is not None and id(each) not in recorder.given]
    of_grads = [*[grad for _, grad in grads], *[each._grad for each in own]]
    given = [each for each, _, _ in recorder.entries if id(each) in recorder.given]
    program = ViewProgram(recorder)
    program.run(
        [*given, *recorder.grown, *tensors, *[grad for grad in of_grads if grad is not None]]
    )
    objects = program.objects
    for stand_in, grad in [*grads, *[(each, each._grad) for each in own]]:
        objects[id(stand_in)].grad = None if grad is None else objects[id(grad)]
    containers.put(objects)
    recorder.changes.let_go()
    return [objects[id(x)] if isinstance(x, Tensor) else x for x in leaves]
