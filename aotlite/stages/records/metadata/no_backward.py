"""The reason why a function has no backward graph, in words (GEN-5).

Used by the pipeline and by `explain_text`. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from aotlite.stages.records.metadata.function_facts import FunctionFacts, Plain


def why_no_backward(meta: FunctionFacts) -> str | None:
    """The reason why no backward graph is made; None where one is."""
    if meta.training:
        raises = f"every backward raises, as in eager ({meta.failure})"
        return raises if meta.failure else None
    if not any(each.requires_grad for each in meta.inputs):
        return "no input requires grad"
    if meta.tangents:
        return "no gradient reaches an input"
    if all(isinstance(each, Plain) for each in meta.outputs):
        return "nothing that it returns is differentiable"
    return (
        "all that is differentiable is inputs and views of inputs, which the tape links when they "
        "are rebuilt"
    )
