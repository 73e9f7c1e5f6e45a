"""The backend `auto` where compilers hang, fail or are absent: nobody waits twice, or in vain."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.auto import AUTO, AutoBackend
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.native.compiler import compilation, compilers, probe, toolchain
from aotlite.backends.native.libraries.background import in_background
from aotlite.backends.native.libraries.library_loading import load_c
from tests.backends.cpu.helpers.compilers import compiles, forget

HANGS = "#!/bin/sh\nexec sleep 60\n"


def doubled(x: Any) -> Any:
    return (x * 2).exp()


def halved(x: Any) -> Any:
    return (x / 2).exp()


@pytest.fixture
def texts(cache: Path, tmp_path: Path, monkeypatch: Any) -> Any:
    """Lists the C files that are left behind."""
    folder = tmp_path / "texts"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return lambda: sorted(str(path) for path in folder.glob("*.c"))


@pytest.fixture
def hanging(texts: Any, tmp_path: Path, monkeypatch: Any) -> Path:
    """$CC is a compiler that hangs when it is tried, for two seconds."""
    script = tmp_path / "hangs"
    script.write_text(HANGS)
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setattr(probe, "PROBE_LIMIT", 2.0)
    forget()
    in_background(int).result(60)  # the thread is free
    return script


@pytest.fixture
def late(compiler: Any, texts: Any, monkeypatch: Any) -> None:
    """A compiler that works when it is tried, and hangs then."""
    monkeypatch.setitem(load_c.__kwdefaults__, "time_limit", 2.0)
    monkeypatch.setattr(compilation, "ANSWER_LIMIT", 0.5)
    compiler("exec sleep 60")


def said_by(call: Any) -> list[str]:
    """What the user is warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in said]


def served(function: Any, **options: Any) -> Any:
    """Calls a compiled function and compares what it gives; returns it."""
    compiled = al.compile(function, **options)
    x = al.ones(3)
    np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=2e-5)
    return compiled


# -------------------------------------------------------------------------- nobody waits for trials
@compiles
@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_who_does_not_wait_does_not_wait_for_the_trial_of_a_compiler(
    hanging: Path, name: str
) -> None:
    def call() -> None:
        compiled = served(doubled, backend=name, wait=False)
        assert not toolchain.is_known()  # gcc is asked when the first has had its time
        in_background(int).result(60)
        assert toolchain.is_known() and toolchain.find_compiler() is not None
        compiled(al.ones(3))

    (told,) = said_by(call)
    assert f"$CC ({hanging}): took more than 2 s" in told


def test_where_no_compiler_works_that_is_told_once_and_calls_go_on(
    hanging: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(compilers, "which", lambda word: word if word == str(hanging) else None)
    monkeypatch.setattr(compilers, "_zig", lambda: None)

    def call() -> None:
        functions = [served(each, backend="auto", wait=False) for each in (doubled, halved)]
        in_background(int).result(60)
        for compiled in functions:
            np.testing.assert_allclose(compiled(al.zeros(3)).numpy(), np.ones(3))
        served(lambda x: x * 3, backend="auto", wait=False)
        served(lambda x: x * 4, backend="auto")

    trial, told = said_by(call)
    assert "took more than 2 s" in trial and "pip install 'aotlite[cc]'" in told


@compiles
def test_a_compiler_that_is_not_known_is_taken_for_one_that_works(
    cache: Path, monkeypatch: Any
) -> None:
    without = AUTO.without_waiting()
    assert not toolchain.is_known() and without.fuses and not toolchain.is_known()
    assert AutoBackend().fuses and toolchain.is_known()
    forget()
    monkeypatch.setattr(toolchain, "_probed", lambda _: "is not to be run")
    assert toolchain.is_known() and without.fuses  # the disk cache knows it
    monkeypatch.setattr(compilers, "candidates", lambda: iter(()))
    monkeypatch.setattr(toolchain, "candidates", lambda: iter(()))
    forget()
    assert toolchain.is_known() and not without.fuses


# ---------------------------------------------------------------- compilers that hang after a trial
@compiles
def test_a_compiler_that_ran_out_of_time_is_not_asked_again(late: None, texts: Any) -> None:
    def call() -> None:
        served(doubled, backend="auto")
        in_background(int).result(60)
        begin = time.monotonic()
        for function in (halved, lambda x: x * 3, lambda x: x * 4):
            served(function, backend="auto")
            served(function, backend="auto", wait=False)
        assert time.monotonic() - begin < 1.9
        assert not AUTO.fuses

    (told,) = said_by(call)
    (kept,) = texts()
    for part in ("took more than 2 s", "/compiler (gcc", "unset or mend CC", kept):
        assert part in told


@compiles
def test_who_does_not_wait_is_told_too_and_later_graphs_wait_for_nothing(
    late: None, texts: Any
) -> None:
    def call() -> None:
        toolchain.find_compiler()
        functions = [served(each, backend="auto", wait=False) for each in (doubled, halved)]
        begin = time.monotonic()
        in_background(int).result(60)
        assert time.monotonic() - begin < 3.9  # one limit, though there are three texts
        for compiled in functions:
            np.testing.assert_allclose(compiled(al.zeros(3)).numpy(), np.ones(3))

    (told,) = said_by(call)
    (kept,) = texts()
    assert "took more than 2 s" in told and kept in told


# ----------------------------------------------------------------------- texts that are too long
SLOW = 'case "$*" in *slow*) exec sleep 60 ;; esac; exec gcc "$@"'
"""A compiler that has no end of graphs whose names have this word."""


@pytest.fixture
def slow(compiler: Any, texts: Any, monkeypatch: Any) -> None:
    compiler(SLOW)
    load_c("int answer(void) { return 42; }\n", "answer")
    served(halved, backend="auto")  # the runtime is there, too
    monkeypatch.setitem(load_c.__kwdefaults__, "time_limit", 2.0)


def _slow(k: int) -> Any:
    def slow(x: Any) -> Any:
        return (x * float(k)).exp()

    return slow


@compiles
def test_a_text_that_is_too_long_is_a_matter_of_its_graph(slow: None, texts: Any) -> None:
    """CC-26: the compiler is asked for others, and for this text never again."""

    def call() -> None:
        served(_slow(2), backend="auto")
        begin = time.monotonic()
        served(_slow(2), backend="auto")
        assert time.monotonic() - begin < 1.9

    (told,) = said_by(call)
    (kept,) = texts()
    for part in ("took more than 2 s", "graph slow runs op by op", kept):
        assert part in told
    assert AUTO.fuses
    run = al.inspect.stages_of(al.compile(lambda x: x * 3.0 - 1.0, backend="auto"), al.ones(3))
    assert "C compiler" in str(run.record("forward_kernels"))


@compiles
def test_a_compiler_is_not_asked_again_after_three_texts_that_were_too_long(slow: None) -> None:
    """CC-26. They may be of functions of one name."""

    def call() -> None:
        for k in (2, 3, 4):
            assert AUTO.fuses
            served(_slow(k), backend="auto")
        assert not AUTO.fuses
        begin = time.monotonic()
        served(_slow(5), backend="auto")
        assert time.monotonic() - begin < 1.9

    *_, told = said_by(call)
    assert "compiling 'slow', took more than 2 s" in told
    assert "it is not asked again in this process" in told


@compiles
@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_kernels_for_all_sizes_that_are_too_long_are_compiled_for_each(
    slow: None, compiler: Any, tmp_path: Path, name: str
) -> None:
    """CC-26: the text of one size may be short enough, and is compiled."""
    script = tmp_path / "compiler"
    sized = SLOW.replace("exec sleep", 'grep -q "i64 .sizes" *slow*.c && exec sleep')
    script.write_text(script.read_text().replace(SLOW, sized))

    def slow_rows(x: Any) -> Any:
        return (x * 2.0).exp().sum(1)

    compiled = al.compile(slow_rows, backend=name, dynamic=True)
    assert not said_by(lambda: compiled(al.ones(3, 5)))
    np.testing.assert_allclose(
        compiled(al.ones(4, 6)).numpy(), slow_rows(al.ones(4, 6)).numpy(), rtol=2e-5
    )
    assert AUTO.fuses


# ------------------------------------------------------------------------- compilers that then fail
@compiles
def test_a_graph_that_does_not_compile_falls_back_alone(compiler: Any, texts: Any) -> None:
    """What is told names the compiler, its line, the file, and what to do; no other file stays."""
    body = 'case "$*" in *doubled*) echo "f.c:1: error: no good"; exit 3 ;; esac; exec gcc "$@"'
    compiler(body)

    def call() -> None:
        served(doubled, backend="auto")
        run = al.inspect.stages_of(al.compile(halved, backend="auto"), al.ones(3))
        assert "C compiler" in str(run.record("forward_kernels"))

    (told,) = said_by(call)
    (kept,) = texts()
    for part in (
        "compiling 'doubled', ended with status 3",
        "/compiler (gcc",
        "f.c:1: error: no good",
        "graph doubled runs op by op, as with backend='reference'",
        "unset or mend CC",
        kept,
    ):
        assert part in told


@compiles
def test_a_file_stays_only_where_a_warning_names_it(compiler: Any, texts: Any) -> None:
    """Not that of the runtime, which is compiled beside a graph, nor that of the same once more."""
    compiler('echo "f.c:1: error: no good"; exit 3')

    def call() -> None:
        for _ in range(3):
            served(doubled, backend="auto")
        served(halved, backend=CpuBackend(wait=False))
        compiled = served(halved, backend="auto", wait=False)
        in_background(int).result(60)
        compiled(al.ones(3))

    told = said_by(call)
    kept = texts()
    assert 2 == len(told) == len(kept)
    assert all(any(path in text for text in told) for path in kept)


@compiles
def test_who_does_not_wait_is_told_at_the_line_that_calls(compiler: Any, texts: Any) -> None:
    """And not at one of the functions that are written at run time."""
    compiler('echo "f.c:1: error: no good"; exit 3')
    compiled = al.compile(halved, backend="auto", wait=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled(al.ones(3))
        in_background(int).result(60)
        compiled(al.ones(3))
    assert [__file__] == [each.filename for each in said]
