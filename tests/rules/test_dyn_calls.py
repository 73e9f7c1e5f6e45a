"""DYN: a region takes the calls that it was captured for, and no others."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import aotlite as al


def added(x: Any, *others: Any) -> Any:
    return x * 2 + sum(others)


def with_default(x: Any, w: Any = None, n: int = 3) -> Any:
    return x * 2 if w is None else x + w * n


def counted(x: Any, *others: Any) -> Any:
    return x[x > 1] * 2 + sum(others)


def calls(function: Any, n: int) -> list[tuple[Any, ...]]:
    x = al.arange(float(n))
    if function is with_default:
        return [(x,), (x, x), (x, x, 5), (x, None), (x, None, n)]
    return [(x,), (x, 1), (x, n), (x, 1, n), (x, 1, 2, n), (x, 0.5)]


@pytest.mark.rules("DYN-8")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [added, with_default, counted], ids=lambda f: f.__name__)
def test_a_call_with_other_arguments_is_of_another_region(function: Any, dynamic: Any) -> None:
    forms = len(calls(function, 3))
    for first, second in itertools.permutations(range(forms), 2):
        compiled = al.compile(function, dynamic=dynamic, backend="reference")
        for n, which in ((3, first), (4, first), (4, second), (5, second), (5, first), (6, second)):
            given = calls(function, n)[which]
            assert compiled(*given).tolist() == function(*given).tolist()


DIMENSIONS = {
    "movedim": lambda x, n: (x.movedim(n, 0), x.movedim((0, 1), (n, 0))),
    "moveaxis": lambda x, n: x.moveaxis(0, n),
    "swapaxes": lambda x, n: x.swapaxes(0, n),
    "flatten": lambda x, n: (x.flatten(n), x.flatten(0, n)),
    "unflatten": lambda x, n: x.unflatten(n, (1, -1)),
    "sum": lambda x, n: (x.sum(n), x.sum((n, 0)), x.mean(n), x.softmax(n), x.sort(n)),
    "views": lambda x, n: (x.select(n, 0), x.unbind(n), x.unsqueeze(n), x.diagonal(0, 0, n)),
    "stack": lambda x, n: (al.stack([x, x], n), al.cat([x, x], n), x.size(n)),
    "polygamma": lambda x, n: al.polygamma(abs(n), x + 1),
    "result_type": lambda x, n: str(al.result_type(x, n)),
}


@pytest.mark.rules("DYN-26")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", DIMENSIONS)
def test_an_int_argument_may_name_a_dimension(name: str, dynamic: Any) -> None:
    function = DIMENSIONS[name]
    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    for n in (0, 1, 2, -1, 3, 1):
        texts = []
        for run in (function, compiled):
            try:
                texts.append(repr(run(al.arange(12.0).reshape(2, 2, 3), n)))
            except al.AotliteError as error:
                texts.append(f"{type(error).__name__}: {error}")
        assert texts[0] == texts[1]


@pytest.mark.rules("DYN-2")
def test_bytes_are_written_at_all_sizes() -> None:
    def written(x: Any) -> Any:
        seen = x.view(al.uint8)
        seen[:1] = 0
        return seen.shape, x

    for sizes in ([(0, 0), (2, 3)], [(3, 2), (0, 1), (1, 0), (0, 0)]):
        compiled = al.compile(written, dynamic=True, backend="reference", verify=True)
        for shape in sizes:
            assert repr(compiled(al.ones(*shape))) == repr(written(al.ones(*shape)))


def test_memory_that_is_needed_by_a_size_is_asked_of_each_instance() -> None:
    """The storage of an argument without symbols has to hold what a symbol makes of it."""

    def strided(x: al.Tensor, room: al.Tensor) -> Any:
        return x * 2, room.as_strided((x.shape[0], 2), (1, 1)).sum()

    compiled = al.compile(strided, dynamic_shapes={"x": {0: True}}, backend="reference")
    for n in (3, 5, 2, 8, 4):
        x, room = al.ones(n), (al.arange(9) * 1.0)[:2]
        assert [r.tolist() for r in compiled(x, room)] == [r.tolist() for r in strided(x, room)]
    outcomes = []
    for function in (strided, compiled):
        with pytest.raises(al.AotliteError) as raised:
            function(al.ones(9), (al.arange(9) * 1.0)[:2])
        outcomes.append((type(raised.value), str(raised.value)))
    assert outcomes[0] == outcomes[1]
