"""Parameter groups: mappings with "params", and options that differ from the defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ArgumentError


@attrs.frozen
class Members:
    """A group: parameters that share their options."""

    params: tuple[Tensor, ...]
    options: Mapping[str, Any]


def members_of(name: str, params: Iterable[Any], defaults: Mapping[str, object]) -> list[Members]:
    """The groups of an optimizer's first argument: mappings, or tensors, which are one group.

    Raises ArgumentError for a mapping without "params" or with an option that is not in `defaults`.
    """
    if isinstance(params, (Tensor, Mapping)):
        kind = "tensor" if isinstance(params, Tensor) else "group"
        raise ArgumentError(f"{name}: params is one {kind}, expected several, e.g. [{kind}]")
    given = list(params)
    if not given or not isinstance(given[0], Mapping):
        return [Members(tuple(given), defaults)]
    return [_member(name, i, group, defaults) for i, group in enumerate(given)]


def _member(name: str, index: int, group: object, defaults: Mapping[str, object]) -> Members:
    where = f"{name}: group {index}"
    if not isinstance(group, Mapping) or "params" not in group:
        raise ArgumentError(f"{where} is {group!r}, expected a mapping with 'params'")
    for option in group:
        if option != "params" and option not in defaults:
            known = ", ".join(["params", *defaults])
            raise ArgumentError(f"{where} has the option {option!r}, expected one of {known}")
    params = group["params"]
    own = (params,) if isinstance(params, Tensor) else tuple(params)
    return Members(own, {**defaults, **{k: v for k, v in group.items() if k != "params"}})
