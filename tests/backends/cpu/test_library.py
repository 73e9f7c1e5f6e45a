"""Loading: once a process, nothing of the process changed, and damage mended."""

import ctypes
import os
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest

from aotlite.backends.cpu.runtime import runtime_library
from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.cache.integrity import fault
from aotlite.backends.native.compiler import compiler_process
from aotlite.backends.native.compiler.toolchain import compile_c, find_compiler, key_of_c
from aotlite.backends.native.libraries import library_loading
from aotlite.backends.native.libraries.library_loading import load, load_c
from aotlite.ir.errors import BackendError
from tests.backends.cpu.helpers.compilers import (
    DOUBLE,
    GCC,
    compiled,
    compiles,
    ended,
    in_child,
    start,
)
from tests.helpers.forked import held_up, in_forked

pytestmark = compiles


def smallest_results():
    """The bytes of results that are denormal numbers: zeros where a thread flushes them.

    Bytes, since such a thread also finds denormal numbers equal to zero.
    """
    x = np.full(33, -87.5, np.float32)
    return np.exp(x).tobytes() + (np.float32(1e-38) * np.float32(0.1)).tobytes()


@pytest.mark.parametrize("command", [None, "gcc -ffast-math", "gcc -Ofast"])
def test_loading_leaves_the_denormals_of_the_process_alone(cache, monkeypatch, command):
    """What links with -ffast-math switches them off for the thread that loads it, and for good."""
    if command is not None:
        monkeypatch.setenv("CC", command)
    before = smallest_results()
    assert b"\0\0\0\0" not in before

    def load_and_compute():
        assert 42 == load_c(DOUBLE, "double").twice(21)
        assert before == smallest_results()

    in_child(load_and_compute)


def test_a_library_is_loaded_once(cache, monkeypatch):
    first = load_c(DOUBLE, "double")
    monkeypatch.setattr(library_loading, "compile_c", lambda *args, **kwargs: 1 // 0)
    assert first is load_c(DOUBLE, "another name")


def test_threads_that_want_the_same_share_one_compilation(cache, compiler):
    compiler('echo x >> "$(dirname "$0")/log"; sleep 0.1; exec gcc "$@"')
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(load_c(DOUBLE, "double"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 8 == len(found) and 1 == len(set(map(id, found)))
    assert "x\n" == (cache.parent / "log").read_text()


def test_a_damaged_library_is_compiled_again_and_not_loaded(cache):
    path = compiled(DOUBLE)
    data = path.read_bytes()

    def load_double():
        assert 42 == load_c(DOUBLE, "double").twice(21)

    for damaged in (data[: len(data) // 2], b"", data.replace(b"twice", b"trice")):
        path.write_bytes(damaged)
        in_child(load_double)  # one process does not load the same path twice
        assert data == path.read_bytes()


def test_a_library_that_does_not_load_is_compiled_again(cache):
    """As one that another C library was there for, in a home folder that machines share."""
    find_compiler()
    key = key_of_c(DOUBLE)
    artifact_cache.kept(key, "double", ".so", b"not for this machine")
    assert 42 == load_c(DOUBLE, "double").twice(21)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", [0, 3, 40, 64, 300, 3000, -1])
def test_half_a_library_that_was_kept_is_compiled_again_and_not_loaded(cache, size):
    """Its checksum is right: it was half when it was kept. Loading it would end the process."""
    whole = compiled(DOUBLE)
    data = whole.read_bytes()
    whole.unlink()
    half = artifact_cache.kept(key_of_c(DOUBLE), "double", ".so", data[:size])

    def load_double():
        assert 42 == load_c(DOUBLE, "double").twice(21)

    in_child(load_double)
    assert data == whole.read_bytes() and not os.path.exists(half)
    whole.write_bytes(data[:size])
    with pytest.raises(BackendError, match=r"cannot be loaded \(its bytes are not those that were"):
        load(str(whole))
    half = artifact_cache.kept(key_of_c(DOUBLE), "double", ".so", data[:size])
    with pytest.raises(BackendError, match=r"cannot be loaded \(it is (half a|no) library\)"):
        load(half)


@pytest.mark.parametrize("flags", ["", "-s", "-g", "-nostdlib"])
def test_wherever_a_library_ends_too_soon_that_is_seen(tmp_path, flags):
    subprocess.run(
        [GCC, "-shared", "-fPIC", *flags.split(), "-x", "c", "-", "-o", tmp_path / "whole.so"],
        input=DOUBLE.encode(),
        check=True,
    )
    data, half = (tmp_path / "whole.so").read_bytes(), tmp_path / "half.so"
    assert "" == fault(tmp_path / "whole.so")
    for size in (*range(4), *range(4, len(data), 61), len(data) - 1):
        half.write_bytes(data[:size])
        assert ("no library" if size == 0 else "half a library") == fault(half), size


def test_a_library_that_is_removed_before_it_is_loaded_is_compiled_again(cache, monkeypatch):
    def removed_at_once(*args, **kwargs):
        path = compile_c(*args, **kwargs)
        if not removed:
            shutil.rmtree(cache / "kernels")
            removed.append(path)
        return path

    removed = []
    monkeypatch.setattr(library_loading, "compile_c", removed_at_once)
    assert 42 == load_c(DOUBLE, "double").twice(21)
    assert removed


def test_a_library_that_never_loads_is_an_error_that_says_so(cache):
    """Its function is nowhere: found out when it is loaded, and not when it is called."""
    with pytest.raises(BackendError, match=r"^cpu: the library .* cannot be loaded \(.*nowhere"):
        load_c("void nowhere(void); void f(void) { nowhere(); }\n", "f")


def test_libraries_do_not_see_each_others_functions(cache):
    one = load_c("int value(void) { return 1; } int get(void) { return value(); }\n", "one")
    two = load_c("int value(void) { return 2; } int get(void) { return value(); }\n", "two")
    assert (1, 2) == (one.get(), two.get())


def test_a_loaded_library_outlives_its_file(cache):
    loaded = load_c(DOUBLE, "double")
    shutil.rmtree(cache)
    assert 42 == loaded.twice(21)
    assert not os.path.exists(loaded._name)


def test_a_forked_child_loads_although_another_thread_was_loading(cache, compiler):
    """The lock of that thread exists in the child, and the thread does not."""
    compiler('echo $$ > "$(dirname "$0")/going"; sleep 1; exec gcc "$@"')
    find_compiler()
    thread = threading.Thread(target=lambda: load_c(DOUBLE, "double"))
    thread.start()
    while not compiler_process._running:
        time.sleep(0.001)

    def load_in_child():
        assert 42 == load_c(DOUBLE, "double").twice(21)

    in_child(load_in_child)
    thread.join()


def test_a_forked_child_loads_the_runtime_although_another_thread_was_loading(monkeypatch):
    """CC-20: the lock of that thread is free in the child, which loads it anew."""
    halts = []
    monkeypatch.setattr(runtime_library, "_loaded", [])
    monkeypatch.setattr(runtime_library, "_load", lambda: halts[0].here())

    def load_slowly(halt):
        halts.append(halt)
        runtime_library.load_runtime()

    with held_up(load_slowly):
        in_forked(runtime_library.load_runtime)


def test_a_text_that_does_not_compile_is_compiled_once(cache, compiler):
    compiler('echo x >> "$(dirname "$0")/log"; exit 1')
    with pytest.raises(BackendError, match="ended with status 1"):
        load_c(DOUBLE, "double")
    assert "x\n" == (cache.parent / "log").read_text()


CALLS = """
void clear(char *bytes, unsigned long long size)
{
    for (unsigned long long i = 0; i < size; ++i) bytes[i] = 0;
}
__int128 divide(__int128 x, __int128 y) { return x / y; }
"""


def test_a_text_without_libraries_loads_although_the_compiler_calls_some(cache):
    """It makes a call of memset from the loop; the division is a function of gcc's own library."""
    loaded, memory = load_c(CALLS, "calls", libraries=False), ctypes.create_string_buffer(b"x" * 99)
    loaded.clear(memory, ctypes.c_uint64(98))
    assert bytes(98) + b"x" + bytes(1) == memory.raw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_loading, "_loaded", type(library_loading._loaded)())
        assert load_c(CALLS, "calls")._name != loaded._name


def test_load_takes_any_path(cache):
    assert 42 == load(compile_c(DOUBLE, "double")).twice(21)


def test_a_sanitizer_ends_the_process_at_what_has_no_meaning(cache, capfd):
    def overflow():
        text = "int increase(int x) { return x + 1; }\n"
        load_c(text, "increase", sanitize="undefined").increase(2**31 - 1)

    assert 0 != ended(start(overflow))
    assert "increase.c:1:32: runtime error: signed integer overflow" in capfd.readouterr().err
