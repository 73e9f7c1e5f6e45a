"""What compiled functions of wrappers keep: the parts that formulas read, and no others."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.subclasses import TwoTensor

pytestmark = pytest.mark.rules("DBL-2")

SIZE = 6


def hooked(p: Any, q: Any) -> Any:
    """All inputs are kept where user code runs in the backward."""
    product = p * 2
    product.register_hook(lambda grad: grad * 3)
    return product + q


def written(p: Any, q: Any) -> Any:
    with al.no_grad():
        q.mul_(3)
    return p * 2


PROGRAMS: dict[str, tuple[Any, tuple[str, str, str]]] = {
    "add": (lambda p, q: p + q, ("", "", "")),
    "sub of a number": (lambda p, q: p - 2 + q, ("", "", "")),
    "mul": (lambda p, q: p * q, ("q", "p", "pq")),
    "mul by a number": (lambda p, q: p * 2 + q * 3, ("", "", "")),
    "a square, and a sum": (lambda p, q: p * p + q, ("p", "", "p")),
    "one of them detached": (lambda p, q: p * q.detach() + q, ("q", "", "q")),
    "one is not used": (lambda p, q: p.sin(), ("p", "", "p")),
    "another is computed, and dropped": (lambda p, q: (q * q, p * 2)[1], ("", "", "")),
    "a view": (lambda p, q: p.view(2, 3).t() + q.view(2, 3).t(), ("", "", "")),
    "a product of a view": (lambda p, q: p.view(2, 3) * q.view(2, 3), ("q", "p", "pq")),
    "exp, of its result": (lambda p, q: p.exp() + q, ("", "", "")),
    "exp of a product": (lambda p, q: (p * q).exp(), ("q", "p", "pq")),
    "sigmoid of a sum": (lambda p, q: (p + q).sigmoid(), ("", "", "")),
    "exp of exp": (lambda p, q: (p.exp() + q).exp(), ("", "", "")),
    "a write": (written, ("", "", "")),
}
"""Programs, and which arguments are kept where the first, the second or both require grad."""
CASES = tuple(itertools.product(PROGRAMS, range(3)))
REQUIRE = ((True, False), (False, True), (True, True))


def pairs(case: tuple[str, int], size: int = SIZE) -> list[Any]:
    made = []
    for k, requires in enumerate(REQUIRE[case[1]]):
        values = [al.arange(size, dtype=al.float32) + k + j for j in (1, 2)]
        made.append(TwoTensor(*values).requires_grad_(requires))
    return made


def kept(compiled: Any) -> set[str]:
    """The arguments whose memory the call has saved, that of all their parts."""
    owners = [str(value.owner) for value in compiled.partition.saved]
    names = [name for name in owners if "primals" in name]
    assert all(name.replace("__a", "__b") in names for name in names)
    return {"pq"[int(name.split("_")[1])] for name in names}


def ran(f: Any, case: tuple[str, int]) -> list[Any]:
    """A result, its gradients, and the gradients of these."""
    given = pairs(case)
    y = f(*given)
    leaves = [each for each in given if each.requires_grad]
    if not y.requires_grad:
        return [y.a.tolist(), y.b.tolist()]
    tangent = TwoTensor(al.full(y.shape, 2.0), al.full(y.shape, 3.0)).requires_grad_()
    first = al.autograd.grad(y, leaves, tangent, create_graph=True, allow_unused=True)
    found = [y, *first]
    through = [each for each in first if each is not None and each.requires_grad]
    for grad in through:
        ones = TwoTensor(al.ones(SIZE), al.ones(SIZE))
        second = al.autograd.grad(
            grad, [*leaves, tangent], ones, retain_graph=True, allow_unused=True
        )
        found += second
    return [None if t is None else (t.a.tolist(), t.b.tolist()) for t in found]


@settings(max_examples=40)
@given(st.sampled_from(CASES))
def test_what_is_kept_is_what_formulas_read_and_derivatives_are_eagers(case):
    """Of 45 cases."""
    f, expected = PROGRAMS[case[0]]
    compiled = al.compile(f, backend="reference")
    assert ran(f, case) == ran(compiled, case)
    if compiled.partition.backward is not None:
        assert set(expected[case[1]]) == kept(compiled)


@settings(max_examples=40)
@given(st.sampled_from(CASES))
def test_parts_that_nobody_reads_are_free_while_the_result_lives(case):
    f, expected = PROGRAMS[case[0]]
    compiled = al.compile(f, backend="reference")
    given = pairs(case)
    parts = {
        name: [weakref.ref(getattr(each, part).storage.buffer) for part in ("a", "b")]
        for name, each in zip("pq", given, strict=True)
    }
    leaves = {name for name, each in zip("pq", given, strict=True) if each.requires_grad}
    y = compiled(*given)
    given.clear()
    gc.collect()
    if compiled.partition.backward is not None:
        for name in {"p", "q"} - leaves - set(expected[case[1]]):
            assert not any(each() is not None for each in parts[name])
    del y


def test_the_saved_bytes_are_those_of_what_is_read():
    """Two arguments of two parts; before, all four were saved."""
    counts = []
    for name in ("add", "mul", "a square, and a sum"):
        compiled = al.compile(PROGRAMS[name][0], backend="reference")
        compiled(*pairs((name, 2)))
        counts.append(sum(value.meta.numel * 4 for value in compiled.partition.saved))
    part = 4 * SIZE
    assert [0, 4 * part, 2 * part] == counts


def test_a_write_copies_no_part_that_nobody_reads():
    size = 1 << 18

    def copied(f: Any) -> int:
        p, q = pairs(("", 0), size)
        y = al.compile(f, backend="reference")(p, q)
        tracemalloc.start()
        with al.no_grad():
            p.mul_(1.0)  # of what derivatives may read the old values are kept
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert y.requires_grad
        return held // (4 * size)

    assert (2, 0) == (copied(hooked), copied(lambda p, q: p.exp() + q))


@pytest.mark.rules("DBL-2", "SAV-2")
@pytest.mark.parametrize("is_wrapper", [False, True], ids=["dense", "wrapper"])
def test_a_result_that_only_another_results_backward_reads_may_be_written(is_wrapper: bool) -> None:
    """Eager computes sin(x) again from x for the second derivative, and does not check `s`."""

    def both(x: Any) -> Any:
        s = x.sin()
        return s.detach() * s, s

    def pair() -> Any:
        part = al.tensor([0.5, 1.0], dtype=al.float64)
        return TwoTensor(part, part * 2) if is_wrapper else part

    found = []
    for function in (both, al.compile(both)):
        x = pair().requires_grad_()
        _, s = function(x * 1)
        with al.no_grad():
            s.detach().mul_(3)
        [first] = al.autograd.grad([s], [x], pair().requires_grad_(), create_graph=True)
        [second] = al.autograd.grad([first], [x], pair())
        found.append(str(second))
    assert found[0] == found[1]
