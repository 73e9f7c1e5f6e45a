"""Effects of a function that no exported graph has: changes of inputs, `.grad`s, hooks.

Rules: EXP-5, EXP-15. Spec: `specs/export.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir.errors import ExportError, noted
from aotlite.stages.records.metadata.function_facts import InputMeta, StateStep
from aotlite.stages.records.metadata.function_meta import FunctionMeta


def check_effects(
    meta: FunctionMeta, called: str, name: Callable[[Any], str], rule: str, *, hooks: bool = False
) -> None:
    """Refuses effects on inputs and results besides writes of values.

    `called` is the word for the function, `name` that for the value of a role. With `hooks` the
    graph computes gradients with the hooks on them. Raises ExportError.
    """
    for each in meta.inputs:
        if each.writes_metadata or each.changes:
            raise noted(
                ExportError(
                    f"export: {called} changes the metadata of {name(each.role)}"
                    f"{_change_text(each)}, expected no change but of values ({rule})"
                ),
                "Make a tensor of its own: a view, or x.detach().clone().requires_grad_().",
            )
    if meta.grads:
        raise noted(
            ExportError(
                f"export: {called} sets the .grad of {name(meta.grads[0].role)}, expected "
                f"gradients that are results ({rule})"
            ),
            "Return those of autograd.grad, or take aotlite.export.program, whose calls set .grad.",
        )
    for hook in meta.hooks:
        if not hooks or hook.kind == "accumulated":
            raise noted(
                ExportError(
                    f"export: {called} registers hook {hook.name} on {name(hook.role)}, expected "
                    f"none on inputs and results ({rule})"
                ),
                "Register it outside, on what runs the graph.",
            )


def _change_text(each: InputMeta) -> str:
    """What changes of an input: its geometry, its memory, or its autograd state."""
    if each.meta != each.final_meta:
        return f" from {each.meta} to {each.final_meta}"
    if each.writes_metadata and each.final_start:
        return f", {each.meta}: it begins {each.final_start} elements further on"
    for change in each.changes:
        if isinstance(change, StateStep):
            return f", {each.meta}: its autograd state, by .{change.value}"
        return f", {each.meta}: its memory, by {'resize_' if change.grows else 'set_'}()"
    return f", {each.meta}: its geometry, there and back"
