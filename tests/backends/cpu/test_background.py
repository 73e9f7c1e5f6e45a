"""Compilations that nobody waits for: results, errors, forks, and the end of Python."""

import os
import subprocess
import sys
import threading
import time

import pytest

import aotlite as al
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.backends.native.libraries import background
from aotlite.backends.native.libraries.background import compile_in_background, in_background
from aotlite.backends.native.single_flight import Once
from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.errors import BackendError
from tests.backends.cpu.helpers.compilers import (
    DOUBLE,
    GCC,
    SCRIPT,
    compiles,
    in_child,
    is_running,
    warns_once,
)


def test_a_job_has_a_result_once_it_is_done():
    go = threading.Event()
    job = in_background(lambda: go.wait(10) and "done")
    assert not job.done()
    with pytest.raises(TimeoutError, match="not compiled within 0.01 s"):
        job.result(0.01)
    go.set()
    assert "done" == job.result(10) and job.done() and job.exception() is None


def test_an_error_is_kept_for_who_asks_and_the_next_job_is_done():
    failing, sound = in_background(lambda: 1 // 0), in_background(lambda: 5)
    assert 5 == sound.result(10)
    assert failing.done() and isinstance(failing.exception(), ZeroDivisionError)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing.result()


def test_jobs_are_done_in_order_by_one_daemon_thread():
    order, threads = [], set()

    def work(number):
        order.append(number)
        threads.add(threading.current_thread())

    jobs = [in_background(lambda number=number: work(number)) for number in range(20)]
    jobs[-1].result(10)
    (thread,) = threads
    assert list(range(20)) == order and thread.daemon
    assert all(job.done() for job in jobs)


@compiles
def test_a_text_is_compiled_and_loaded_in_the_background(cache):
    job = compile_in_background(DOUBLE, "double")
    assert 42 == job.result(60).twice(21)
    failing = compile_in_background("no C\n", "failing")
    with pytest.raises(BackendError, match="'failing', ended with status 1"):
        failing.result(60)


def test_a_forked_child_starts_again_what_was_not_done():
    go = threading.Event()
    job = in_background(lambda: go.wait(20) and os.getpid())
    behind = in_background(os.getpid)
    finished = in_background

    def in_forked():
        go.set()
        assert not behind.done()  # which starts it
        assert os.getpid() == behind.result(10) == job.result(10)
        assert os.getpid() == finished(os.getpid).result(10)

    in_child(in_forked)
    assert not job.done()
    go.set()
    assert os.getpid() == job.result(10) == behind.result(10)


EXITS = """
import time
from pathlib import Path
from aotlite.backends.native.libraries.background import compile_in_background
jobs = [compile_in_background(f"int f{n};", "text") for n in range(3)]
while not Path(%r).exists():
    time.sleep(0.01)
print("leaving", flush=True)
"""


@compiles
def test_python_exits_while_a_compiler_works_and_the_compiler_ends(cache, tmp_path):
    script, pid = tmp_path / "compiler", tmp_path / "pid"
    script.write_text(
        SCRIPT.format(gcc=GCC, body=f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 60")
    )
    script.chmod(0o755)
    begin = time.monotonic()
    child = subprocess.run(
        [sys.executable, "-c", EXITS % str(pid)],
        env={**os.environ, "CC": str(script)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "leaving\n", "") == (child.returncode, child.stdout, child.stderr)
    assert time.monotonic() - begin < 30
    assert not is_running(int(pid.read_text()))


@compiles
def test_the_compiler_can_be_looked_for_ahead(cache):
    """So that its first trial ever costs a first call nothing."""
    job = in_background(find_compiler)
    assert find_compiler() is job.result(60)


# ----------------------------------------------------------------------------------- once a process
def test_one_thread_makes_a_value_and_the_others_wait_for_it():
    once, made = Once(), []

    def make():
        time.sleep(0.05)
        made.append(1)
        return object()

    found = []
    threads = [threading.Thread(target=lambda: found.append(once.get("a", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [1] == made and 8 == len(found) and 1 == len(set(found))


def test_values_of_other_keys_do_not_wait():
    once = Once()
    assert 2 == once.get("a", lambda: once.get("b", lambda: 1) + 1)
    assert (1, None) == (once.known("b"), once.known("c"))


def test_an_error_is_not_kept():
    once = Once()
    with pytest.raises(ZeroDivisionError):
        once.get("a", lambda: 1 // 0)
    assert 1 == once.get("a", lambda: 1)


def test_a_forked_child_makes_a_value_that_a_thread_was_making():
    once, go = Once(), threading.Event()
    thread = threading.Thread(target=lambda: once.get("a", lambda: go.wait(20)))
    thread.start()
    while "a" not in once._making:
        time.sleep(0.001)
    in_child(lambda: once.get("a", lambda: True))
    go.set()
    thread.join()
    assert once.known("a") is True


def test_the_user_is_told_once_at_the_place_that_called(cache):
    with warns_once("one more thing") as told:
        for _ in range(3):
            warn_once("one more thing")
    assert told is None
    with pytest.warns(RuntimeWarning) as caught:
        warn_once("another thing")
    assert __file__ == caught[0].filename


def test_the_place_that_called_is_none_that_was_written_at_run_time(cache):
    scope = {"tell_once": warn_once}
    exec(compile("def run(): tell_once('a third thing')", "<aotlite f 1>", "exec"), scope)
    with pytest.warns(RuntimeWarning) as caught:
        scope["run"]()
    assert __file__ == caught[0].filename


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_without_a_thread_the_caller_does_the_job(monkeypatch, error):
    """And the next one, where one can be started again, is a thread's."""

    def start(thread):
        raise error

    monkeypatch.setattr(background, "_workers", Once())
    with monkeypatch.context() as none:
        none.setattr(threading.Thread, "start", start)
        job = in_background(threading.get_ident)
        assert job.done() and threading.get_ident() == job.result()
        failing = in_background(lambda: 1 // 0)
        assert isinstance(failing.exception(), ZeroDivisionError)
    assert threading.get_ident() != in_background(threading.get_ident).result(10)


@compiles
def test_who_does_not_wait_gets_its_result_where_no_thread_can_be_started(cache, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(background, "_workers", Once())
    monkeypatch.setattr(threading.Thread, "start", start)
    x = al.arange(5.0)
    function = al.compile(lambda x: (x * 3).cumsum(0) + 0.125, backend=CpuBackend(wait=False))
    for _ in range(3):
        assert [0.125, 3.125, 9.125, 18.125, 30.125] == function(x).tolist()
