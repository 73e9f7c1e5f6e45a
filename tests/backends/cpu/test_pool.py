"""The thread pool: each chunk once, whoever calls, from wherever, and no harm to anybody else."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from aotlite.backends.blas import find_blas
from aotlite.backends.cpu.runtime import runtime_library as runtimes
from aotlite.backends.cpu.runtime.runtime_library import runtime_text
from aotlite.backends.threads import get_num_threads, set_num_threads
from aotlite.ir.errors import ArgumentError
from tests.backends.cpu.helpers.runtimes import own_runtime, tasks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX threads")


def counted(runtime, chunks, nested=0):
    """How often each chunk ran."""
    hits = np.zeros(chunks * max(nested, 1), np.int32)
    tasks().count(runtime.functions(), hits.ctypes.data, chunks, nested)
    return hits.tolist()


def present(runtime, chunks, tiny=1.0):
    """How many chunks ran at the same time, and what each made of `tiny / 2`."""
    halves = np.zeros(chunks, np.float32)
    together = tasks().gather(runtime.functions(), chunks, tiny, halves.ctypes.data)
    return together, halves.view(np.int32).tolist()  # bits: NumPy's own reading may flush too


def bits(number):
    return int(np.float32(number).view(np.int32))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_chunk_runs_once(tmp_path, threads):
    runtime = own_runtime(tmp_path, threads)
    for chunks in (0, 1, 2, 3, 64, 5000):
        assert [1] * chunks == counted(runtime, chunks)


def test_chunks_of_more_than_one_job_s_number_run_once(tmp_path):
    """A job numbers its chunks with 32 bits; more are several jobs."""
    text = runtime_text().replace("MOST_CHUNKS = INT32_MAX", "MOST_CHUNKS = 5")
    runtime = own_runtime(tmp_path, text=text)
    for chunks in (4, 5, 6, 10, 23):
        assert [1] * chunks == counted(runtime, chunks)


def test_chunks_that_call_the_pool_run_theirs_themselves(tmp_path):
    assert [1] * 60 == counted(own_runtime(tmp_path, 3), 6, nested=10)


def test_chunks_run_at_the_same_time(tmp_path):
    """Each waits for all others: one after the other they would not meet."""
    assert 3 == present(own_runtime(tmp_path, 3), 3)[0]


def test_pool_of_one_thread_starts_none(tmp_path):
    runtime = own_runtime(tmp_path, 1)
    counted(runtime, 100)
    assert 0 == runtime.workers()


def test_number_of_threads_holds_from_the_next_job_on(tmp_path):
    runtime = own_runtime(tmp_path, 4)
    for threads in (4, 2, 3, 1, 2):
        runtime.library.al_set_threads(threads)
        assert [1] * 50 == counted(runtime, 50)
        if threads > 1:  # a pool of one is not asked, and keeps what it has
            assert threads - 1 == runtime.workers()
        assert threads == tasks().threads_of(runtime.functions())


def test_functions_that_a_run_was_given_keep_their_number(tmp_path):
    runtime = own_runtime(tmp_path, 4)
    before = runtime.functions()
    runtime.library.al_set_threads(2)
    assert (4, 2) == (tasks().threads_of(before), tasks().threads_of(runtime.functions()))


def test_eight_threads_call_at_once(tmp_path):
    runtime = own_runtime(tmp_path, 3)
    found, start = [], threading.Barrier(8)

    def call():
        start.wait()
        found.append(all([1] * 37 == counted(runtime, 37) for _ in range(300)))

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [True] * 8 == found


def test_idle_pool_takes_no_time(tmp_path):
    """A pool that spins would take 0.4 s of processor time here."""
    runtime = own_runtime(tmp_path, 3)
    present(runtime, 3)
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05


def test_denormals_are_the_caller_s_on_every_thread(tmp_path):
    """Otherwise results would depend on which thread runs a chunk."""
    runtime, tiny = own_runtime(tmp_path, 3), 1.5e-38
    assert (3, [bits(tiny / 2)] * 3) == present(runtime, 3, tiny)
    if not tasks().flush_denormals(1):
        pytest.skip("no way to flush denormals is known for this processor")
    try:
        flushed = present(runtime, 3, tiny)
    finally:
        tasks().flush_denormals(0)
    assert (3, [0] * 3) == flushed
    assert (3, [bits(tiny / 2)] * 3) == present(runtime, 3, tiny)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads Linux's /proc")
def test_workers_are_not_sent_signals(tmp_path):
    """A handler of Python's must not wait for a thread that Python does not know."""

    def tasks_here():
        return {path.name for path in Path("/proc/self/task").iterdir()}

    before = tasks_here()
    present(own_runtime(tmp_path, 3), 3)
    started = tasks_here() - before
    assert 2 == len(started)
    for name in started:
        status = Path(f"/proc/self/task/{name}/status").read_text()
        (blocked,) = (line for line in status.splitlines() if line.startswith("SigBlk:"))
        assert int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1


def test_number_of_threads_is_one_that_can_be():
    for number in (0, -1, 257, 1.0, True, "2", None):
        with pytest.raises(ArgumentError) as caught:
            set_num_threads(number)
        expected = f"set_num_threads: number is {number!r}, expected an int from 1 to 256"
        assert expected == str(caught.value)


def test_set_number_reaches_the_runtime_of_the_process():
    before = get_num_threads()
    runtime = runtimes.load_runtime()
    try:
        for number in (3, 1):
            set_num_threads(number)
            assert number == get_num_threads() == tasks().threads_of(runtime.functions())
    finally:
        set_num_threads(before)


def test_runtime_that_is_begun_is_the_one_that_is_loaded():
    code = (
        "import aotlite.backends.cpu.runtime.runtime_library as r;"
        "r.begin_loading(); r.begin_loading();"
        "a = r.load_runtime(); r.begin_loading(); print(a is r.load_runtime(), len(r._loaded))"
    )
    assert "True 1" == printed(code)


def test_limits_for_numpy_s_blas_and_affinity_hold():
    code = "from aotlite.backends.threads import *; print(get_num_threads())"
    blas = find_blas()
    if blas is not None and blas.threads() is not None:
        assert "1" == printed(code, OMP_NUM_THREADS="1")
    if hasattr(os, "sched_setaffinity"):
        one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); "
        assert "1" == printed(one + code)


FORKS = """
import os, pathlib, sys, tempfile, threading
import numpy as np
from aotlite.backends.threads import get_num_threads, set_num_threads
from tests.backends.cpu.helpers.runtimes import own_runtime
from tests.backends.cpu.test_pool import bits, counted, present
folder = tempfile.TemporaryDirectory()
runtime = own_runtime(pathlib.Path(folder.name), 3)
assert 3 == present(runtime, 3)[0]
stop = []
def work():
    while not stop:
        counted(runtime, 9)
callers = [threading.Thread(target=work) for _ in range(2 * (sys.argv[1] == "busy"))]
for caller in callers:
    caller.start()
for _ in range(20):
    child = os.fork()
    if not child:
        good = 0 == runtime.workers() and (3, [bits(0.5)] * 3) == present(runtime, 3)
        good = good and [1] * 30 == counted(runtime, 30) and 2 == runtime.workers()
        os._exit(not good)
    assert 0 == os.waitpid(child, 0)[1]
    assert [1] * 30 == counted(runtime, 30)
stop.append(True)
for caller in callers:
    caller.join()
print("right")
"""


@pytest.mark.parametrize("pool", ["idle", "busy"])
def test_forked_children_start_threads_of_their_own(pool):
    """Busy: the fork meets threads in the middle of jobs, holding the pool."""
    assert "right" == printed(FORKS, arguments=[pool])


def test_process_ends_while_workers_wait():
    code = FORKS.split("stop =")[0] + "print('right')"
    started = time.monotonic()
    assert "right" == printed(code, arguments=["idle"])
    assert time.monotonic() - started < 60


def printed(code, arguments=(), **environment):
    """What a fresh interpreter prints, which ends well and within its time."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    environment = {**os.environ, **environment}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (0, "") == (run.returncode, run.stderr)
    return run.stdout.strip()
