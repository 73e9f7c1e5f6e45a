"""What threads hold in a process that forks: a child finds free what it has no thread for."""

import gc
import importlib
import os
import sys
import threading
import time

import pytest

import aotlite
from aotlite.ir import forks
from aotlite.ir.collector import collector_paused
from aotlite.ir.forks import UNFORKED, Blocks, cached_property, lock
from tests.helpers.forked import held_up, in_forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def holding(block):
    """What a thread does that is held up in a block."""

    def hold(halt):
        with block:
            halt.here()

    return hold


def is_free(found):
    """Whether another thread could have a lock now."""
    had = []

    def try_it():
        had.append(found.acquire(blocking=False))
        if had[0]:
            found.release()

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return had[0]


# -------------------------------------------------------------------------------------------- locks
def test_a_child_finds_free_what_another_thread_held():
    found, other = lock(), lock()
    with held_up(holding(found)):
        in_forked(lambda: found.acquire() and found.release())
        assert not is_free(found) and is_free(other)
    assert is_free(found)


def test_what_the_thread_that_forks_held_it_still_holds():
    found = lock()

    def in_child():
        assert not is_free(found)
        found.release()
        assert not is_free(found)  # it was held twice
        found.release()
        assert is_free(found)

    with found, found:
        in_forked(in_child)
        assert not is_free(found)


def test_a_child_of_a_child_and_of_another_thread():
    found, ended = lock(), []

    def in_thread():
        with found:
            in_forked(lambda: in_forked(lambda: is_free(found) and 1 // 0))
            ended.append(True)

    with held_up(holding(lock())):
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
    assert [True] == ended


def test_a_lock_that_nobody_has_is_forgotten():
    before = len(forks._locks)
    found = [lock() for _ in range(100)]
    assert before + 100 == len(forks._locks)
    found.clear()
    assert before == len(forks._locks)


# ------------------------------------------------------------------------- what a fork does not cut
def test_a_fork_waits_for_what_belongs_together():
    done = []

    def assign(halt):
        with UNFORKED:
            halt.reached.set()
            time.sleep(0.05)
            done.append(True)

    with held_up(assign):
        in_forked(lambda: done[0] and UNFORKED.acquire())
    with UNFORKED:
        in_forked(lambda: None if not is_free(UNFORKED) else 1 // 0)
    assert is_free(UNFORKED)


SLOW = "import aotlite\naotlite.halt.here()\nVALUE = 5\n"


def importing(halt):
    aotlite.halt = halt
    importlib.import_module("aotlite.slow_to_import")


@pytest.fixture
def slow(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    monkeypatch.setattr(aotlite, "__path__", [*aotlite.__path__, str(tmp_path)])
    yield
    del sys.modules["aotlite.slow_to_import"], aotlite.halt, aotlite.slow_to_import


def test_a_fork_waits_for_an_import_of_ours(slow):
    """Python keeps the lock of the module, on which a child would wait for ever."""

    def in_child():
        assert 5 == importlib.import_module("aotlite.slow_to_import").VALUE

    def import_soon(halt):
        threading.Timer(0.05, halt.let_go).start()
        importing(halt)

    with held_up(import_soon):
        in_forked(in_child)


def test_a_fork_does_not_wait_for_ever(slow, monkeypatch):
    """An import may be waiting for the thread that forks."""
    monkeypatch.setattr(forks, "_LONGEST_IMPORT", 0.05)
    with held_up(importing):
        in_forked(lambda: None)


# ------------------------------------------------------------------------------------------- blocks
@pytest.fixture
def events():
    return []


@pytest.fixture
def blocks(events):
    made = Blocks(lambda: events.append("begin"), lambda: events.append("end"))
    yield made
    forks._all_blocks.remove(made)


def test_the_last_block_of_all_threads_is_the_end(blocks, events):
    with held_up(holding(blocks.entered())), blocks.entered(), blocks.entered():
        pass
    assert ["begin", "end"] == events
    with pytest.raises(ZeroDivisionError), blocks.entered():
        assert ["begin", "end", "begin"] == events
        raise ZeroDivisionError
    assert ["begin", "end"] * 2 == events


def test_a_child_has_left_the_blocks_of_other_threads(blocks, events):
    def in_child():
        assert ["begin", "end"] == events

    with held_up(holding(blocks.entered())):
        in_forked(in_child)
        assert ["begin"] == events


def test_a_child_is_in_the_blocks_that_it_forked_in(blocks, events):
    block = blocks.entered()

    def in_child():
        assert ["begin"] == events
        block.__exit__(None, None, None)
        assert ["begin", "end"] == events

    with held_up(holding(blocks.entered())), block:
        in_forked(in_child)
        assert ["begin"] == events


@pytest.mark.parametrize("was_on", [True, False])
def test_a_child_collects_garbage_although_another_thread_was_compiling(was_on):
    assert gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        with held_up(holding(collector_paused())):
            assert not gc.isenabled()
            in_forked(lambda: None if gc.isenabled() is was_on else 1 // 0)
            with collector_paused():
                in_forked(lambda: gc.isenabled() and 1 // 0)
        assert gc.isenabled() is was_on
    finally:
        gc.enable()


# -------------------------------------------------------------------------------- cached properties
class Slow:
    def __init__(self, halt):
        self.halt = halt

    @cached_property
    def value(self):
        """What takes long."""
        if self.halt is not None:
            self.halt.here()
        return object()


def test_a_child_finds_a_property_that_another_thread_was_computing():
    """Pythons before 3.12 have one lock for the property of all objects of the class."""
    assert "What takes long." == Slow.value.__doc__
    with held_up(lambda halt: Slow(halt).value):
        in_forked(lambda: Slow(None).value)
    found = Slow(None)
    assert found.value is found.value
