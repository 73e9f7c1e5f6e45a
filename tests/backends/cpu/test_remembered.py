"""What is remembered of graphs: a run from the disk cache is the run that was compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cpu import backend
from aotlite.backends.cpu import graph_key as graph_keys
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.cpu.graph_key import graph_key
from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.dtypes import float64
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.provenance.library_files import file_states
from tests.backends.cpu.test_backend import FUNCTIONS, results_of
from tests.helpers.own_ops import taken_out

F = al.nn.functional
pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")


class Recorded(CpuBackend):
    """Keeps what it compiled."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        object.__setattr__(self, "runs", [])

    def compile(self, graph: Graph) -> Any:
        """As `CpuBackend`."""
        run = super().compile(graph)
        self.runs.append(run)  # type: ignore[attr-defined]
        return run

    def lowered(self) -> list[bool]:
        """Of each graph whether it was lowered, and not remembered."""
        return ["lowering" in run.kernels.seconds for run in self.runs]  # type: ignore[attr-defined]


def with_constant(x: Any, w: Any) -> Any:
    return x * al.tensor([1.0, -0.0, float("nan"), 4.0, 1e-45, 6.0]) + w[0]


def with_checks(x: Any, w: Any) -> Any:
    return w[al.tensor([3, 0, -1])] * x[:3]


def by_complex_numbers(x: Any, w: Any) -> Any:
    """Externs with a complex number among their arguments."""
    return (x * (1 + 2j)).abs() + w[0]


def with_draws(x: Any, w: Any) -> Any:
    return F.dropout(x, 0.5) @ w.t()


def by_externs(x: Any, w: Any) -> Any:
    """Externs with several results, lists and dtypes; memory that two segments use."""
    values, order = (x * 2).sort(-1)
    kept = x.exp()
    return al.cumsum(values, 1, dtype=float64).sum(0) * kept.sum(0) + al.median(w), order


CHOSEN = (*FUNCTIONS, with_constant, with_checks, by_complex_numbers, with_draws)


@pytest.mark.rules("CPU-9")
@pytest.mark.thinned(7)
@pytest.mark.parametrize("function", CHOSEN, ids=lambda f: f.__name__)
def test_a_remembered_graph_gives_the_same_bits(
    function: Callable[..., Any], cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold, warm = Recorded(), Recorded()
    first = results_of(al.compile(function, backend=cold))
    with monkeypatch.context() as patch:
        patch.setattr(backend, "_program", lambda *_: 1 // 0)
        second = results_of(al.compile(function, backend=warm))
    assert ([True] * 2, [False] * 2) == (cold.lowered(), warm.lowered())
    for a, b in zip(first, second, strict=True):
        assert (a.strides, a.dtype, a.tobytes()) == (b.strides, b.dtype, b.tobytes())


@pytest.mark.rules("CPU-9")
def test_externs_and_inputs_that_are_written_are_remembered(cache: Any) -> None:
    def written(x: Any, w: Any) -> Any:
        found = by_externs(x, w)
        x.mul_(2.0)
        return found

    def called(compiler: Recorded) -> list[bytes]:
        al.manual_seed(1)
        x, w = al.randn(5, 6), al.randn(4, 6)
        return [t.numpy().tobytes() for t in (*al.compile(written, backend=compiler)(x, w), x)]

    cold, warm = Recorded(), Recorded()
    assert called(cold) == called(warm)
    assert ([True], [False]) == (cold.lowered(), warm.lowered())


@pytest.mark.rules("CPU-9")
def test_a_remembered_check_refuses_what_eager_refuses(cache: Any) -> None:
    def picked(x: Any, places: Any) -> Any:
        return x[places] * 2

    x = al.arange(4.0)
    for lowered in (True, False):
        compiler = Recorded()
        compiled = al.compile(picked, backend=compiler)
        assert [4.0, 0.0] == compiled(x, al.tensor([2, 0])).tolist()
        with pytest.raises(IndexError, match="index"):
            compiled(x, al.tensor([2, 9]))
        assert [lowered] == compiler.lowered()


@pytest.mark.rules("CPU-9")
def test_the_program_of_a_remembered_graph_is_made_for_who_looks(cache: Any) -> None:
    def made() -> Any:
        compiler = Recorded()
        al.compile(FUNCTIONS[0], backend=compiler)(al.ones(5, 6), al.ones(4, 6))
        return compiler.runs[0].kernels  # type: ignore[attr-defined]

    cold, warm = made(), made()
    assert "lowering" not in warm.seconds
    assert (str(cold.program), cold.text) == (str(warm.program), warm.text)


@pytest.mark.rules("CPU-9")
def test_nobody_waits_for_a_remembered_graph(cache: Any, monkeypatch: Any) -> None:
    x, w = al.ones(5, 6), al.ones(4, 6)
    al.compile(FUNCTIONS[0], backend="cpu")(x, w)
    compiler = Recorded(wait=False)
    al.compile(FUNCTIONS[0], backend=compiler)(x, w)
    assert [False] == compiler.lowered()
    monkeypatch.setenv("AOTLITE_CACHE", f"{cache}/another")
    compiler = Recorded(wait=False)
    al.compile(FUNCTIONS[0], backend=compiler)(x, w)
    assert [True] == compiler.lowered()


@pytest.mark.rules("CPU-9")
@pytest.mark.parametrize("damage", ["json", "text", "list", "empty", "op", "word", "dtype", "deep"])
def test_a_record_that_cannot_be_read_is_not_there(cache: Any, damage: str) -> None:
    """Its checksum is right: the graph is compiled again, and its record takes the place."""

    def run() -> tuple[list[bool], list[bytes]]:
        compiler = Recorded()
        compiled = al.compile(by_complex_numbers, backend=compiler)
        with al.no_grad():
            found = [compiled(al.ones(3, 4), al.ones(4, 4)).numpy().tobytes()]
        return compiler.lowered(), found

    cold = run()
    (record,) = (path for path in cache.rglob("graph.*.json") if b'"abs"' in path.read_bytes())
    whole = record.read_bytes()
    record.unlink()
    bad = {
        "json": whole[: len(whole) // 2],
        "text": b"\xff",
        "list": b"[]",
        "empty": b"{}",
        "op": whole.replace(b'["abs"', b'["no_such_op"'),
        "word": whole.replace(b'["tuple"', b'["heap"'),
        "dtype": whole.replace(b'"complex64"', b'"float7"'),
        "deep": b"[" * 100_000,
    }[damage]
    assert bad != whole
    artifact_cache.kept(record.parent.name, "graph", ".json", bad)
    assert cold == run()
    assert whole == record.read_bytes() and [record] == list(record.parent.iterdir())
    assert ([False], cold[1]) == run()


# -------------------------------------------------------------------------------------------- keys
def times(number: Any, name: str = "f", shape: tuple[int, ...] = (2,)) -> Graph:
    build = Builder(name)
    return build.finish([build.placeholder(tensor_meta(shape)) * number])


@pytest.mark.rules("CPU-9")
def test_keys_tell_graphs_apart() -> None:
    other = (times(2), times(True), times(0.0), times(-0.0), times(2.0, "g"), times(2.0, "f", (3,)))
    keys = [graph_key(graph, 2) for graph in (times(2.0), *other)] + [graph_key(times(2.0), 3)]
    assert len(keys) == len(set(keys)) and None not in keys
    assert graph_key(times(2.0), 2) == keys[0]


@pytest.mark.rules("CPU-9")
def test_graphs_that_differ_in_a_constant_are_not_taken_for_each_other(cache: Any) -> None:
    def plus(last: float) -> Any:
        return al.compile(lambda x: x + al.tensor([1.0, last]), backend="cpu")(al.zeros(2)).tolist()

    assert ([1.0, 2.0], [1.0, 3.0]) == (plus(2.0), plus(3.0))


@pytest.mark.rules("CPU-9")
def test_a_changed_file_of_the_ops_changes_all_keys(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ops" / "mul.py"
    file.parent.mkdir()
    file.write_text("a * b")
    monkeypatch.setattr(graph_keys.aotlite.ir, "__path__", [str(tmp_path)])

    def key() -> str | None:
        graph_keys._sources.cache_clear()
        file_states.cache_clear()
        return graph_key(times(2.0), 2)

    try:
        before, status = key(), file.stat()
        assert before == key()
        file.write_text("b * a")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert before != key()
    finally:
        graph_keys._sources.cache_clear()
        file_states.cache_clear()


@pytest.mark.rules("CPU-9")
def test_ops_of_the_users_own_and_large_constants_are_not_remembered(cache: Any) -> None:
    with taken_out():
        thrice = al.register_op(
            "thrice_remembered(Tensor self) -> Tensor",
            kernel=lambda xp, a: a * 3,
            scalar=lambda a: a * 3,
            vjp=None,
        )
        large = list(range((1 << 17) + 1))
        for function in (lambda x: thrice(x), lambda x: x + al.tensor(large)[0]):
            for _ in range(2):
                compiler = Recorded()
                al.compile(function, backend=compiler)(al.ones(3))
                assert [True] == compiler.lowered()
