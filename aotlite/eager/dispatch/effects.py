"""Ops with effects in the eager engine: a call performs the effect at once.

A capture only records the call. Rules: TOK-1, TOK-6. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.nodes.op_nodes import calls_of
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch.array_functions import operands_of
from aotlite.eager.dispatch.pure import fakes, link_results, note_origin
from aotlite.ir.effects import EffectOp, TokenOp, library_of
from aotlite.ir.errors import TokenError, noted
from aotlite.ir.meta import TensorMeta


def run_effect(op: EffectOp, args: tuple[object, ...], recorder: Recorder | None) -> Any:
    """Performs or records an effect; returns its results, new tensors."""
    metas = op.result(args)
    refuse_in_region(op)
    single = type(metas) is TensorMeta
    if recorder is None:
        outs = _happened(op, args, metas)
    else:
        values = recorder.record(op, args, metas)
        outs = fakes(recorder, (values,) if single else values, (metas,) if single else metas)
    if op.vjp is not None and STATE.grad_mode:
        node = link_results(op, op.vjp, args, calls_of(op, op.key(args)), outs, metas)
        if node is not None:
            note_origin(node, outs[0].value if outs else None, recorder)
    return outs[0] if single else outs


def refuse_in_region(op: EffectOp | TokenOp) -> None:
    """Raises TokenError for an effect in a checkpointed region (TOK-6, CKP-7)."""
    if STATE.in_region:
        name = op.name if type(op) is EffectOp else op.of  # type: ignore[union-attr]
        raise noted(
            TokenError(
                f"{name}: the effect {op.effect!r} is in a region that is computed again in the "
                "backward, expected effects outside of such regions"
            ),
            "It would happen twice: call it before the region, or behind it. (TOK-6, CKP-7)",
        )


def run_token(op: TokenOp, args: tuple[object, ...], recorder: Recorder | None) -> Any:
    """The results of a `TokenOp` on tensors: printed graphs call them."""
    if recorder is not None:
        raise recorder.refuse(
            f"{op.name}, which pure graphs alone have,", f"call {op.of or 'an effect'} itself"
        )
    metas = op.result(args)
    outs = _happened(op, args, metas)
    return outs[0] if type(metas) is TensorMeta else outs


def _happened(op: EffectOp | TokenOp, args: tuple[Any, ...], metas: Any) -> tuple[Tensor, ...]:
    arrays = library_of(op, args)
    found = arrays.quiet(op.kernel, arrays, metas, *operands_of(args))
    each = (metas,) if type(metas) is TensorMeta else metas
    given = (found,) if type(metas) is TensorMeta else found
    pairs = zip(given, each, strict=True)
    return tuple(
        [Tensor(Storage(meta.device.arrays.adopt(one, meta)), meta) for one, meta in pairs]
    )
