"""Samples of the composites in `ir/ops/view_forms.py`."""

from collections.abc import Iterable

from tests.samples import Sample, array, flipped, layouts, register


@register("flatten")
def _flatten(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in layouts("float32"))
    yield Sample((array((2, 3, 2)), 1), smooth=True)
    yield Sample((flipped(array((2, 3, 2))), 0, 1), smooth=True)


@register("mT")
def _matrix_transpose(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in layouts("int64") if a.ndim > 1)
    yield Sample((array((2, 3, 2)),), smooth=True)
