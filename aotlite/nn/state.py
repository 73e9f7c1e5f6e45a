"""`load_state`: copies a state, tensors by name, into existing tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import tensor
from aotlite.ir.errors import ArgumentError


@attrs.frozen
class Problems:
    """The names without a match: PyTorch's missing and unexpected keys."""

    missing_keys: list[str]
    """The owner's names that the state lacks."""
    unexpected_keys: list[str]
    """The state's names that the owner lacks."""


def load_state(
    owner: str, own: Mapping[str, Tensor], state: Mapping[str, object], *, strict: bool
) -> Problems:
    """Copies `state` into the tensors of `own` in place; returns the names without a match.

    Raises ArgumentError, which lists all problems, before anything is written.
    """
    problems = Problems(
        [name for name in own if name not in state], [name for name in state if name not in own]
    )
    shared = {name: (own[name], state[name]) for name in own if name in state}
    complaints = _mismatches(shared)
    if strict:
        complaints = [*_listed(problems), *complaints]
    if complaints:
        raise ArgumentError(
            f"load_state_dict: the state does not fit {owner}, expected its names and shapes; "
            + "; ".join(complaints)
        )
    with no_grad():
        for target, value in shared.values():
            target.copy_(value if isinstance(value, Tensor) else tensor(value))
    return problems


def _listed(problems: Problems) -> Iterator[str]:
    if problems.missing_keys:
        yield f"missing: {', '.join(problems.missing_keys)}"
    if problems.unexpected_keys:
        yield f"unexpected: {', '.join(problems.unexpected_keys)}"


def _mismatches(shared: Mapping[str, tuple[Tensor, object]]) -> list[str]:
    complaints = []
    for name, (target, value) in shared.items():
        if not isinstance(value, (Tensor, np.ndarray, np.generic)):
            complaints.append(f"mismatched: {name} is {value!r}, expected a tensor or an array")
        elif tuple(value.shape) != target.shape:
            shape = tuple(value.shape)
            complaints.append(f"mismatched: {name} has shape {shape}, expected {target.shape}")
    return complaints
