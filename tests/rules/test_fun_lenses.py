"""What is written through a view, and what every other alias of its memory shows then (FUN-7..11).

Each program writes a tensor through views drawn at random, eagerly and compiled: once a value that
eager computes, once what is seen already, once two values one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
import aotlite.ir.ops
from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.ir.op import OPS, MultiViewOp, ViewOp

STEPS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "view": (lambda x: x.view(-1), lambda x: x.view(2, -1), lambda x: x.view(-1, 2)),
    "unsqueeze": (lambda x: x.unsqueeze(0), lambda x: x.unsqueeze(-1)),
    "squeeze": (lambda x: x.squeeze(),),
    "transpose": (lambda x: x.transpose(0, 1), lambda x: x.transpose(-1, 0)),
    "t": (lambda x: x.t(),),
    "permute": (lambda x: x.permute(*reversed(range(x.dim()))),),
    "select": (lambda x: x[0], lambda x: x[-1], lambda x: x.select(-1, 1)),
    "slice": (lambda x: x[1:], lambda x: x[::2], lambda x: x.narrow(-1, 0, 1), lambda x: x[1:1]),
    "diagonal": (lambda x: x.diagonal(), lambda x: x.diagonal(1, -1, 0)),
    "unfold": (lambda x: x.unfold(0, 2, 2), lambda x: x.unfold(-1, 1, 2)),
    "as_strided": (
        lambda x: x.as_strided((2,), (3,), 1),
        lambda x: x.as_strided((2, 2), (4, 1)),
        lambda x: x.as_strided((), (), 5),
    ),
    "expand": (lambda x: x.expand(x.shape), lambda x: x.unsqueeze(0).expand(1, *x.shape)),
    "alias": (lambda x: x.view_as(x),),
    "detach": (lambda x: x.detach(),),
    "hidden_alias": (lambda x: x.hidden_alias(),),
    "split": (lambda x: x.split(1)[-1], lambda x: x.chunk(2)[0]),
    "split_with_sizes": (lambda x: x.split([1, x.shape[0] - 1])[1],),
    "unbind": (lambda x: x.unbind()[0], lambda x: x.unbind(-1)[-1]),
    "view_dtype": (lambda x: x.view(al.int32), lambda x: x.view(al.int16)),
    "view_as_real": (lambda x: al.view_as_real(x), lambda x: x.real, lambda x: x.imag),
    "view_as_complex": (lambda x: al.view_as_complex(x.view(-1, 2)),),
}
"""For each op that makes views, ways to take one."""

WRITES: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.mul_(2),
    lambda x: x.add_(x),
    lambda x: x.zero_(),
    lambda x: x.copy_(x.clone().neg_() if x.dtype.is_floating_point else x.clone()),
)


def test_every_view_op_is_among_the_steps() -> None:
    declared = {name for name, op in OPS.items() if isinstance(op, (ViewOp, MultiViewOp))}
    assert declared == set(STEPS)


@attrs.frozen
class Chain:
    """The base's number and the views taken one after the other; those that eager refuses fall."""

    base: int
    names: tuple[str, ...]
    ways: tuple[int, ...]

    @property
    def may_be_refused(self) -> bool:
        """A window on memory that has gaps, or is seen as another dtype, has to be the user's."""
        others = {"view_dtype", "view_as_real", "view_as_complex"}.intersection(self.names)
        return "as_strided" in self.names and (self.base == 4 or bool(others))

    def start(self) -> Any:
        """A fresh tensor; each kind has another layout."""
        flat = al.arange(24.0) + 1.0
        match self.base:
            case 0:
                return flat.view(4, 6)
            case 1:
                return flat.view(4, 6).t()
            case 2:
                return flat.view(2, 3, 4)
            case 3:
                return al.view_as_complex(flat.view(3, 4, 2))
        return flat.view(4, 6)[:, ::2]

    def taken(self, value: Any) -> Any:
        """The view at the end of the chain."""
        for name, way in zip(self.names, self.ways, strict=True):
            options = STEPS[name]
            try:
                value = options[way % len(options)](value)
            except UnsupportedError:
                raise
            except (AotliteError, IndexError):
                continue
        return value


chains: st.SearchStrategy[Chain] = st.integers(1, 4).flatmap(
    lambda count: st.builds(
        Chain,
        st.integers(0, 4),
        st.tuples(*[st.sampled_from(sorted(STEPS))] * count),
        st.tuples(*[st.integers(0, 3)] * count),
    )
)


def outcome(function: Callable[[Any], Any], x: Any) -> Any:
    """What the results and the argument are, with their geometry; the class of an error."""
    try:
        results = function(x)
    except AotliteError as error:
        return type(error)
    return [(each.tolist(), each.stride(), each.dtype) for each in (*results, x)]


def equal(function: Callable[[Any], Any], chain: Chain) -> Any:
    """The outcome, which compiled is that of eager; where eager raises, bytes stay as they were."""
    expected = outcome(function, chain.start())
    x = chain.start()
    found = outcome(al.compile(function), x)
    if isinstance(found, type):
        assert x.tolist() == chain.start().tolist()
        if found is UnsupportedError and chain.may_be_refused:
            return found
    assert expected == found
    return found


@pytest.mark.draws(long=800)
@given(chains, st.sampled_from(WRITES))
@settings(max_examples=120)
@pytest.mark.rules("FUN-7", "FUN-8", "FUN-11", "FUN-12")
def test_what_is_written_through_views_is_seen_through_all(
    chain: Chain, write: Callable[[Any], Any]
) -> None:
    def body(x: Any) -> Any:
        other = chain.taken(x)
        write(chain.taken(x))
        return other.clone(), x.clone()

    equal(body, chain)


@pytest.mark.draws(long=600)
@given(chains)
@settings(max_examples=99)
@pytest.mark.rules("FUN-7", "FUN-8")
def test_writing_what_is_seen_changes_nothing(chain: Chain) -> None:
    """Get-put, and put-get: what was written is seen."""

    def body(x: Any) -> Any:
        seen = chain.taken(x)
        seen.copy_(seen.clone())
        return seen.clone(), x.clone()

    found = equal(body, chain)
    if not isinstance(found, type):
        assert found[1][0] == chain.start().tolist()


@pytest.mark.draws(long=600)
@given(chains)
@settings(max_examples=75)
@pytest.mark.rules("FUN-7", "FUN-8")
def test_of_two_writes_through_one_chain_the_second_counts(chain: Chain) -> None:
    """Put-put."""

    def once(x: Any) -> Any:
        chain.taken(x).fill_(3)
        return (x.clone(),)

    def twice(x: Any) -> Any:
        chain.taken(x).fill_(7)
        return once(x)

    assert equal(twice, chain) == equal(once, chain)


@given(
    st.integers(0, 1), st.integers(1, 4), st.integers(1, 5), st.sampled_from([(6,), (5, 7), (6, 4)])
)
@settings(max_examples=200)
@pytest.mark.rules("FUN-9")
def test_windows_keep_what_lies_between_them_or_are_refused(
    dim: int, size: int, step: int, shape: tuple[int, ...]
) -> None:
    def body(x: Any) -> Any:
        x.unfold(dim % x.dim(), size, step).mul_(100)
        return (x.clone(),)

    x = (al.arange(60.0) + 1.0)[: al.ones(shape).numel()].view(shape)
    dim %= len(shape)
    start = x.tolist()
    found = outcome(al.compile(body), x)
    places = [k * step + i for k in range((shape[dim] - size) // step + 1) for i in range(size)]
    if size > shape[dim] or len(set(places)) < len(places):
        assert isinstance(found, type) and x.tolist() == start
        return
    kept = al.tensor(start).clone()
    for place in places:
        kept.select(dim, place).mul_(100)
    assert x.tolist() == kept.tolist()


@pytest.mark.rules("FUN-10")
@pytest.mark.parametrize("count", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("take", [lambda x: x.unbind(), lambda x: x.split(1)])
def test_n_parts_read_after_a_write_are_n_ops(count: int, take: Callable[[Any], Any]) -> None:
    def body(x: Any) -> Any:
        parts = take(x)
        x.add_(1)
        return [part + 1 for part in parts]

    graph = al.inspect.stages_of(body, al.ones(count, 2))["functionalize"]
    names = [node.target.name for node in graph.nodes[1:-1]]
    taken = {"select", "slice"}
    after = names[names.index("add") :]
    assert count == sum(name in taken for name in after)
    assert 2 * count + 1 == len(after)
