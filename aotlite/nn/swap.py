"""`functional_call`: a module called with other tensors in the places of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import Place, own_attributes, substituting
from aotlite.ir.errors import ArgumentError
from aotlite.nn.module import Module, state_places


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor],
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
) -> Any:
    """`module(*args, **kwargs)` with these tensors read for the parameters and buffers named.

    Names are those of `named_parameters` and `named_buffers`; all names of a tied tensor are
    replaced. No attribute is written, other threads see the module's own tensors, and writes in
    place go to the tensors given. Raises ArgumentError for unknown names and values of other kinds.

    >>> import aotlite as al
    >>> layer = al.nn.Linear(2, 1, bias=False)
    >>> functional_call(layer, {"weight": al.ones(1, 2)}, (al.ones(2),)).tolist()
    [2.0]
    """
    values = dict(_substitutes(module, parameter_and_buffer_dicts))
    with substituting(values):
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))


def call_on_state(
    module: Module, state: Mapping[str, Tensor], args: tuple[object, ...], kwargs: Any
) -> Any:
    """`module(*args, **kwargs)`, where `state` are its own tensors, which a capture has replaced.

    A write of one of these attributes is that of `forward`: it is done, or refused by the capture.
    """
    with substituting(dict(_substitutes(module, state)), writes_through=True):
        return module(*args, **kwargs)


def _substitutes(module: Module, tensors: Mapping[str, Tensor]) -> Iterator[tuple[Place, Tensor]]:
    places = list(state_places(module))
    originals = {place.path: own_attributes(place.owner)[place.name] for place in places}
    chosen: dict[int, Tensor] = {}
    for path, value in tensors.items():
        if path not in originals:
            raise ArgumentError(
                f"functional_call: {path!r} is no parameter or buffer of {type(module).__name__}, "
                f"expected one of {', '.join(originals)}"
            )
        if not isinstance(value, Tensor):
            raise ArgumentError(f"functional_call: {path!r} is {value!r}, expected a tensor")
        if chosen.setdefault(id(originals[path]), value) is not value:
            raise ArgumentError(
                f"functional_call: {path!r} is tied to a name with another tensor, expected one "
                "tensor for both"
            )
    for place in places:
        original = id(originals[place.path])
        if original in chosen:
            yield (id(place.owner), place.name), chosen[original]
