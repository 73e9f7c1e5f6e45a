"""DYN-37 to DYN-40: floats made of sizes, and ints of these, are expressions of sizes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from math import isqrt as whole_root
from math import sqrt
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.sized_program import sized_texts
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.backend import program_of
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.meta import table_in
from aotlite.ir.op import OPS, PureOp
from aotlite.ir.symbols.proving import Demands, proving
from aotlite.testing.laws.samples.sample import Sample
from tests.samples import samples_of

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
BACKENDS = ["reference", pytest.param("cpu", marks=needs_compiler)]
SIZES = (7, 8, 20, 3, 13, 64)


def made(rows: int, columns: int = 4, *, grad: bool = False) -> al.Tensor:
    numbers = (np.arange(rows * columns) * 7 % 11 - 5).reshape(rows, columns) / 2
    return al.tensor(numbers.astype(np.float32)).requires_grad_(grad)


def words(result: Any) -> object:
    if isinstance(result, al.Tensor):
        return str(result.meta), repr(result.tolist())
    if isinstance(result, (list, tuple)):
        return [words(each) for each in result]
    return type(result).__name__, repr(result)


def guards_of(compiled: Any) -> list[list[str]]:
    return [[guard.text for guard in region.guards] for region in compiled.regions()]


# --------------------------------------------------------------------------- what needs no value
EXPRESSIONS: dict[str, Callable[[al.Tensor], Any]] = {
    "a quotient": lambda x: x * (x.shape[0] / 3),
    "the scale of attention": lambda x: (x @ x.t()) * (1 / math.sqrt(x.shape[-1] + x.shape[0])),
    "a power": lambda x: x + x.shape[0] ** 0.5 - x.shape[0] ** -0.5,
    "an imported root": lambda x: x * sqrt(x.shape[0]),
    "a float": lambda x: x * float(x.shape[0]),
    "logarithms": lambda x: x * math.log(x.shape[0]) + math.log2(x.shape[0] + 1),
    "a sum of floats": lambda x: x * sum([x.shape[0] / 2, 0.1 * x.shape[0]], 0.5),
    "a number of a creation": lambda x: al.full((2,), x.shape[0] / 3) + x.sum(),
    "alpha": lambda x: x.add(x, alpha=x.shape[0] / 3),
    "bounds": lambda x: x.clamp(-x.shape[0] / 8, x.shape[0] / 16),
    "an exponent": lambda x: (x.abs() + 1) ** (x.shape[0] / 5),
    "in 16 bits": lambda x: (x.to(al.bfloat16) * (x.shape[0] / 3)).float(),
    "of integers": lambda x: x.long() * (x.shape[0] / 3),
    "written": lambda x: (x * 1).mul_(x.shape[0] / 3),
    "an item": lambda x: _with_item(x * 1, x.shape[0] / 3),
    "half, rounded up": lambda x: x[: math.ceil(x.shape[0] / 2)],
    "rounded": lambda x: x[: round(x.shape[0] * 0.3)].sum() + round(x.shape[0] / 3, 1),
    "cut": lambda x: x.narrow(0, 1, int(x.shape[0] * 0.5)),
    "a root as a size": lambda x: al.zeros(math.isqrt(x.shape[0]), 3) + whole_root(x.shape[0]),
    "bits": lambda x: al.ones(x.shape[0].bit_length()) * (x.shape[0] & 6),
    "divmod": lambda x: x * divmod(x.shape[0], 0.7)[1] + divmod(x.shape[0] / 3, 2)[0],
    "results": lambda x: (x.shape[0] / 3, round(x.shape[0] * 0.7), x * 1, math.floor(sqrt(9))),
    "a class": lambda x: isinstance(x.shape[0] / 2, float),
    "another class": lambda x: isinstance(round(0.4 + x.shape[0]), int),
}


def _with_item(x: al.Tensor, value: float) -> al.Tensor:
    x[0] = value
    return x


@pytest.mark.rules("DYN-37", "DYN-39", "DYN-40", "SIZ-21")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_one_compilation_serves_all_sizes(name: str, backend: str) -> None:
    function = EXPRESSIONS[name]
    compiled = al.compile(function, dynamic=True, backend=backend)
    for size in SIZES:
        expected = words(function(made(size)))
        if backend == "cpu" and "attention" in name:  # a product of matrices, in another order
            np.testing.assert_allclose(compiled(made(size)), function(made(size)), rtol=1e-5)
        else:
            assert words(compiled(made(size))) == expected
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-37")
@pytest.mark.parametrize("name", ["a quotient", "an imported root", "alpha", "cut", "a float"])
def test_gradients_compute_with_the_float_of_each_call(name: str) -> None:
    function = EXPRESSIONS[name]
    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in SIZES:
        x, y = made(size, grad=True), made(size, grad=True)
        (function(x) ** 2).sum().backward()
        (compiled(y) ** 2).sum().backward()
        assert x.grad is not None and y.grad is not None
        assert words(y.grad.contiguous()) == words(x.grad.contiguous())
    assert len(compiled.entries) == 1


@needs_compiler
@pytest.mark.rules("SIZ-21")
def test_no_kernel_is_compiled_for_a_further_size() -> None:
    def function(x: al.Tensor) -> al.Tensor:
        return ((x * (1 / math.sqrt(x.shape[0]))).exp() + x.shape[0] / 3).sum(1)

    compiled = al.compile(function, dynamic=True, backend="cpu")
    for size in SIZES:
        np.testing.assert_allclose(compiled(made(size)), function(made(size)), rtol=1e-5)
    [entry] = compiled.entries
    region: Any = entry.guarded
    kernels = region.records.kernels[0]
    assert kernels.why_not == []
    versions = [each for (run,) in kernels._made.values() for each in run.versions]
    assert len(versions) == 1


@pytest.mark.rules("SIZ-14", "SIZ-21")
def test_a_text_for_a_gpu_takes_the_bits_of_a_double() -> None:
    compiled = al.compile(lambda x: x.exp() * (x.shape[0] / 3), dynamic=True, backend="reference")
    compiled(made(8, 20))
    graph = compiled.forward_graph
    table = table_in([node.meta for node in graph.nodes])
    assert table is not None
    demands = Demands(table.hints)
    with proving(table, demands=demands):
        texts = sized_texts(program_of(graph), graph, H100, table, demands)
    for text in texts:
        (launch,) = text.printed.launches
        assert "float64 bits(s0 / 3)" in map(str, launch.sizes)
        place = list(map(str, launch.sizes)).index("float64 bits(s0 / 3)")
        head = text.printed.text.partition(f" {launch.name}(")[2].partition(")")[0]
        assert head.split(", ")[len(launch.buffers) + place].startswith("const i64 ")
        assert all("bits" not in str(reach) for reach in text.printed.reaches)


# -------------------------------------------------------------------------------------- questions
@pytest.mark.rules("DYN-38")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_comparison_is_a_guard_with_its_line(backend: str) -> None:
    def function(x: al.Tensor) -> al.Tensor:
        if x.shape[0] / 3 > 2.5:  # the line
            return x * (x.shape[0] / 3)
        return x - math.sqrt(x.shape[0])

    compiled = al.compile(function, dynamic=True, backend=backend)
    for size in (9, 7, 30, 5, 8, 2):
        assert words(compiled(made(size))) == words(function(made(size)))
    first, second = compiled.regions()
    assert first.guards[0].text == "s0 / 3 > 2.5"
    assert second.guards[0].text == "not s0 / 3 > 2.5"
    assert "if x.shape[0] / 3 > 2.5: # the line" in repr(first.guards[0])
    assert first.sizes == ((9, 4), (30, 4), (8, 4))


@pytest.mark.rules("DYN-38", "DYN-13")
@pytest.mark.parametrize("number", [2.5, 3.0, -1.5, 0.0, math.inf, -math.inf, math.nan, 1e300])
@pytest.mark.parametrize("relation", ["<", "<=", ">", ">=", "==", "!="])
def test_a_comparison_of_a_size_with_a_float_is_one_of_ints(relation: str, number: float) -> None:
    scope: dict[str, Any] = {"number": number}
    exec(f"def ask(n): return n {relation} number, number {relation} n", scope)

    function = scope["ask"]
    compiled = al.compile(lambda x, n: (x, *function(n)), dynamic=True, backend="reference")
    for n in (*range(-4, 6), 2, 3):
        assert compiled(made(2), n)[1:] == function(n)
    assert len(compiled.entries) <= 3
    for guard in [each for texts in guards_of(compiled) for each in texts]:
        assert "." not in guard and "nan" not in guard


@pytest.mark.rules("DYN-25", "DYN-38")
@pytest.mark.parametrize("root", ["math.sqrt(abs(n - 2)) < 2", "n < 3 or math.sqrt(n - 3) < 2"])
def test_a_root_beside_a_search_by_cases(root: str) -> None:
    """Cases of `n // 2` are looked at where the root of what the hints give has no value."""
    scope: dict[str, Any] = {"math": math, "al": al}
    exec(
        "def function(x, y):\n"
        "    n = x.shape[1]\n"
        f"    v = x + 1 if {root} else x\n"
        "    x.add_(y)\n"
        "    return x.take(al.arange(n // 2)), v[-(-(-n // 2)) : -1 : 2]\n",
        scope,
    )
    function = scope["function"]
    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in (5, 0, 1, 3, 7):
        given = [(al.ones(3, size), al.ones(size)) for _ in range(2)]
        assert list(map(words, compiled(*given[0]))) == list(map(words, function(*given[1])))


@pytest.mark.rules("DYN-37")
def test_an_error_at_some_sizes_is_that_of_eager() -> None:
    def function(x: al.Tensor, n: int) -> al.Tensor:
        return x * (1 / n) + math.log(n + 3) + 2.0**n

    compiled = al.compile(function, dynamic=True, backend="reference")
    seen = []
    for n in (2, 5, 0, -1, -3, 7, -5, 2000, 3):
        outcomes = []
        for each in (function, compiled):
            try:
                outcomes.append(words(each(made(2), n)))
            except (ArithmeticError, ValueError) as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]
        seen.append(outcomes[0])
    assert sum(isinstance(each, tuple) and isinstance(each[0], type) for each in seen) == 4
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-37")
def test_an_error_that_the_function_catches_is_another_way() -> None:
    def function(x: al.Tensor) -> al.Tensor:
        try:
            scale = 1 / (x.shape[0] - 3)
        except ZeroDivisionError:
            scale = 0.5
        return x * scale

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in (7, 3, 5, 3, 9):
        assert words(compiled(made(size))) == words(function(made(size)))
    assert [texts[0] for texts in guards_of(compiled)] == ["s0 != 3", "s0 == 3"]


@pytest.mark.rules("DYN-40")
def test_what_is_asked_of_an_int_of_floats_is_a_guard() -> None:
    def function(x: al.Tensor) -> al.Tensor:
        rows = round(x.shape[0] * 0.7)
        return x[:rows] if rows > 3 else x + rows

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in (9, 4, 30, 5, 2, 8):
        assert words(compiled(made(size))) == words(function(made(size)))
    assert [texts[0] for texts in guards_of(compiled)] == [
        "round(s0 * 0.7) > 3",
        "round(s0 * 0.7) <= 3",
    ]


# ------------------------------------------------------------------------------ what needs a value
TAKING: dict[str, Callable[[al.Tensor], Any]] = {
    "a text": lambda x: (f"{x.shape[0] / 2:.1f}", x * 1),
    "a key": lambda x: x * {1.5: 2.0}.get(x.shape[0] / 2, 1.0),
    "an index": lambda x: x * (1.0, 2.0, 3.0)[int(x.shape[0] / 2) % 3],
    "NumPy": lambda x: x * float(np.sqrt(x.shape[0] / 2)),
    "a shift": lambda x: x * (3.0).__add__(x.shape[0] / 2).hex().__len__(),
    "the value of a size": lambda x: x * int(x.shape[0]),
}


@pytest.mark.rules("DYN-20", "DYN-39")
@pytest.mark.parametrize("name", TAKING)
def test_what_needs_the_value_fixes_the_sizes_in_it(name: str) -> None:
    function = TAKING[name]
    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in SIZES:
        assert words(compiled(made(size))) == words(function(made(size)))
    assert len(compiled.entries) > 1


@pytest.mark.rules("DYN-20", "DYN-37")
def test_an_expression_that_would_be_long_takes_the_value() -> None:
    """Written out, 60 doublings would be 2**60 sums."""

    def function(x: al.Tensor) -> al.Tensor:
        scale: float = x.shape[0]
        for _ in range(60):
            scale = scale * 0.5 + scale * 0.5
        return x * scale if scale > 1 else x

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in (7, 8, 7):
        assert words(compiled(made(size))) == words(function(made(size)))
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-3", "DYN-20")
def test_a_mark_on_a_size_in_a_text_is_an_error_with_the_line() -> None:
    def function(x: al.Tensor) -> tuple[str, al.Tensor]:
        return f"{x.shape[0] / 2}", x * 2  # the text

    x = made(7)
    al.mark_dynamic(x, 0)
    with pytest.raises(al.GuardError, match="the text"):
        al.compile(function, backend="reference")(x)


@pytest.mark.rules("DYN-37", "CAP-14")
def test_a_float_that_is_stored_is_a_number() -> None:
    stored: list[float] = []

    def function(x: al.Tensor) -> al.Tensor:
        stored.append(x.shape[0] / 3)
        return x * 2

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in (7, 8):
        compiled(made(size))
    assert [(type(each), each) for each in stored] == [(float, 7 / 3), (float, 8 / 3)]


@pytest.mark.rules("DYN-23")
def test_the_text_of_an_error_has_the_float_of_each_call() -> None:
    def function(x: al.Tensor) -> al.Tensor:
        return al.nn.functional.dropout(x, x.shape[0] / 3)

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in (7, 8, 2):
        texts = []
        for each in (function, compiled):
            try:
                texts.append(str(each(made(size)).meta))
            except al.ArgumentError as error:
                texts.append(str(error))
        assert texts[0] == texts[1]


@pytest.mark.rules("DYN-37")
def test_draws_take_the_float_of_each_call() -> None:
    def function(x: al.Tensor) -> al.Tensor:
        more = x.new_zeros(3, 1).normal_(0, sqrt(x.shape[0]))
        return (x * 1).uniform_(0.0, x.shape[0] / 3) + more[:1]

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in SIZES:
        found = []
        for each in (function, compiled):
            al.manual_seed(3)
            found.append(words(each(made(size))))
        assert found[0] == found[1]


@pytest.mark.rules("DYN-5", "DYN-37", "DYN-40")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_float_of_a_count_is_computed_for_each_call(backend: str) -> None:
    def function(x: al.Tensor) -> al.Tensor:
        found = x[x > 0]
        return found * (1 / (found.shape[0] + 1)) + found.shape[0] ** 0.5

    compiled = al.compile(function, backend=backend)
    for count in (2, 5, 0, 1, 6):
        x = al.tensor([1.0] * count + [-1.0] * (6 - count))
        assert words(compiled(x)) == words(function(x))
    assert len(compiled.entries) == 1


# ---------------------------------------------------------------------------- Python's functions
@pytest.mark.rules("DYN-39")
def test_python_s_functions_are_there_again() -> None:
    before = math.sqrt, sqrt, dict(vars(math))

    def function(x: al.Tensor, wrong: bool) -> al.Tensor:
        if wrong:
            raise KeyError(str(int("3")))
        return x * sqrt(x.shape[0]) * math.exp(-x.shape[0]) * int(x.shape[0] * 0.5)

    compiled = al.compile(function, dynamic=True, backend="reference")
    compiled(made(7), False)
    with pytest.raises(KeyError):
        compiled(made(7), True)
    assert (math.sqrt, sqrt, dict(vars(math))) == before
    assert "int" not in globals() and "float" not in globals()


@pytest.mark.rules("DYN-39")
def test_functions_do_what_they_did_with_any_other_number() -> None:
    found: list[Any] = []

    def look() -> None:
        found.append((int("7"), int("11", 2), float("1.5"), int(2.9)))
        found.append((isinstance(3, int), isinstance(3, float), isinstance("3", (int, float))))
        found.append((issubclass(bool, int), int.from_bytes(b"\1", "big"), repr(int)))
        found.append({int: 1}[int])
        found.append((np.zeros(1, dtype=int).dtype, float.fromhex("0x1p1"), list(map(int, "12"))))
        found.append((math.sqrt(4), math.gcd(4, 6), math.log(8, 2), sqrt(9.0)))

    def function(x: al.Tensor) -> al.Tensor:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return x * 2

    look()
    expected, found = found, []
    al.compile(function, dynamic=True, backend="reference")(made(7))
    assert found == expected


# ------------------------------------------------------------------------- the law beneath it
SCALED: tuple[tuple[int, float | None], ...] = (
    *((3, 1 / 3), (9_999_999, 1e-7 * 0.9999999), (10**6, -1e-6), (3, 1.5e30)),
    *((3, None), (16_777_217, None), (33_554_435, None)),
)
"""Rows, and what they are multiplied by, if anything: near 1, and ints that no float32 holds."""


@needs_compiler
@pytest.mark.rules("DYN-37", "SIZ-21")
@pytest.mark.thinned(6)
@pytest.mark.parametrize(
    "name",
    [n for n, op in OPS.items() if isinstance(op, PureOp) and op.mixed and op.scalar is not None],
)
def test_a_kernel_computes_with_numbers_of_sizes_as_with_numbers(name: str) -> None:
    """Bit for bit what a compilation for the number gives, in every op with a scalar formula."""
    op = OPS[name]
    assert isinstance(op, PureOp)
    samples = list(samples_of(name))
    whole = [x for x in samples if getattr(x.args[0], "dtype", None) == np.int64]
    for sample in (*samples[:3], *whole[:1]):
        args = bound(op, sample)
        for i in op.mixed:
            if not isinstance(args[i], al.Tensor):
                check_number(op, args, i)


def bound(op: PureOp, sample: Sample) -> tuple[Any, ...]:
    def put(value: object) -> object:
        return al.tensor(value) if isinstance(value, np.ndarray) else value

    return op.bind(tuple(map(put, sample.args)), {k: put(v) for k, v in sample.kwargs.items()})


def check_number(op: PureOp, args: tuple[Any, ...], i: int) -> None:
    given = [each for each in args if isinstance(each, al.Tensor)]

    def function(rows: Any, scale: float | None, *tensors: Any) -> Any:
        left = iter(tensors)
        put = [next(left) if isinstance(each, al.Tensor) else each for each in args]
        put[i] = rows.shape[0] if scale is None else rows.shape[0] * scale
        return tensors[0]._apply(op, tuple(put))

    shapes = {"scale": None}
    compiled = al.compile(function, dynamic=True, dynamic_shapes=shapes, backend="cpu")
    for rows, scale in SCALED:
        found = []
        for each in (al.compile(function, dynamic=False, backend="cpu"), compiled):
            with np.errstate(all="ignore"):
                try:
                    result = each(al.zeros(1).expand(rows), scale, *given)
                    found.append((str(result.meta), repr(result.tolist())))
                except al.AotliteError as error:
                    found.append((type(error).__name__, str(error)))
        assert found[0] == found[1]
