"""No number makes an op raise what is not aotlite's own: sizes, dims, strides, steps, orders.

Every int that an op of the table or a composite takes, lists' too, is each of `HOSTILE` in turn, in
a process that has little memory. What is raised is an AotliteError, in the form of all, and a
MemoryError where memory is what is missing.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import from_numpy
from aotlite.eager.creation.from_data import call
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from tests.samples import samples_of

ROOT = Path(__file__).parents[2]
HOSTILE = (2**60, 2**62, 2**63 - 1, 2**63, 2**70, -1, -(2**60), -(2**63), 10**5000)
MEMORY = 3 << 30
FORM = re.compile(r"\S.*: .*(expected|is met|has no|cannot|modified)", re.DOTALL)


def tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return from_numpy(value.copy())
    return type(value)(map(tensors, value)) if isinstance(value, (tuple, list)) else value


def places(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where ints are."""
    if type(value) is int:
        yield path
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def replaced(value: Any, path: tuple[int, ...], number: int) -> Any:
    if not path:
        return number
    items = list(value)
    items[path[0]] = replaced(items[path[0]], path[1:], number)
    return type(value)(items)


def cases(name: str) -> Iterator[tuple[Any, Any]]:
    """Arguments with a hostile number, one for each place in each kind of call."""
    known = set()
    for sample in samples_of(name):
        for path in places(sample.args):
            shown = (path, len(sample.args), tuple(map(type, sample.args)))
            if shown not in known:
                known.add(shown)
                for number in HOSTILE:
                    yield replaced(sample.args, path, number), sample.kwargs


def wrong(name: str, args: Any, kwargs: Any) -> str | None:
    """What an op raises that is not aotlite's."""
    face: Any = COMPOSITES.get(name) or (lambda *a, **k: call(name, *a, **k))
    try:
        face(*tensors(args), **{key: tensors(value) for key, value in kwargs.items()})
    except al.AotliteError as error:
        return None if FORM.match(str(error)) else f"{name}: {error}"
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"[:300]
    return None


def table() -> tuple[int, list[str]]:
    """How many cases there are, and what is wrong with any."""
    tried = [(n, wrong(n, *case)) for n in (*OPS, *COMPOSITES) for case in cases(n)]
    return len(tried), [found for _, found in tried if found]


@pytest.mark.rules("META-33")
def test_ops_raise_errors_of_aotlite_for_every_number() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.laws.test_hostile_sizes"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert 0 == done.returncode, done.stderr[-2000:]
    count, found = json.loads(done.stdout)
    assert [] == found
    assert 8000 < count


FACTORIES = {
    "empty": lambda n: al.empty(n),
    "empty of two": lambda n: al.empty(n, n),
    "zeros": lambda n: al.zeros(n),
    "ones": lambda n: al.ones(2, n),
    "full": lambda n: al.full((n,), 1.0),
    "arange": lambda n: al.arange(n),
    "eye": lambda n: al.eye(n),
    "linspace": lambda n: al.linspace(0, 1, n),
    "rand": lambda n: al.rand(n),
    "randn": lambda n: al.randn(n, n),
    "randperm": lambda n: al.randperm(n),
    "new_empty": lambda n: al.ones(2).new_empty(n),
    "expand": lambda n: al.ones(1).expand(n) + 1,
    "repeat": lambda n: al.ones(3).repeat(n),
    "resize_": lambda n: al.ones(3).resize_(n),
    "resize_ of two": lambda n: al.ones(3).resize_(n, n),
    "as_strided": lambda n: al.ones(3).as_strided((2,), (n,)),
    "one_hot": lambda n: al.nn.functional.one_hot(al.arange(2), n),
    "tril_indices": lambda n: al.tril_indices(n, n),
    "pad": lambda n: al.nn.functional.pad(al.ones(2), (n, n)),
    "empty, without elements": lambda n: al.empty(0, n, n),
}


@pytest.mark.rules("META-33")
@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "number",
    [n for n in HOSTILE if n > 0],
    ids=lambda n: f"{float(n):.0e}" if n < 10**300 else "long",
)
@pytest.mark.parametrize("name", FACTORIES)
def test_what_does_not_fit_is_refused(name: str, number: int) -> None:
    with pytest.raises(al.AotliteError) as caught:
        FACTORIES[name](number)
    assert FORM.match(str(caught.value))


def test_the_errors_say_how_much_is_asked_for() -> None:
    with pytest.raises(al.OutOfMemoryError) as full:
        al.empty(2**44)
    assert str(full.value) == (
        "full: 70368744177664 bytes are asked for that the system does not give, expected less"
    )
    with pytest.raises(al.OutOfMemoryError) as more:
        al.empty(2**56)
    assert str(more.value) == (
        "memory: 288230376151711744 bytes are asked for, expected at most 2**56, which a process "
        "addresses"
    )
    with pytest.raises(al.ShapeError) as beyond:
        al.empty(2**60, 2**60)
    assert str(beyond.value) == (
        "shape: f32[1152921504606846976, 1152921504606846976] is of "
        "5316911983139663491615228241121378304 bytes, expected at most 2**63 - 1"
    )


def test_a_tensor_that_cannot_grow_stays_as_it_was() -> None:
    x = al.arange(3.0)
    with pytest.raises(al.OutOfMemoryError, match="^resize_: 70368744177664 bytes are asked for"):
        x.resize_(2**44)
    assert ([0.0, 1.0, 2.0], (3,), 0) == (x.tolist(), x.shape, x._version)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(json.dumps(table()))
