"""The wrappers after a program: values, classes, identity, memory, histories and versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import aotlite as al
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper

Make = Callable[[], tuple[Any, ...]]


class Pictures:
    """Pictures of the tensors of one world: two worlds are alike iff theirs are equal."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}
        self.objects: dict[int, int] = {}
        self.alive: list[Any] = []

    def of(self, tensor: Any) -> Any:
        """A tensor, and its parts if it has any."""
        if not isinstance(tensor, al.Tensor):
            return repr(tensor)
        self.alive.append(tensor)
        storage = self.storages.setdefault(id(tensor.storage), len(self.storages))
        number = self.objects.setdefault(id(tensor), len(self.objects))
        facts = (
            type(tensor).__name__,
            str(tensor.meta),
            tensor.offset,
            tensor.requires_grad,
            tensor.is_leaf,
            tensor.version,
            tensor._kind,
            f"storage {storage}",
            f"object {number}",
        )
        if is_wrapper(tensor):
            return facts, {name: self.of(part) for name, part in inner_tensors(tensor).items()}
        return facts, [round(value, 4) for value in tensor.detach().reshape(-1).tolist()]


def world_after(function: Callable[..., Any], make: Make) -> list[Any]:
    """Arguments, results and gradients after a call and a backward of all that it gives."""
    al.manual_seed(0)
    args = make()
    found = function(*args)
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    pictures = Pictures()
    world = [pictures.of(each) for each in (*args, *results)]
    losses = [
        (each * each).sum()
        for each in results
        if isinstance(each, al.Tensor) and each.requires_grad and not each.is_leaf
    ]
    for loss in losses:
        loss.backward(retain_graph=True, **_ones(loss))
    world += [
        Pictures().of(part.grad)
        for each in args
        if isinstance(each, al.Tensor)
        for part in _with_parts(each)
    ]
    return world


def _with_parts(tensor: Any) -> Iterator[Any]:
    """A tensor and what it is made of, which may have gradients of its own."""
    yield tensor
    if is_wrapper(tensor):
        for part in inner_tensors(tensor).values():
            yield from _with_parts(part)


def _ones(loss: Any) -> dict[str, Any]:
    return {"gradient": al.ones_like(loss)} if is_wrapper(loss) else {}


def check_like_eager(
    function: Callable[..., Any], make: Make, *, backends: tuple[str, ...] = ("reference", "cpu")
) -> None:
    """A compiled function leaves the world that eager leaves, twice, with one entry."""
    expected = world_after(function, make)
    for backend in backends:
        compiled = al.compile(function, backend=backend)
        for _ in range(2):
            assert world_after(compiled, make) == expected
        assert len(compiled.entries) == 1
