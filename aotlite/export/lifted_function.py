"""A Module as a function of its state, which is captured for an export.

    lifted([weight, bias, count], (x,), {})  ->  [[new count], [result, ...], [gradient, ...]]

Parameters and buffers are arguments in front of the user's. A buffer that `forward` assigns is
returned like one that it writes. For a joint export the gradients of the loss are computed inside.
Rules: EXP-1, EXP-12, EXP-17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.autograd import grad
from aotlite.descriptors.argument_words import ArgumentWords
from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tracked_objects import Place, own_attributes, substituting
from aotlite.ir.errors import ExportError, noted
from aotlite.ir.symbols.symint import SymInt
from aotlite.nn.module import Module, state_places
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.pipeline.arguments import flattened


@attrs.frozen(eq=False)
class LiftedState:
    """The parameters and buffers of a Module, each tensor once, parameters first."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    places: tuple[tuple[Place, ...], ...]
    """For each tensor the attributes that hold it."""
    tied: Mapping[str, str]

    @classmethod
    def of(cls, module: Module) -> LiftedState:
        """The state of a Module, in the order in which it names it."""
        found: dict[int, list[Any]] = {}
        held = {each: own_attributes(each.owner)[each.name] for each in state_places(module)}
        for kind in (Parameter, Buffer):
            for each, tensor in held.items():
                if isinstance(tensor, kind):
                    found.setdefault(id(tensor), [tensor]).append(each)
        names = [each[1].path for each in found.values()]
        tied = {more.path: each[1].path for each in found.values() for more in each[2:]}
        places = [tuple([(id(p.owner), p.name) for p in each[1:]]) for each in found.values()]
        return cls(tuple(names), tuple([e[0] for e in found.values()]), tuple(places), tied)

    def check_apart(self, leaves: Sequence[object], words: ArgumentWords) -> None:
        """Raises ExportError for an argument that is a parameter or buffer itself: the graph has
        one input for both, and a caller could pass another tensor (EXP-1)."""
        names = {id(each): name for name, each in zip(self.names, self.tensors, strict=True)}
        for word, leaf in zip(words.leaves[words.count :], leaves, strict=True):
            if isinstance(leaf, Tensor) and id(leaf) in names:
                raise noted(
                    ExportError(
                        f"export: argument {word} is {names[id(leaf)]!r} of the Module, "
                        "expected another tensor"
                    ),
                    "Pass a clone of it, or let forward read the Module's own. (EXP-1)",
                )

    @property
    def parameters(self) -> int:
        """How many of the tensors are parameters."""
        return sum(isinstance(each, Parameter) for each in self.tensors)


@attrs.define(eq=False)
class LiftedFunction:
    """The function that is captured; what it has seen of one call stays in its fields."""

    module: Module
    state: LiftedState
    loss: int | None
    """The index of the loss among the results; None for an export without gradients."""
    out_spec: Any = None
    assigned: tuple[int, ...] = ()
    """The numbers of the buffers that were assigned."""
    reached: tuple[bool, ...] = ()
    """For each tensor that requires grad whether the loss reaches it."""
    are_tensors: tuple[bool, ...] = ()
    """Of each result whether it is a tensor."""

    @property
    def __name__(self) -> str:
        """The name of the Module's class."""
        return type(self.module).__name__

    def __call__(self, state: Sequence[Tensor], args: Any, kwargs: Any) -> Any:
        values = {
            place: tensor
            for tensor, places in zip(state, self.state.places, strict=True)
            for place in places
        }
        inputs = [*state, *leaves_of((args, kwargs))]
        # Before the call: an input that a parameter is written into requires grad behind it.
        wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        with substituting(values) as now:
            result = self.module(*args, **kwargs)
            new = self._assigned(state, now)
        flat = self._results(result)
        gradients = [] if self.loss is None else self._gradients(flat, wanted)
        with no_grad():
            return [[_own(each) for each in results] for results in (new, flat, gradients)]

    def _assigned(self, state: Sequence[Tensor], now: Mapping[Place, object]) -> list[Any]:
        """The new values of the buffers that were assigned, in their own order (EXP-13)."""
        found = {}
        for number, (tensor, places) in enumerate(zip(state, self.state.places, strict=True)):
            values = [now[place] for place in places]
            if any(value is not tensor for value in values):
                name = self.state.names[number]
                if isinstance(self.state.tensors[number], Parameter):
                    raise ExportError(
                        f"export: forward assigns parameter {name!r}, expected one that it reads"
                    )
                also = [more for more, one in self.state.tied.items() if one == name]
                _check_assigned(name, also, tensor, values)
                found[number] = values[-1]
        self.assigned = tuple(found)
        return list(found.values())

    def _results(self, result: Any) -> list[Any]:
        if not isinstance(result, (tuple, list)):
            raise noted(
                ExportError(
                    f"export: the Module returns a {type(result).__name__}, expected a tuple or a "
                    "list of results"
                ),
                "Return (result,). (EXP-4)",
            )
        flat, self.out_spec = flattened(result, "the results")
        self.are_tensors = tuple([isinstance(each, Tensor) for each in flat])
        for number, each in enumerate(flat):
            if isinstance(each, Tensor) and is_wrapper(each):
                raise noted(
                    ExportError(
                        f"export: result {number} is a {type(each).__name__}, expected plain "
                        "tensors"
                    ),
                    "Return its parts, or the dense tensor of its values. (EXP-5)",
                )
            if not (each is None or isinstance(each, (Tensor, bool, int, float, SymInt))):
                raise ExportError(
                    f"export: result {number} is {each!r}, expected a tensor, a number or None"
                )
        return flat

    def _gradients(self, flat: list[Any], wanted: list[Tensor]) -> list[Tensor]:
        assert self.loss is not None
        loss = _checked_loss(flat, self.loss)
        found = grad([loss], wanted, allow_unused=True)
        self.reached = tuple([each is not None for each in found])
        return [each for each in found if each is not None]


def _check_assigned(name: str, also: Sequence[str], old: Tensor, values: Sequence[Any]) -> None:
    """Refuses a new value that is none of the buffer's kind, or that not all its names get.
    Raises ExportError (EXP-12)."""
    new = values[-1]
    if any(value is not new for value in values):
        raise noted(
            ExportError(
                f"export: forward assigns buffer {name!r} under one of its names and not under all "
                f"of them, {', '.join([name, *also])}, expected one new value"
            ),
            "Write it in place (copy_), or assign all names the same Buffer. (EXP-12)",
        )
    is_plain = isinstance(new, Tensor) and not is_wrapper(new)
    if not is_plain or new.dtype is not old.dtype or tuple(new.shape) != tuple(old.shape):
        got = new.meta if is_plain else type(new).__name__ if isinstance(new, Tensor) else new
        raise noted(
            ExportError(
                f"export: forward assigns {got} to buffer {name!r}, expected a Buffer of the "
                f"dtype and shape that it has, {old.meta}"
            ),
            "The graph takes each new value as its next input. (EXP-12)",
        )


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of nested containers, None among them."""
    return flattened(tree, "the arguments")[0]


def _own(result: Any) -> Any:
    """A copy, so that each result is an output of its own, and no view that the runtime makes."""
    return result.clone() if isinstance(result, Tensor) else result


def _checked_loss(flat: list[Any], index: int) -> Tensor:
    """The loss; every other result must need no gradient (EXP-4)."""
    if not -len(flat) <= index < len(flat) or not isinstance(flat[index], Tensor):
        raise ExportError(
            f"export: output_loss_index is {index}, expected the index of a tensor among "
            f"{len(flat)} results"
        )
    loss: Tensor = flat[index]
    if not loss.requires_grad:
        raise ExportError(
            f"export: result {index}, the loss, needs no gradient, expected one that depends on a "
            "parameter or input that requires grad"
        )
    if loss.numel() != 1 or loss.ndim:
        raise ExportError(
            f"export: result {index}, the loss, has shape {loss.shape}, expected one number: ()"
        )
    for number, each in enumerate(flat):
        if isinstance(each, Tensor) and each.requires_grad and each is not loss:
            raise noted(
                ExportError(
                    f"export: result {number}, of shape {each.shape}, requires grad besides the "
                    "loss, expected one that is detached"
                ),
                "Return result.detach(): only the loss has gradients in the graph. (EXP-4)",
            )
    return loss
