"""`compile_c`: what compilers do wrong becomes an error that says so, in time."""

import math
import os
import resource
import threading
import time
from pathlib import Path

import pytest

from aotlite.backends.c_family.c_types import PRELUDE
from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.compiler import compiler_process, toolchain
from aotlite.backends.native.compiler.toolchain import compile_c, find_compiler, key_of_c
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.ir.errors import BackendError
from tests.backends.cpu.helpers.compilers import (
    DOUBLE,
    HALF,
    compiled,
    compiles,
    forget,
    in_child,
    is_running,
)

pytestmark = compiles


def files(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


def text_of(error):
    return "\n".join([str(error), *error.__notes__])


def test_a_library_is_compiled_once_and_found_afterwards(cache, compiler):
    compiler('echo x >> "$(dirname "$0")/log"; exec gcc "$@"')
    first = compiled(DOUBLE)
    forget()  # as in another process
    assert first == compiled(DOUBLE)
    assert "x\n" == (cache.parent / "log").read_text()
    assert first.name.startswith("double.") and first.parent.parent == cache / "kernels"


def test_text_contraction_and_sanitizers_each_make_another_library(cache, tmp_path):
    keys = {
        key_of_c(DOUBLE),
        key_of_c(DOUBLE + " "),
        key_of_c(DOUBLE, contract=False),
        key_of_c(DOUBLE, sanitize="undefined"),
        key_of_c(DOUBLE, libraries=False),
    }
    assert 5 == len(keys)


def test_contraction_is_what_the_flag_says(cache):
    """1 + 2^-27 squared, minus its rounding: 2^-54 where the product is not rounded, else 0.

    Where the text asks for it alone: a compiler would decide by what stands around.
    """
    from ctypes import c_double

    if "fma" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor multiplies and adds in two steps")
    text = "double rest(double x, double y) { return x * x - y; }\n"
    asked = PRELUDE + "double rest(double x, double y) { return fma_f64(x, x, -y); }\n"
    x = 1 + 2.0**-27
    for source, contract, expected in (
        (asked, True, 2.0**-54),
        (asked, False, 0.0),
        (text, True, 0.0),
        (text, False, 0.0),
    ):
        rest = load_c(source, "rest", contract=contract).rest
        rest.argtypes, rest.restype = (c_double, c_double), c_double
        assert expected == rest(x, x * x)


def test_an_error_of_the_compiler_names_the_kernel_the_lines_and_where_the_text_is(
    cache, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BackendError) as caught:
        compiled("int f(void) { return unknown; }\n", "forward of f")
    first = "cpu: gcc, compiling 'forward of f', ended with status 1, expected a library"
    assert first == str(caught.value)
    said = text_of(caught.value)
    assert "forward_of_f.c:1:" in said and "unknown" in said and "command: " in said
    (kept,) = tmp_path.glob("aotlite-*.c")
    assert f"the text is in {kept}" in said and "unknown" in kept.read_text()


def test_a_compiler_that_is_killed_half_way_leaves_nothing(cache, compiler):
    compiler("echo half > library.so; kill -9 $$")
    find_compiler()
    before = files(cache)
    with pytest.raises(BackendError, match="compiling 'double', was ended by signal 9, expected"):
        compiled(DOUBLE)
    assert before == files(cache)


def test_a_compiler_that_hangs_is_ended_with_all_that_it_started(cache, compiler):
    compiler('sleep 60 & echo $! > "$(dirname "$0")/pid"; wait')
    find_compiler()
    start = time.monotonic()
    with pytest.raises(BackendError, match="compiling 'double', took more than 0.3 s, expected"):
        compiled(DOUBLE, time_limit=0.3)
    assert time.monotonic() - start < 10
    pid = int((cache.parent / "pid").read_text())
    while is_running(pid) and time.monotonic() - start < 10:
        time.sleep(0.01)
    assert not is_running(pid)


def test_what_a_compiler_leaves_running_is_not_waited_for(cache, compiler):
    """A pipe that it keeps open would be waited for until it closes."""
    compiler('sleep 20 & exec gcc "$@"')
    start = time.monotonic()
    assert compiled(DOUBLE).exists()
    assert time.monotonic() - start < 10


def test_a_compiler_that_writes_no_library_fails(cache, compiler):
    compiler("exit 0")
    with pytest.raises(BackendError, match="'double', makes no library, expected a library"):
        compiled(DOUBLE)


def test_half_a_library_is_the_compilers_failure_and_is_not_kept(cache, compiler):
    """Loading it would end the process, and each later one that finds it."""
    compiler(f"{HALF}; exit 0")
    find_compiler()
    before = files(cache)
    said = "compiling 'double', left half a library although .*, expected a library; try again, or"
    with pytest.raises(BackendError, match=said):
        compiled(DOUBLE)
    assert before == files(cache)


def test_what_failed_is_tried_again(cache, compiler):
    compiler('test -e "$(dirname "$0")/mended" && exec gcc "$@"; exit 1')
    with pytest.raises(BackendError):
        compiled(DOUBLE)
    (cache.parent / "mended").touch()
    assert compiled(DOUBLE).exists()


def test_ctrl_c_ends_the_compiler(cache, compiler, monkeypatch):
    compiler('echo $$ > "$(dirname "$0")/pid"; sleep 60')
    find_compiler()
    pid_file = cache.parent / "pid"

    def interrupted(child, limit):
        while not (pid_file.exists() and pid_file.read_text()):
            time.sleep(0.005)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler_process, "_ends", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(DOUBLE)
    assert not is_running(int(pid_file.read_text()))
    assert set() == compiler_process._running


def test_what_is_done_meanwhile_is_done_once_while_the_compiler_runs(cache):
    running = []
    for _ in range(2):  # the second time the library is there
        path = compile_c(
            DOUBLE, "double", meanwhile=lambda: running.append(set(compiler_process._running))
        )
    assert Path(path).exists()
    assert [1] == [len(each) for each in running]


def test_an_error_meanwhile_ends_the_compiler(cache, compiler):
    compiler('echo $$ > "$(dirname "$0")/pid"; sleep 60')
    find_compiler()
    pid_file = cache.parent / "pid"

    def failing():
        while not (pid_file.exists() and pid_file.read_text()):
            time.sleep(0.005)
        raise ValueError("meanwhile")

    with pytest.raises(ValueError, match="meanwhile"):
        compile_c(DOUBLE, "double", meanwhile=failing)
    assert not is_running(int(pid_file.read_text()))
    assert set() == compiler_process._running


def no_thread(thread):
    raise RuntimeError("can't start new thread")


def test_a_text_is_compiled_where_no_thread_can_be_started(cache, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert compiled(DOUBLE).exists()


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_a_command_has_until_its_limit(tmp_path, monkeypatch, has_descriptors):
    """With a descriptor that tells of its end, and where the system gives none."""

    def none_left(pid):
        raise OSError(24, "Too many open files")

    if not has_descriptors:
        monkeypatch.setattr(compiler_process.os, "pidfd_open", none_left, raising=False)
    begin = time.monotonic()
    assert compiler_process.CommandResult("", "done\n") == compiler_process.run(
        ["echo", "done"], str(tmp_path), 60
    )
    assert "" == compiler_process.run(["true"], str(tmp_path), math.inf).problem
    ended = compiler_process.run(["sleep", "50"], str(tmp_path), 0.1)
    assert ("took more than 0.1 s", True, False) == (ended.problem, ended.is_late, ended.is_refusal)
    assert 0.1 < time.monotonic() - begin < 20


def test_nothing_is_forked_while_a_compiler_is_started(cache, monkeypatch):
    """The other process would hold the pipe on which this one waits, for as long as it lives."""
    find_compiler()
    real, begun, order = compiler_process.subprocess.Popen, threading.Event(), []

    def slow(*args, **options):
        begun.set()
        time.sleep(0.2)
        order.append("started")
        return real(*args, **options)

    monkeypatch.setattr(compiler_process.subprocess, "Popen", slow)
    thread = threading.Thread(target=lambda: compiled(DOUBLE))
    thread.start()
    begun.wait()
    in_child(lambda: order.index("started"))
    thread.join()


def test_no_room_for_temporary_files_is_an_error_that_says_so(cache):
    """Really no room: the system refuses to write more than 100 bytes to any file."""
    find_compiler()

    def compile_without_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(BackendError) as caught:
            compiled("/* " + "long " * 100 + "*/", "long")
        first = "cpu: 'long' has no place to be compiled in ([Errno 27] File too large), expected "
        assert str(caught.value).startswith(first) and "TMPDIR" in str(caught.value)
        with pytest.raises(BackendError, match="compiling 'double', "):  # the compiler fails
            compiled(DOUBLE)

    in_child(compile_without_room)


def test_a_compiler_that_fails_in_a_full_folder_says_so(cache, compiler):
    """The system refuses to write to the file that tells whether there is room."""
    compiler("ln -s /dev/full room; echo ld: cannot write; exit 1")
    said = "has no place to be compiled in .* has less than 1 MiB left, .*status 1: ld: cannot.*TMP"
    with pytest.raises(BackendError, match=said):
        compiled(DOUBLE)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs a system with files in memory")
def test_what_a_compiler_prints_needs_no_room(cache, compiler):
    compiler('test "$(echo *)" = double.c && exec gcc "$@"')
    assert compiled(DOUBLE).exists()


def test_the_environment_variable_of_the_cache_is_read_at_each_call(cache, tmp_path, monkeypatch):
    compiled(DOUBLE)
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "second"))
    assert (tmp_path / "second") in compiled(DOUBLE).parents


def test_a_compiler_record_that_is_damaged_is_not_believed(cache):
    found = find_compiler()
    (record,) = cache.rglob("*.json")
    record.write_text(record.read_text().replace("gcc", "abc"))
    forget()
    assert found == find_compiler()


@pytest.mark.parametrize(
    "damage",
    [
        b'{"x": [1, 2',
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"kind": "gcc", "options": []}',
        b'{"kind": "gcc", "version": "1", "options": "-O2", "identity": "x"}',
        b'{"kind": "gcc", "version": "1", "options": [2], "identity": "x"}',
        b'{"kind": "gcc", "version": "1", "options": [], "identity": 3}',
        b'{"kind": "gcc", "version": "1", "options": [], "identity": "x", "more": "y"}',
        b'{"kind": "gcc", "version": "1", "options": [], "identity": "x", "command": "y"}',
    ],
)
def test_a_compiler_record_that_cannot_be_read_is_not_there(cache, damage):
    """Its checksum is right."""
    found = find_compiler()
    (record,) = cache.rglob("*.json")
    whole = record.read_bytes()
    record.unlink()
    damaged = Path(artifact_cache.kept(record.parent.name, "compiler", ".json", damage))
    forget()
    assert found == find_compiler()
    assert not damaged.exists() and whole == record.read_bytes()


def test_a_compiler_that_cannot_be_tried_out_for_want_of_room_is_a_reason(cache, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(artifact_cache, "kept", full)
    assert find_compiler() is None
    assert "gcc: cannot be tried: [Errno 28] No space left" in toolchain.compiler_problem()
    assert not artifact_cache.found(toolchain.key_of("any"))
