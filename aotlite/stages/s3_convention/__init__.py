"""Stage 3, convention: the inputs of the compiled forward, in order.

Input: `Captured` and `FunctionMeta`. Output: `Convention`, whose inputs are

    synthetic bases · other arguments · other hidden inputs · seed and offset

Synthetic bases replace overlapping inputs of which one is written, and inputs beyond which
as_strided reaches. The parts of a wrapper stand in its place. Seed and offset are there if random
ops are. A tensor passed twice is one input: guards fix which arguments are the same object
(DUP-1, DUP-2). Spec: `specs/s3_convention.md`.
"""

from __future__ import annotations

from aotlite.ir.graph.role import Offset, Role, Seed
from aotlite.ir.op import RandomOp
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s3_convention.synthetic_bases import plan_bases
from aotlite.stages.shared.effect_tokens import forward_tokens


def convention(captured: Captured, meta: FunctionMeta) -> Convention:
    """The calling convention of a captured function."""
    wrappers = captured.recorder.wrapped.parts
    bases = plan_bases(captured, meta)
    merged = {member.role for base in bases for member in base.members}
    roles: list[Role] = [base.role for base in bases]
    roles += [
        each.role for each in meta.inputs if each.role not in merged and each.role not in wrappers
    ]
    streams = captured.recorder.streams
    draws = any(isinstance(node.target, RandomOp) for node in captured.graph.nodes)
    if draws or Seed in streams.inputs:
        roles += [Seed(), Offset()]
    after = streams.after_forward()
    consumed = 0 if after is None else after.consumed()
    return Convention(
        tuple(roles),
        0 if consumed is None else consumed,
        bases,
        forward_tokens(captured),
        sets_generator=consumed is None,
    )
