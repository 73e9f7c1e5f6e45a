"""CAG-15: `enable` and `disable` nest, are a thread's own, and put back what was there."""

from __future__ import annotations

import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.autograd import is_multithreading_enabled, set_multithreading_enabled
from aotlite.compiled_autograd import CompiledAutograd, counters, disable, enable, is_enabled, reset
from aotlite.eager.base.modes import STATE
from aotlite.ir.graph.text.source import graph_from_source

pytestmark = pytest.mark.rules("CAG-15", "CAG-16")


def go(x: Any) -> None:
    (x * x).sum().backward()


def test_blocks_nest_and_put_back() -> None:
    a, b = CompiledAutograd.of("reference"), CompiledAutograd.of("reference")
    x: Any = al.ones(2, requires_grad=True)
    with enable(a):
        go(x)
        with disable():
            assert not is_enabled()
            go(x)
            with enable(b):
                go(x)
            assert STATE.tapes is None
        assert STATE.tapes is a
        with enable(a):
            go(x)
        assert STATE.tapes is a
    assert not is_enabled()
    assert (a.counters.calls, b.counters.calls) == (2, 1)
    assert x.grad.tolist() == [8.0, 8.0]


def test_an_error_in_a_block_puts_back() -> None:
    with pytest.raises(KeyError), enable("reference"), disable(), enable("reference"):
        raise KeyError
    assert STATE.tapes is None


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0), (0, 2, 1), (2, 0, 1)])
def test_leaving_in_another_order_is_an_error_and_puts_back(order: tuple[int, ...]) -> None:
    """What is left out of turn is left; when all are, nothing is enabled."""
    switches = [enable(CompiledAutograd.of("reference")), disable(), enable("reference")]
    for switch in switches:
        switch.__enter__()
    entered = list(range(3))
    for number in order:
        if entered[-1] == number:
            switches[number].__exit__(None, None, None)
        else:
            with pytest.raises(al.UnsupportedError, match="blocks that nest"):
                switches[number].__exit__(None, None, None)
        entered.remove(number)
        assert STATE.tapes is (switches[entered[-1]].tapes if entered else None)
    assert not is_enabled()


STEPS = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=4)


@settings(max_examples=150)
@given(STEPS, STEPS, STEPS)
@example([(0, True)], [(1, True)], [(1, False), (0, False)])
@example([(0, True), (1, True)], [(0, False)], [(1, False)])
def test_blocks_are_left_in_the_hook_that_entered_them(
    before: list[Any], inside: list[Any], behind: list[Any]
) -> None:
    """Else it is an error, as in another order, and behind the backward is enabled what is left."""
    switches = [enable(CompiledAutograd.of("reference")), disable(), enable("reference")]
    entered: list[tuple[int, int]] = []

    def go_on(steps: list[Any], depth: int) -> None:
        for number, enters in steps:
            if enters:
                switches[number].__enter__()
                entered.append((number, depth))
                continue
            own = [place for place, (which, _) in enumerate(entered) if which == number]
            nests = (
                bool(own) and entered[own[-1]] == (number, depth) and own[-1] == len(entered) - 1
            )
            with nullcontext() if nests else pytest.raises(al.UnsupportedError, match="that nest"):
                switches[number].__exit__(None, None, None)
            if own:
                del entered[own[-1]]

    def check() -> None:
        outer = [number for number, depth in entered if not depth]
        assert STATE.tapes is (switches[outer[-1]].tapes if outer else None)

    x: Any = al.ones(2, requires_grad=True)
    y = x * 2
    try:
        go_on(before, 0)
        depth = int(is_enabled())
        y.register_hook(lambda grad: go_on(inside, depth))
        y.sum().backward()
        check()
        go_on(behind, 0)
        check()
    finally:
        for number, _ in entered[::-1]:
            with suppress(al.UnsupportedError):
                switches[number].__exit__(None, None, None)
    assert not is_enabled()


def test_leaving_what_was_not_entered_is_an_error() -> None:
    with pytest.raises(al.UnsupportedError, match="CAG-15|blocks that nest"):
        enable("reference").__exit__(None, None, None)
    assert not is_enabled()


def test_a_block_of_another_thread_is_not_left_here() -> None:
    switch, found = enable("reference"), []

    def leave() -> None:
        try:
            switch.__exit__(None, None, None)
        except al.UnsupportedError as error:
            found.append(error)

    with switch:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert is_enabled()
    assert len(found) == 1


def test_other_threads_have_the_engine() -> None:
    tapes, seen = CompiledAutograd.of("reference"), []
    x: Any = al.ones(2, requires_grad=True)

    def other() -> None:
        seen.append(is_enabled())
        go(x)

    with enable(tapes):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [False]
    assert tapes.counters.calls == 0
    assert x.grad.tolist() == [2.0, 2.0]


def test_threads_share_what_was_compiled() -> None:
    tapes = CompiledAutograd.of("reference")
    leaves: list[Any] = [al.ones(3, requires_grad=True) for _ in range(4)]
    barrier = threading.Barrier(4)

    def work(leaf: Any) -> None:
        barrier.wait()
        with enable(tapes):
            for _ in range(25):
                (leaf.sin() * leaf).sum().backward()

    threads = [threading.Thread(target=work, args=(leaf,)) for leaf in leaves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected: Any = al.ones(3, requires_grad=True)
    for _ in range(25):
        (expected.sin() * expected).sum().backward()
    assert all(leaf.grad.tolist() == expected.grad.tolist() for leaf in leaves)
    assert tapes.counters.captures <= 4


def test_decorators() -> None:
    tapes = CompiledAutograd.of("reference")

    @enable(tapes)
    def step(x: Any) -> bool:
        go(x)
        return is_enabled()

    @disable()
    def plain(x: Any) -> bool:
        go(x)
        return is_enabled()

    x: Any = al.ones(2, requires_grad=True)
    assert step(x)
    with enable(tapes):
        assert not plain(x)
        assert is_enabled()
    assert tapes.counters.calls == 1
    assert step.__name__ == "step"


def test_what_runs_in_parts_between_others_is_not_decorated() -> None:
    """Its calls give objects that run later: once it was decorated without effect."""

    async def waits() -> None:
        """Nothing."""

    async def gives() -> Any:
        yield 1

    for switch in (enable("reference"), disable()):
        for function in (waits, gives):
            with pytest.raises(al.UnsupportedError, match=r"decorates .*(waits|gives)") as info:
                switch(function)
            assert "around the backward" in info.value.__notes__[0]


def test_compilers_are_known_by_what_they_are_and_their_options() -> None:
    reset()
    with enable("reference") as one, enable("reference") as two:
        assert one is two
    with enable("reference", verify=2) as other:
        assert other is not one
    go_count = one.counters.calls
    with enable("reference"):
        go(al.ones(2, requires_grad=True))
    assert counters("reference").calls == go_count + 1
    reset()
    assert counters("reference").calls == 0


@pytest.mark.parametrize(
    ("given", "options", "error"),
    [
        ("fortran", {}, "expected 'auto'"),
        (3, {}, "expected a name, a Backend or a function"),
        ("reference", {"partition": None}, "is no option, expected passes"),
        ("reference", {"passes": 3}, "passes"),
        ("reference", {"observer": 3}, "observer is 3"),
        (CompiledAutograd.of("reference"), {"verify": 1}, "one or the other"),
    ],
)
def test_bad_arguments_are_named(given: Any, options: Any, error: str) -> None:
    with pytest.raises(al.ArgumentError, match=error):
        enable(given, **options)
    assert not is_enabled()


def test_a_function_compiles_and_passes_run() -> None:
    """`compiler_fn`: any function from a graph to a function of arrays (CAG-1)."""
    graphs, passed, shown = [], [], []

    def compiler(graph: Any) -> Any:
        graphs.append(graph)
        return lambda *arrays: al.ir.run.interpreter.run_graph(graph, arrays)

    def keep(graph: Any) -> Any:
        passed.append(graph)
        return graph

    x: Any = al.ones(2, requires_grad=True)
    with enable(
        al.compilers.nop, passes=[keep], observer=lambda stage, made: shown.append(stage), verify=2
    ) as tapes:
        (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    assert len(passed) == len(tapes.graphs) == 1
    assert shown == ["1 capture", "7 simplify", "pass 'keep'"]


def test_inside_of_a_captured_function() -> None:
    """There the engine records; entering is refused, being in a block changes nothing."""

    def enabling(x: Any) -> Any:
        with enable("reference"):
            return al.autograd.grad((x * x).sum(), x)[0]

    x: Any = al.ones(2, requires_grad=True)
    with pytest.raises(al.UnsupportedError, match="compiled_autograd.enable"):
        al.compile(enabling)(x)
    assert not is_enabled()
    tapes = CompiledAutograd.of("reference")
    with enable(tapes):
        found: Any = al.compile(lambda x: al.autograd.grad((x * x).sum(), x)[0])(x)
    assert found.tolist() == [2.0, 2.0]
    assert tapes.counters.calls == 0


@pytest.mark.rules("CAG-22")
def test_a_dump_has_a_file_for_each_stage_of_each_graph(tmp_path: Path) -> None:
    """Two structures, and two graphs around a hook: numbered, and read back."""
    tapes = CompiledAutograd.of("reference", dump=str(tmp_path))
    with enable(tapes):
        go(al.ones(2, requires_grad=True))
        x = al.ones(3, requires_grad=True)
        middle = x.sin()
        middle.register_hook(lambda grad: None)
        (middle * 2).sum().backward()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2 * tapes.counters.compiles == 2 * len(tapes.graphs)
    assert {file.name.partition("_")[2] for file in files} == {
        "tape_1_capture.py",
        "tape_7_simplify.py",
    }
    pure = [file for file in files if file.name.endswith("7_simplify.py")]
    for file, graph in zip(pure, tapes.graphs, strict=True):
        assert graph_from_source(file.read_text()).code == graph.code


@pytest.mark.rules("CAG-29")
def test_hooks_know_that_a_compiled_backward_runs() -> None:
    asked: list[Any] = []
    names = ("is_enabled", "is_running", "is_tracing")
    tapes = al.compiled_autograd

    def ask(*_: object) -> None:
        asked.append([getattr(tapes, name)() for name in names])

    for hooks in ("segments", "call"):
        with tapes.enable("reference", hooks=hooks):
            ask()
            w = al.ones(2, requires_grad=True)
            w.register_hook(ask)
            (w * w).sum().backward()
        with tapes.disable():
            (w * w).sum().backward()
    expected = [[True, False, False], [False, True, False], [False, False, False]]
    assert expected * 2 == asked
    assert tapes.compiled_autograd_enabled is False
    with pytest.raises(AttributeError, match="compiled_autograd_enable"):
        tapes.compiled_autograd_enable  # noqa: B018


@pytest.mark.rules("CAG-29")
def test_the_switch_for_threads_is_restored() -> None:
    seen = [is_multithreading_enabled()]
    with pytest.raises(KeyError), set_multithreading_enabled(False):
        seen.append(is_multithreading_enabled())
        raise KeyError
    decorated = set_multithreading_enabled(False)(is_multithreading_enabled)
    seen += [is_multithreading_enabled(), decorated(), is_multithreading_enabled()]
    set_multithreading_enabled(False)
    seen.append(is_multithreading_enabled())
    set_multithreading_enabled(True)
    assert seen == [True, False, True, False, True, False]
    with pytest.raises(al.ArgumentError, match="mode is 1, expected True or False"):
        set_multithreading_enabled(1)  # type: ignore[arg-type]
