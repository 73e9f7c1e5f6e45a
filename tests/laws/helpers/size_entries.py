"""How many entries a function of an op has for samples of several sizes, with symbols for sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.testing.laws.ops.runs import tensors_in
from aotlite.testing.laws.samples.sample import Sample
from tests.laws.helpers.composites import arguments

SAMPLES = 3
"""Plain samples of each op; as many smooth ones, with gradients."""
SIZES = 4
"""At least so many sizes a sample is tried at."""


@attrs.frozen
class Entries:
    """The entries of a function that was called with several sizes."""

    where: str
    sizes: tuple[int, ...]
    count: int
    why: str

    @property
    def is_one_a_size(self) -> bool:
        """Whether nearly each size has an entry of its own; even and odd sizes may differ."""
        return self.count >= max(4, len(self.sizes) - 1)

    def __str__(self) -> str:
        return f"{self.where} at {self.sizes}: {self.count} entries, {self.why}"


def entries_of(function: Callable[..., Any], samples: list[Sample]) -> Iterator[Entries]:
    """For some samples, and each of their sizes, the entries where this size changes."""
    sized = [sample for sample in samples if sizes_in(sample)]
    smooth = [sample for sample in sized if sample.smooth]
    for sample in (*sized[:: max(1, len(sized) // SAMPLES)][:SAMPLES], *smooth[:SAMPLES]):
        for size in sorted(sizes_in(sample)):
            found = _entries(function, sample, size)
            if found is not None:
                yield found


def _entries(function: Callable[..., Any], sample: Sample, size: int) -> Entries | None:
    """None where eager takes too few other sizes in the place of this one."""
    others = [
        n for n in (size + 1, size + 2, 2 * size, 3 * size, size + 5) if n not in sizes_in(sample)
    ]
    tried = [size, *dict.fromkeys(others)]
    taken = [n for n in tried if is_taken(function, sample, {size: n})]
    if size not in taken or len(taken) < SIZES:
        return None
    compiled = al.compile(of_tensors_alone(function, sample), dynamic=True, backend="reference")
    for n in taken:
        args, kwargs = arguments_at(sample, {size: n})
        al.manual_seed(3)
        tensors = [value for value in args if tensors_in(value)]
        named = {name: value for name, value in kwargs.items() if tensors_in(value)}
        _differentiated(compiled(*tensors, **named), sample)
    guards = getattr(compiled.entries[0].guarded, "guards", ["it has no symbols"])
    return Entries(f"{sample}", tuple(taken), len(compiled.entries), f"{list(guards)}")


def of_tensors_alone(function: Callable[..., Any], sample: Sample) -> Callable[..., Any]:
    """The function of the sample's tensors, lists of them, and tensors by name alone."""
    given = [place for place, value in enumerate(sample.args) if _arrays(value)]
    plain = {name: value for name, value in sample.kwargs.items() if not _arrays(value)}
    count = len(sample.args)
    others = {place: value for place, value in enumerate(sample.args) if place not in given}

    def of_tensors(*tensors: Any, **named: Any) -> Any:
        found = {**others, **dict(zip(given, tensors, strict=True))}
        return function(tuple([found[place] for place in range(count)]), {**plain, **named})

    return of_tensors


def is_taken(function: Callable[..., Any], sample: Sample, change: Mapping[int, int]) -> bool:
    """Whether eager takes these sizes."""
    try:
        al.manual_seed(3)
        _differentiated(function(*arguments_at(sample, change)), sample)
    except Exception:  # of any kind: NumPy's, too
        return False
    return True


def _differentiated(result: Any, sample: Sample) -> None:
    if sample.smooth:
        parts = [each.sum() for each in tensors_in(result) if each.requires_grad]
        if parts and not any(part.is_complex() for part in parts):
            sum(parts[1:], parts[0]).backward()


def arguments_at(
    sample: Sample, change: Mapping[int, int]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with other sizes in the place of these."""
    named = {name: _resized(each, change) for name, each in sample.kwargs.items()}
    resized = Sample(tuple([_resized(each, change) for each in sample.args]), named)
    args, kwargs = arguments(resized)
    if sample.smooth:
        for each in tensors_in(args):
            if each.dtype.is_differentiable and not each.requires_grad:
                each.requires_grad_()
    return args, kwargs


def _resized(value: Any, change: Mapping[int, int]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)([_resized(each, change) for each in value])
    if isinstance(value, np.ndarray) and value.size:
        for axis, size in enumerate(value.shape):
            if size in change and change[size] != size:
                value = np.take(value, np.arange(change[size]) % size, axis)
    return value


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    return [a for each in value for a in _arrays(each)] if isinstance(value, (tuple, list)) else []


def sizes_in(sample: Sample) -> set[int]:
    """Sizes from 2 on: of these there is one in the place of several dimensions."""
    return {n for array in _arrays(sample.args) for n in array.shape if n > 1}


def first_of(found: Iterator[Entries]) -> Entries | None:
    """The first that is an entry a size; None if there is none."""
    return next(islice((each for each in found if each.is_one_a_size), 1), None)
