"""`ProgramState`: the tensors that a program reaches outside its arguments, as its own.

Parameters, buffers, the state of optimizers, tensors of closures: each has the path by which the
function reached it. A copy keeps which of them share memory. Spec: `specs/programs.md`, PRG-3.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

import attrs
import numpy as np

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.arrays.device import CPU
from aotlite.ir.errors import AotliteError, ArgumentError, ExportError, noted
from aotlite.ir.graph.files.values import Said, Unread, count_from
from aotlite.ir.meta import TensorMeta
from aotlite.nn.parameter import Buffer, Parameter, TransientBuffer

KINDS: Final[Mapping[str, type[Tensor]]] = {
    kind.__name__: kind for kind in (Tensor, Parameter, Buffer, TransientBuffer)
}
"""The classes of tensors of a state."""


class Slots:
    """The place where the entries of a program find its state: attribute `tensors`, by number."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors


def slot(number: int) -> tuple[tuple[str, Any], ...]:
    """The steps from `Slots` to a tensor."""
    return ("attr", "tensors"), ("item", number)


@attrs.frozen
class StateTensor:
    """One tensor of a state."""

    path: str
    """Its path in the function: `opt.params[0]`."""
    tied: tuple[str, ...] = ()
    """Further paths by which the function reached it."""
    gradient_of: int | None = None
    """The number of the state's tensor whose `.grad` it is."""


class ProgramState(MutableMapping[str, Tensor]):
    """The state by path; a tied path is one more name of its tensor.

    Assigning puts another tensor in the place of one: of the same shape, dtype and device.
    """

    def __init__(self, entries: Sequence[StateTensor], slots: Slots) -> None:
        self.entries = tuple(entries)
        self.slots = slots
        self._numbers = {
            path: k for k, each in enumerate(entries) for path in (each.path, *each.tied)
        }

    def __getitem__(self, path: str) -> Tensor:
        if path not in self._numbers:
            raise ArgumentError(
                f"program: there is no state {path!r}, expected one of {', '.join(self._numbers)}"
            )
        return self.slots.tensors[self._numbers[path]]

    def check(self, path: str, value: Tensor) -> None:
        """Raises ArgumentError for a tensor that cannot take the place of the one at a path."""
        before = self[path]
        if not isinstance(value, Tensor):
            got = type(value).__name__
            raise ArgumentError(f"program: state {path!r} is a {got}, expected a tensor")
        if value.meta is not before.meta or value.requires_grad is not before.requires_grad:
            raise ArgumentError(
                f"program: state {path!r} is {_words(value)}, expected {_words(before)}"
            )

    def __setitem__(self, path: str, value: Tensor) -> None:
        self.check(path, value)
        number = self._numbers[path]
        owner = self.entries[number].gradient_of
        self.slots.tensors[number] = value
        if owner is not None:
            self.slots.tensors[owner].grad = value

    def copied(self, memo: dict[int, Any] | None = None) -> ProgramState:
        """A state of copies, which share memory as these tensors do."""
        return ProgramState(self.entries, Slots(copied(self.entries, self.slots.tensors, memo)))

    def __delitem__(self, path: str) -> None:
        raise ArgumentError(f"program: state {path!r} is deleted, expected one that stays")

    def __iter__(self) -> Iterator[str]:
        return iter([each.path for each in self.entries])

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, path: object) -> bool:
        return path in self._numbers


def _words(tensor: Tensor) -> str:
    return f"{tensor.meta}{', requires grad' if tensor.requires_grad else ''}"


def copied(
    entries: Sequence[StateTensor],
    tensors: Sequence[Tensor],
    memo: dict[int, Any] | None = None,
) -> list[Tensor]:
    """Copies that share memory as the tensors do. Raises ExportError for one with a history."""
    for each, tensor in zip(entries, tensors, strict=True):
        what = None
        if is_wrapper(tensor):
            what = "a wrapper subclass"
        elif tensor.requires_grad and not tensor.is_leaf:
            what = "a tensor with a history"
        elif tensor.requires_grad and tensor._base is not None:
            what = "a view that requires grad"
        if what is not None:
            raise noted(
                ExportError(f"export: state {each.path!r} is {what}, expected a leaf tensor"),
                "Pass it as an argument, or let the function reach a detached copy.",
            )
    memo = {} if memo is None else memo
    made: list[Any] = []
    for tensor in tensors:
        if tensor._base is None:
            made.append(copy.deepcopy(tensor, memo))
        else:  # a view without a history: a tensor on the same storage
            made.append(Tensor(copy.deepcopy(tensor.storage, memo), tensor.meta, tensor.offset))
    _link(entries, made)
    return made


def _link(entries: Sequence[StateTensor], tensors: Sequence[Tensor]) -> None:
    """Gives tensors the gradients that are state themselves."""
    for each, tensor in zip(entries, tensors, strict=True):
        if each.gradient_of is not None:
            tensors[each.gradient_of].grad = tensor


# ------------------------------------------------------------------------------------------ files
def written_state(state: ProgramState) -> tuple[list[Any], list[np.ndarray]]:
    """The rows of a file, one for each tensor, and the arrays of the storages."""
    storages: dict[int, int] = {}
    arrays: list[np.ndarray] = []
    rows: list[Any] = []
    for each, tensor in zip(state.entries, state.slots.tensors, strict=True):
        if tensor.meta.device is not CPU:
            raise noted(
                ExportError(
                    f"export: state {each.path!r} is on {tensor.meta.device}, expected the CPU"
                ),
                "Put a copy on the CPU in its place: program.state[path] = tensor.cpu().",
            )
        number = storages.setdefault(id(tensor.storage), len(storages))
        if number == len(arrays):
            buffer = np.ascontiguousarray(tensor.storage.buffer).reshape(-1)
            arrays.append(buffer.view(np.uint8))
        kind = type(tensor).__name__ if type(tensor) in KINDS.values() else "Tensor"
        where = number, tensor.offset, tensor.meta, tensor.requires_grad, kind
        rows.append((each.path, each.tied, each.gradient_of, *where))
    return rows, arrays


def state_from(rows: Any, arrays: Sequence[np.ndarray]) -> ProgramState:
    """The state of a file's rows. Raises Unread for what no file has."""
    storages = [Storage(each) for each in arrays]
    used: set[int] = set()
    entries: list[StateTensor] = []
    tensors: list[Any] = []
    for row in rows if type(rows) is tuple else ():
        match row:
            case (
                str() as path,
                tuple() as tied,
                (None | int()) as owner,
                int() as number,
                int() as offset,
                TensorMeta() as meta,
                bool() as requires_grad,
                str() as kind,
            ) if all(type(each) is str for each in tied) and number < len(storages):
                entry = StateTensor(path, tied, owner)
            case _:
                raise Unread(Said("a row of another form"), "a tensor of the state", ".state")
        count_from(offset), count_from(number)
        _check_room(meta, offset, len(arrays[number]))
        if kind not in KINDS or (requires_grad and not meta.dtype.is_differentiable):
            raise Unread(kind, f"one of {', '.join(KINDS)}", ".state")
        used.add(number)
        entries.append(entry)
        tensors.append(_tensor(storages[number], meta, offset, kind, requires_grad))
    if len(used) != len(arrays):
        raise Unread(Said(f"{len(arrays)} arrays"), f"{len(used)}", ".state")
    for each in entries:
        if each.gradient_of is not None and not 0 <= each.gradient_of < len(entries):
            raise Unread(each.gradient_of, "the number of a tensor", ".state")
    try:
        _link(entries, tensors)
    except AotliteError as error:
        raise Unread(
            Said(f"a .grad that is none ({error})"[:160]), "a gradient", ".state"
        ) from None
    return ProgramState(entries, Slots(tensors))


def check_rows(rows: Any, sizes: Sequence[int]) -> None:
    """Raises Unread unless each array of so many bytes has a tensor that lies in it."""
    numbers = set()
    for row in rows if type(rows) is tuple else ():
        match row:
            case (_, _, _, int() as number, int() as offset, TensorMeta() as meta, _, _) if (
                0 <= number < len(sizes)
            ):
                count_from(offset)
                _check_room(meta, offset, sizes[number])
                numbers.add(number)
            case _:
                raise Unread(Said("a row of another form"), "a tensor of the state", ".state")
    if len(numbers) != len(sizes):
        raise Unread(Said(f"{len(sizes)} arrays"), f"{len(numbers)}", ".state")


def _check_room(meta: TensorMeta, offset: int, size: int) -> None:
    end = (offset + meta.span) * meta.dtype.itemsize
    if meta.table is not None or meta.device is not CPU or end > size:
        raise Unread(Said(f"a tensor that ends at byte {end}"), f"at most {size}", ".state")


def _tensor(storage: Storage, meta: Any, offset: int, kind: str, requires_grad: bool) -> Tensor:
    plain = Tensor(storage, meta, offset)
    if kind == "Parameter":
        made: Tensor = Parameter(plain, requires_grad=False)
    elif kind == "Buffer":
        made = Buffer(plain)
    elif kind == "TransientBuffer":
        made = Buffer(plain, persistent=False)
    else:
        made = plain
    return made.requires_grad_() if requires_grad else made
