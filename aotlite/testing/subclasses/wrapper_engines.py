"""Programs on wrappers, and on their meanings: two engines for `aotlite.testing.programs`.

On `Wrapped`, a program makes wrappers if the class accepts the tensors; on `Meant`, their meanings
in one world. The observations of the two have to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch.destinations import check_operand
from aotlite.eager.subclass.protocol import filled, is_wrapper
from aotlite.ir.errors import AotliteError
from aotlite.testing.engines.eager import AotliteEngine
from aotlite.testing.programs.numbers import numbers
from aotlite.testing.programs.vocabulary import OTHER_VIEWS, WINDOW_OPS
from aotlite.testing.subclasses.kinds import Meanings
from aotlite.testing.subclasses.masked_model import (
    MaskedModel,
    data_of,
    everywhere,
    mask_of,
    models_in,
)


class Wrapped(AotliteEngine):
    """aotlite's eager library with wrappers as tensors; observations are those of one world."""

    name = "wrappers"

    def __init__(
        self,
        make: Callable[[Tensor], Tensor],
        meanings: Meanings,
        world: int = 0,
        *,
        signed: bool = True,
    ) -> None:
        super().__init__()
        self.make_of = make
        self.meanings = meanings
        self.world = world
        self.signed = signed
        """Whether the signs of zeros are compared."""

    def make(self, values: list[object], shape: Sequence[int], dtype: str, *, grad: bool) -> Any:
        dense = super().make(values, shape, dtype, grad=False)
        try:
            made = self.make_of(dense)
        except AotliteError:
            made = dense
        return made.requires_grad_() if grad else made

    def storage_of(self, tensor: Any) -> int:
        return id(tensor.storage) if is_wrapper(tensor) else super().storage_of(tensor)

    def bytes_of(self, tensor: Any) -> bytes:
        worlds = self.meanings.worlds(tensor.detach())
        return self.bytes_in(worlds[self.world if len(worlds) > 1 else 0])

    def bytes_in(self, world: Any) -> bytes:
        """The elements of a dense tensor or a model, with zeros for those that do not count."""
        dense = world.filled() if isinstance(world, MaskedModel) else world
        array = np.asarray(dense.detach().array)
        if not self.signed and array.dtype.kind in "fc":
            array = array + array.dtype.type(0)
        return array.tobytes()

    def backward(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Runs a backward, with gradients of the tensors' classes that are equal in each world."""
        given = [self.dense_like(each, k) for k, each in enumerate(gradients)]
        ones = [filled(each.detach(), 1, each.dtype) for each in tensors if is_wrapper(each)]
        forms = iter(ones)
        super().backward(
            tensors,
            [
                grad * next(forms) if is_wrapper(each) else grad
                for each, grad in zip(tensors, given, strict=True)
            ],
        )

    def dense_like(self, tensor: Any, seed: int) -> Tensor:
        """Small numbers in a tensor's shape and dtype."""
        dtype = str(tensor.dtype).rpartition(".")[2].rstrip("_")
        values = numbers(tensor.numel(), 11 + seed, dtype)
        return AotliteEngine.make(self, values, tuple(tensor.shape), dtype, grad=False)

    def __reduce__(self) -> Any:
        return type(self), (self.make_of, self.meanings, self.world)


class Meant(Wrapped):
    """aotlite's eager library, without wrappers: dense tensors and models of masked ones."""

    name = "meanings"

    def __init__(
        self,
        make: Callable[[Tensor], Tensor],
        meanings: Meanings,
        world: int = 0,
        *,
        signed: bool = True,
    ) -> None:
        super().__init__(make, meanings, world, signed=signed)
        self.tensor_type = (al.Tensor, Model)  # type: ignore[assignment]
        self.models: dict[int, Model] = {}

    def make(self, values: list[object], shape: Sequence[int], dtype: str, *, grad: bool) -> Any:
        made = super().make(values, shape, dtype, grad=False)
        worlds = self.meanings.worlds(made)
        found = worlds[self.world if len(worlds) > 1 else 0]
        if isinstance(found, MaskedModel):
            data = al.ops.restride(_fresh(found.data), made.stride())
            return self.model(data.requires_grad_() if grad else data, found.mask)
        if is_wrapper(made):
            found = al.ops.restride(_fresh(found), made.stride())
        return found.requires_grad_() if grad else found

    def model(self, data: Tensor, mask: Tensor) -> Model:
        """The model of this data: always the same object."""
        found = self.models.get(id(data))
        if found is None:
            laid = mask if mask.stride() == data.stride() else _laid(mask, data)
            found = self.models[id(data)] = Model(data, laid, self)
        return found

    def call(self, op: str, args: Sequence[object]) -> Any:
        if not any(True for _ in models_in(tuple(args))):
            return super().call(op, args)
        if op == "setitem":
            x, index, value = args
            self.call("copy_" if isinstance(value, (Tensor, Model)) else "fill_",
                      [self.call("getitem", [x, index]), value])  # fmt: skip
            return x
        if op.endswith("_") and op != "requires_grad_":
            return self._write(op, args)
        found = self._pure(op, args)
        return tuple(found) if isinstance(found, (tuple, list)) else found

    def _pure(self, op: str, args: Sequence[Any]) -> object:
        first = args[0]
        if op == "requires_grad_":
            first.data.requires_grad_()
            return first
        if op == "sum":
            whole = first.filled().sum(*args[1:])
            return self.model(whole, first.mask.any(*args[1:]))
        dense = super().call(op, data_of(list(args)))
        if op in VIEWS:
            masks = super().call(op, mask_of([first, *args[1:]]))
            if isinstance(dense, (tuple, list)):
                return [self.model(*pair) for pair in zip(dense, masks, strict=True)]
            return self.model(dense, masks)
        return self.model(dense, everywhere(args, dense.shape))

    def _write(self, op: str, args: Sequence[Any]) -> object:
        """Writes the elements that all operands keep; the mask stays."""
        target = args[0]
        if op in ("fill_", "zero_"):
            super().call(op, [target.data, *args[1:]])
            return target
        if op == "copy_" and args[1] is target:
            super().call(op, [target.data, target.data])
            return target
        self._probe(op, args)
        # Gradients read the values from before the write.
        args = [target, *[_apart(each, target) for each in args[1:]]]
        if op == "copy_":
            value = data_of(args[1]).to(target.data.dtype).expand(target.data.shape)
            mask = everywhere(args, value.shape)
        else:
            dense = [target.data.clone(), *data_of(list(args[1:]))]
            value = _functional(self, op, dense)
            value, mask = value.to(target.data.dtype), everywhere(args, value.shape)
        target.data.copy_(al.where(mask, value, target.data))
        return target

    def _probe(self, op: str, args: Sequence[object]) -> None:
        """Raises the error of the op on dense tensors: a lower kind, or partial overlap."""
        target, others = data_of(args[0]), data_of(list(args[1:]))
        with al.no_grad():
            super().call(op, [target.detach().clone(), *others])
        for other in others:
            if isinstance(other, Tensor) and other.storage is target.storage:
                check_operand(op, target, other, ())

    def backward(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> None:
        given = [self.dense_like(each, k) for k, each in enumerate(gradients)]
        given = [
            al.where(each.mask, grad, 0.0) if isinstance(each, Model) else grad
            for each, grad in zip(tensors, given, strict=True)
        ]
        AotliteEngine.backward(self, [data_of(each) for each in tensors], given)

    def storage_of(self, tensor: object) -> int:
        return super().storage_of(data_of(tensor))

    def version_of(self, tensor: object) -> int:
        return super().version_of(data_of(tensor))

    def base_of(self, tensor: object) -> Any:
        base = super().base_of(data_of(tensor))
        return self.models.get(id(base), base)

    def bytes_of(self, tensor: object) -> bytes:
        return self.bytes_in(tensor)


class Model(MaskedModel):
    """A model with the attributes of a tensor."""

    def __init__(self, data: Tensor, mask: Tensor, library: Meant) -> None:
        super().__init__(data, mask)
        self.library = library

    def detach(self) -> Any:
        return self.library.call("detach", [self])

    @property
    def grad(self) -> Any:
        return self.data.grad

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_"):
            return lambda *args: self.library.call(name, [self, *args])
        return getattr(self.data, name)


def _fresh(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _laid(mask: Tensor, data: Tensor) -> Tensor:
    """The mask in the layout of the data, if a new tensor can have that layout."""
    if 0 in data.stride() and data.numel():
        return mask
    return al.ops.restride(mask, data.stride())


def _apart(value: object, target: Any) -> Any:
    """A copy of a value on the target's storage; any other value as it is."""
    if isinstance(value, MaskedModel) and value.data.storage is target.data.storage:
        return MaskedModel(value.data.clone(), value.mask)
    return value


def _functional(library: Meant, op: str, args: list[Any]) -> Any:
    if op == "index_put_":
        return args[0].index_put(tuple(args[1]), args[2])
    return AotliteEngine.call(library, op[:-1], args)


VIEWS = WINDOW_OPS | OTHER_VIEWS | {"clone"}
"""The ops that move elements; masks move likewise."""
