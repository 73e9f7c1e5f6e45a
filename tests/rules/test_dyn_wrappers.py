"""SUB-18: sizes of wrappers, and of their parts, are symbols as those of other arguments are."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.subclasses import QuantizedTensor, TwoTensor
from tests.end_to_end.wrapper_size_programs import KINDS, Padded, check_wrapped


def pair(*shape: int, grad: bool = False) -> TwoTensor:
    count = al.ones(*shape).numel()
    numbers = al.arange(count).to(al.float32).view(*shape) - 2
    return TwoTensor(numbers, numbers * 3 + 1, requires_grad=grad)


def quantized(*shape: int) -> QuantizedTensor:
    return QuantizedTensor(al.ones(*shape).to(al.int8), al.tensor(0.5))


class Sized(Tensor):
    """A boxed tensor whose spec is its part's shape, or what it is given."""

    inner: Tensor
    kept: Any

    def __new__(cls, inner: Tensor, kept: Any = None) -> Any:
        made: Any = Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype
        )
        made.inner, made.kept = inner, kept
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], tuple(self.inner.shape) if self.kept is None else self.kept

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"])

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return cls(func(*[x.inner if isinstance(x, Sized) else x for x in args], **kwargs))


class Keeping(Sized):
    """Its spec is the shape that it was made with."""

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"], spec)

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = func(*[x.inner if isinstance(x, Sized) else x for x in args], **kwargs)
        return cls(found, tuple(found.shape))


class Named:
    """A shape as an object, which nothing takes apart."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)


class Naming(Sized):
    """Its spec is an object that holds its part's shape."""

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], Named(tuple(self.inner.shape))


# ------------------------------------------------------------------------------ which are symbols
@pytest.mark.rules("SUB-18", "DYN-3")
def test_a_size_of_a_wrapper_that_changes_becomes_a_symbol_with_its_parts() -> None:
    def loss(x: Any) -> Any:
        return (x * 2).relu().sum(0)

    compiled = al.compile(loss, dynamic=None, backend="reference")
    for n in (5, 7, 2, 9, 0, 64):
        mine, its = pair(n, 3, grad=True), pair(n, 3, grad=True)
        found, wanted = compiled(mine), loss(its)
        assert found.a.tolist() == wanted.a.tolist()
        for result in (found, wanted):
            result.sum().backward(TwoTensor(al.tensor(1.0), al.tensor(2.0)))
        gradients: list[Any] = [mine.grad, its.grad]
        assert [each.b.tolist() for each in gradients] == [gradients[0].b.tolist()] * 2
        assert gradients[0].b.shape == (n, 3)
    arguments = [row.arguments for row in compiled.regions()]
    assert arguments[1:] == [
        ("argument 0.a: f32[s0, 3]", "argument 0.b: f32[s0, 3]", "argument 0: f32[s0, 3]")
    ]


@pytest.mark.rules("SUB-18", "DYN-3")
@pytest.mark.parametrize("how", ["mark", "name"])
def test_a_marked_or_named_size_of_a_wrapper_is_one_symbol_with_those_of_its_parts(
    how: str,
) -> None:
    shapes = {"x": {0: al.Dim("n", max=8)}} if how == "name" else None
    compiled = al.compile(lambda x: x.sum(1), dynamic_shapes=shapes, backend="reference")
    first = pair(3, 2)
    if how == "mark":
        al.mark_dynamic(first, 0)
    assert compiled(first).shape == (3,)
    assert compiled(pair(5, 2)).shape == (5,)
    (region,) = compiled.regions()
    assert region.arguments[0] == "argument 0.a: f32[s0, 2]"
    assert region.guards == ()


@pytest.mark.rules("SUB-18")
def test_a_marked_size_of_a_wrapper_that_is_fixed_is_an_error() -> None:
    x = pair(3)
    al.mark_dynamic(x, 0)
    with pytest.raises(al.GuardError, match="size 0 of argument 0 is marked as dynamic"):
        al.compile(lambda x: x if x.shape[0] == 3 else x * 2, backend="reference")(x)


@pytest.mark.rules("SUB-18")
def test_sizes_of_parts_that_are_other_sizes_have_symbols_of_their_own() -> None:
    compiled = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    for n, m in ((3, 2), (5, 4), (1, 7)):
        found = compiled(Padded(al.ones(n + 1, m)))
        assert found.tolist() == al.full((n, m), 2.0).tolist()
    (region,) = compiled.regions()
    assert region.arguments == ("argument 0.inner: f32[s2, s1]", "argument 0: f32[s0, s1]")
    assert "s2 - 1 == s0" in [guard.text for guard in region.guards]


@pytest.mark.rules("SUB-18")
def test_sizes_of_parts_that_were_taken_for_the_wrappers_are_compared() -> None:
    """Of one row, a scale for all rows has the size of the rows."""

    def rows(n: int, scales: int) -> QuantizedTensor:
        return QuantizedTensor(al.ones(n, 2).to(al.int8), al.full((scales, 1), 0.5))

    compiled = al.compile(lambda x: x * 2.0, dynamic=True, backend="reference")
    assert compiled(rows(1, 1)).tolist() == [[1.0, 1.0]]
    for n in (3, 4, 5):
        assert compiled(rows(n, 1)).tolist() == [[1.0, 1.0]] * n
    assert len(compiled.entries) == 2
    assert "argument 0.scale" in str([*compiled.explain_recompiles()][1].reasons[0])


@pytest.mark.rules("SUB-18", "DYN-24")
def test_witnesses_are_looked_for_with_wrappers() -> None:
    compiled = al.compile(
        lambda x: x * 2 if x.shape[0] > 3 else x + 1, dynamic=True, backend="reference"
    )
    x = pair(5)
    compiled(x)
    (region,) = compiled.regions(witnesses=True)
    assert [str(need) for need in region.needs] == ["s0 > 3: needed at s0=3"]


# ------------------------------------------------------------------------------ made inside
@pytest.mark.rules("SUB-18")
def test_wrappers_of_arguments_that_have_to_be_equal_are_made_with_a_guard() -> None:
    compiled = al.compile(lambda a, b: TwoTensor(a, b) * 2, dynamic=True, backend="reference")
    for n in (3, 4, 0, 1, 7):
        assert compiled(al.ones(n, 2), al.ones(n, 2)).b.tolist() == [[2.0, 2.0]] * n
    assert len(compiled.entries) == 1
    with pytest.raises(al.SubclassError, match="b is f32\\[4, 2\\], expected the geometry of a"):
        compiled(al.ones(3, 2), al.ones(4, 2))


@pytest.mark.rules("SUB-18")
def test_views_writes_and_aliases_of_wrappers_are_eagers_at_other_sizes() -> None:
    def changed(x: Any) -> Any:
        x[1:].mul_(2)
        return x, x.view(-1), x.t()

    compiled = al.compile(changed, dynamic=True, backend="reference")
    for n in (4, 2, 6):
        x, y = pair(n, 3), pair(n, 3)
        found, wanted = compiled(x), changed(y)
        assert found[0] is x
        assert (x.version, x.a.version) == (y.version, y.a.version)
        for mine, its in zip(found, wanted, strict=True):
            assert mine.storage is x.storage
            assert (mine.shape, mine.stride()) == (its.shape, its.stride())
            assert mine.b.tolist() == its.b.tolist()
    assert len(compiled.entries) == 1


# ------------------------------------------------------------------------------ specs
@pytest.mark.rules("SUB-18", "SUB-21")
@pytest.mark.parametrize(
    ("kind", "entries"), [(Sized, 1), (Keeping, 4), (Naming, 4)], ids=["made", "kept", "object"]
)
def test_sizes_in_a_spec_are_those_of_each_call(kind: type[Any], entries: int) -> None:
    """A spec that is made of the parts follows their symbols. One that was kept is a number, and so
    is one in an object: each size compiles."""
    compiled = al.compile(lambda x: (x * 2) + 1, dynamic=True, backend="reference")
    for n in (5, 7, 2, 9, 5):
        made = kind(al.ones(n, 3), (n, 3) if kind is Keeping else None)
        found = compiled(made).__tensor_flatten__()[1]
        shape = found.shape if kind is Naming else found
        assert shape == (n, 3)
        assert [type(each) for each in shape] == [int, int]
    assert len(compiled.entries) == entries


# ------------------------------------------------------------------------------ random programs
@pytest.mark.rules("SUB-18")
@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_of_wrappers_are_eagers_at_all_sizes(kind: str) -> None:
    entries = served = 0
    for seed in range(9000, 9004):
        seen, difference = check_wrapped(seed, 3, kind, backend="reference")
        assert not difference, f"seed {seed}{difference}"
        entries, served = entries + seen["entries"], served + seen["served"]
    assert served >= 1.2 * entries


@pytest.mark.long
@pytest.mark.rules("SUB-18")
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_programs_of_wrappers_are_eagers_at_all_sizes(kind: str) -> None:
    for seed in range(9100, 9300):
        seen, difference = check_wrapped(seed, 4, kind, backend="auto")
        assert not difference, f"seed {seed} {dict(seen)}{difference}"
