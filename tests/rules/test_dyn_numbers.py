"""DYN-26: an int among the arguments is a symbol, where it changes or is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")


def scaled(x: al.Tensor, n: int) -> al.Tensor:
    return x * n + x.sum() * (n - 1)


def gradient(function: Any, *rest: object) -> tuple[object, object]:
    x = al.arange(6.0).reshape(2, 3).requires_grad_()
    result = function(x, *rest)
    result.sum().backward()
    return result.tolist(), x.grad.tolist()


@pytest.mark.rules("DYN-3", "DYN-26")
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_int_is_a_symbol_where_it_changes(dynamic: bool | None) -> None:
    compiled = al.compile(scaled, dynamic=dynamic, backend="reference")
    for n in (3, 4, -7, 1, 0, 100, 2**31 - 1, -(2**31)):
        assert gradient(compiled, n) == gradient(scaled, n)
    assert len(compiled.entries) == (1 if dynamic else 2)
    last = list(compiled.regions())[-1]
    assert last.arguments[-1] == "argument 1: int s0"
    assert not any("s0" in str(each).partition(" (mul")[0] for each in last.guards)
    assert [sizes[0] for sizes in last.sizes][-2:] == [2**31 - 1, -(2**31)]


@pytest.mark.rules("DYN-26")
def test_bools_and_floats_that_equal_an_int_are_compiled_by_themselves() -> None:
    def kind(x: al.Tensor, n: object) -> tuple[al.Tensor, str]:
        return x * n, str(n)

    compiled = al.compile(kind, dynamic=True, backend="reference")
    x = al.tensor([1, 2])
    for n in (1, True, 1.0, 0, False, 0.0, 1, True, 1.0):
        got, expected = compiled(x, n), kind(x, n)
        assert (got[0].tolist(), str(got[0].dtype), got[1]) == (
            expected[0].tolist(),
            str(expected[0].dtype),
            expected[1],
        )


@pytest.mark.rules("DYN-3")
def test_ints_too_long_to_be_written_down_are_told_apart() -> None:
    """Python refuses to write an int of more than 4300 digits."""
    compiled = al.compile(lambda x, n: x + n % 7, dynamic=None, backend="reference")
    x = al.ones(3)
    for n in (2, 3, 10**5000, 10**5000 + 1, 3, 10**5000):
        assert compiled(x, n).tolist() == (x + n % 7).tolist()


@pytest.mark.rules("DYN-26")
def test_an_int_in_a_container_and_by_keyword() -> None:
    def pick(x: al.Tensor, where: Any, *, last: int) -> al.Tensor:
        return x[where["first"] : last]

    compiled = al.compile(pick, dynamic=True, backend="reference")
    x = al.arange(9.0)
    for first, last in ((1, 5), (2, 6), (3, 8)):
        expected = pick(x, {"first": first}, last=last)
        assert compiled(x, {"first": first}, last=last).tolist() == expected.tolist()
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-3", "DYN-26")
def test_an_int_is_named() -> None:
    compiled = al.compile(scaled, dynamic_shapes={"n": True}, backend="reference")
    for n in (3, -3, 0):
        assert gradient(compiled, n) == gradient(scaled, n)
    assert len(compiled.entries) == 1
    fixed = al.compile(scaled, dynamic=True, dynamic_shapes={"n": None}, backend="reference")
    gradient(fixed, 3), gradient(fixed, 4)
    assert len(fixed.entries) == 2


@pytest.mark.rules("DYN-3", "DYN-26")
def test_an_int_and_a_size_of_one_name_are_one_symbol() -> None:
    def first(x: al.Tensor, n: int) -> al.Tensor:
        return x.reshape(n, 2)

    n = al.Dim("n", min=2)
    shapes = {"x": {0: n}, "n": n}
    compiled = al.compile(first, dynamic_shapes=shapes, backend="reference")
    for count in (3, 5, 4):
        assert compiled(al.ones(count, 2), count).shape == (count, 2)
    (region,) = compiled.regions()
    assert [guard.text for guard in region.guards] == []
    with pytest.raises(al.ArgumentError, match="dimension 'n' is 4 as argument 1 and"):
        compiled(al.ones(2, 3, 1)[:1].reshape(3, 1), 4)


@pytest.mark.rules("DYN-26")
def test_a_marked_int_that_the_function_fixes_is_an_error() -> None:
    def counted(x: al.Tensor, n: int) -> al.Tensor:
        for _ in range(n):
            x = x * 2
        return x

    compiled = al.compile(counted, dynamic_shapes={"n": True}, backend="reference")
    with pytest.raises(al.GuardError, match="argument 1 is True in dynamic_shapes"):
        compiled(al.ones(2), 3)


@pytest.mark.rules("DYN-26")
def test_an_int_that_the_function_stores_is_a_number() -> None:
    kept: list[int] = []

    def keeps(x: al.Tensor, n: int) -> al.Tensor:
        kept.append(n)
        return x * n

    compiled = al.compile(keeps, dynamic=True, backend="reference")
    compiled(al.ones(2), 3)
    assert kept == [3] and type(kept[0]) is int


@pytest.mark.rules("DYN-26")
def test_a_dimension_is_a_number() -> None:
    def total(x: al.Tensor, dim: int) -> al.Tensor:
        return x.sum(dim)

    compiled = al.compile(total, dynamic=True, backend="reference")
    x = al.arange(6.0).reshape(2, 3)
    for dim in (0, 1, -1):
        assert compiled(x, dim).tolist() == total(x, dim).tolist()
    texts = [[guard.text for guard in region.guards] for region in compiled.regions()]
    assert texts == [["s0 == 0"], ["s0 == 1"], ["s0 == -1"]]


@pytest.mark.rules("DYN-26")
def test_products_of_ints_that_no_int64_holds_are_other_regions() -> None:
    def cubed(x: al.Tensor, n: int) -> al.Tensor:
        return x * (n * n * n)

    compiled = al.compile(cubed, dynamic=True, backend="reference")
    x = al.tensor([1.0, 2.0])
    for n in (3, 5, 2_000_000, 2**31 - 1, -3):
        try:
            expected: object = cubed(x, n).tolist()
        except al.ArgumentError as error:
            expected = str(error)
        try:
            got: object = compiled(x, n).tolist()
        except al.ArgumentError as error:
            got = str(error)
        assert got == expected
    assert len(compiled.entries) == 1


@needs_compiler
@pytest.mark.rules("DYN-26", "SIZ-1")
def test_no_kernel_is_compiled_for_another_int() -> None:
    compiled = al.compile(scaled, dynamic=True, backend="cpu")
    gradient(compiled, 3)
    (entry,) = compiled.entries
    region: Any = entry.guarded
    texts = set()
    for n in (3, 4, -7):
        assert gradient(compiled, n) == gradient(scaled, n)
    for each in region.instances.values():
        texts.add(each.guarded.source.count("run"))
    forward, _ = region.records.kernels
    assert not forward.why_not and len(region.instances) == 3 and len(texts) == 1


@needs_compiler
@pytest.mark.rules("DYN-26", "SIZ-2")
@pytest.mark.parametrize("backend", ["cpu", "loops"])
def test_a_division_by_an_int_that_may_be_0_is_refused_at_0(backend: str) -> None:
    def divided(x: al.Tensor, n: int) -> al.Tensor:
        return x // n

    compiled = al.compile(divided, dynamic=True, backend=backend)
    x = al.tensor([7, -7])
    for n in (2, -2, 1):
        assert compiled(x, n).tolist() == divided(x, n).tolist()
    with pytest.raises(al.ArgumentError):
        compiled(x, 0)


@needs_compiler
@pytest.mark.rules("DYN-26", "SIZ-9")
def test_a_graph_whose_arguments_alone_have_symbols() -> None:
    def product(x: al.Tensor, n: int) -> al.Tensor:
        return x * (3 * n)

    compiled = al.compile(product, dynamic_shapes={"n": True}, backend="cpu")
    x = al.tensor([1, 2])
    for n in (2, -5, 0):
        assert compiled(x, n).tolist() == product(x, n).tolist()
    assert len(compiled.entries) == 1


# --------------------------------------------------------------------- integers of a user's class
class Integer:
    """What only `__index__` makes an integer."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Derived(Integer):
    """Its `__index__` is inherited, and computes."""

    def __index__(self) -> int:
        return super().__index__() + 0


TAKING: dict[str, Callable[[Any, Callable[[int], Any]], Any]] = {
    "a bound": lambda x, of: x[: of(x.shape[0] // 2)],
    "both bounds and a step": lambda x, of: x[of(x.shape[0] // 3) : of(x.shape[0]) : of(2)],
    "an index": lambda x, of: x[of(x.shape[0] - 1)],
    "an index among others": lambda x, of: x[None, of(x.shape[0] // 2), ...],
    "what is written": lambda x, of: (x + 0).index_fill(0, al.tensor([0]), 3.0)[of(0)],
    "a size": lambda x, of: al.zeros(of(x.shape[0]), 2) + x[0],
    "sizes": lambda x, of: al.full((of(x.shape[0]), of(2)), 3.0),
    "a view": lambda x, of: x.view(of(x.shape[0]), 1),
    "sizes of a view": lambda x, of: x.view((of(1), of(x.shape[0]))),
    "an expansion": lambda x, of: x[:1].expand(of(x.shape[0] * 2)),
    "a dimension": lambda x, of: x.sum(of(x.shape[0] * 0)),
    "a length": lambda x, of: x.narrow(0, of(1), of(x.shape[0] - 1)),
    "a range": lambda x, of: al.arange(of(x.shape[0])) + x,
    "Python's own": lambda x, of: x * len(range(of(x.shape[0]))) + [1, 2, 3, 4][of(x.shape[0] % 4)],
}


@pytest.mark.rules("DYN-26", "DYN-33")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", [Integer, Derived])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", TAKING)
def test_an_integer_of_a_users_class_may_be_made_of_a_size(
    name: str, dynamic: bool | None, kind: type[Integer]
) -> None:
    def function(x: al.Tensor) -> Any:
        return TAKING[name](x, kind)

    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    for size in (4, 5, 7, 2, 6):
        found = []
        for each in (function, compiled):
            try:
                result = each(al.arange(float(size)))
                found.append((str(result.meta), result.tolist()))
            except Exception as error:
                found.append((type(error).__name__, str(error)))
        assert found[0] == found[1]
