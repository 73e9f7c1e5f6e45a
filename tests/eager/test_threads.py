"""Backwards of several threads that lead to one leaf lose no gradient (TEN-45)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from subprocess import run

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.tape.gradient_lock import gradient_lock

THREADS = 4
TIMES = 40
WAYS = {
    "eager": lambda f, x, w: f(x, w).backward(),
    "engine": lambda f, x, w: al.autograd.backward([f(x, w), f(x, w)]),
    "inputs": lambda f, x, w: f(x, w).backward(inputs=[w]),
    "of a graph": lambda f, x, w: f(x, w).backward(create_graph=True),
}


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Threads take turns often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(work: Callable[[], None]) -> None:
    """Does this many times in several threads."""
    start = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def repeated() -> None:
        start.wait()
        try:
            for _ in range(TIMES):
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeated) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def weighted(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    return (x * w).sum()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", [3, 100_000])
@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_all_threads_are_added_up(way: str, size: int) -> None:
    w = al.ones(size, requires_grad=True)
    together(lambda: WAYS[way](weighted, al.ones(size), w))
    expected = THREADS * TIMES * (2 if way == "engine" else 1)
    assert w.grad is not None
    assert np.unique(w.grad.numpy()).tolist() == [expected]


@pytest.mark.parametrize("size", [3, 100_000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_gradients_of_compiled_calls_are_added_up(order: str, size: int) -> None:
    """By the short way, and for a leaf of another layout by the engine's."""
    compiled = al.compile(weighted, backend="reference")
    w = al.ones(2, size) if order == "C" else al.ones(size, 2).t()
    w.requires_grad_()
    x = al.ones(2, size)
    compiled(x, w)
    together(lambda: compiled(x, w).backward())
    assert w.grad is not None
    assert np.unique(w.grad.numpy()).tolist() == [THREADS * TIMES]


def test_a_retained_gradient_of_one_graph_is_added_up() -> None:
    w = al.ones(100_000, requires_grad=True)
    y = w * 1.0
    y.retain_grad()
    loss = y.sum()
    together(lambda: loss.backward(retain_graph=True))
    for grad in (y.grad, w.grad):
        assert grad is not None
        assert np.unique(grad.numpy()).tolist() == [THREADS * TIMES]


def test_a_leaf_has_one_node_in_all_threads() -> None:
    """Two would each count for themselves, and a hook on one would miss what the other gets."""
    leaves = [al.ones(1, requires_grad=True) for _ in range(TIMES)]
    found: list[list[object]] = [[] for _ in leaves]
    places: dict[int, int] = {}

    def work() -> None:
        k = places[threading.get_ident()] = places.get(threading.get_ident(), -1) + 1
        found[k].append((leaves[k] * 2.0).grad_fn.next_functions[0][0])  # type: ignore[union-attr]

    together(work)
    assert all(len(set(map(id, nodes))) == 1 for nodes in found)


def test_hooks_run_outside_of_the_lock() -> None:
    """A hook may wait for a thread that runs a backward to the same leaf."""
    w = al.ones(2, requires_grad=True)

    def hook(_: al.Tensor) -> None:
        handle.remove()
        other = threading.Thread(target=lambda: weighted(al.ones(2), w).backward(), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()

    handle = w.register_post_accumulate_grad_hook(hook)
    weighted(al.ones(2), w).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_takes_over_no_lock() -> None:
    program = """
import os, threading
import aotlite as al
from aotlite.eager.base.tape.gradient_lock import gradient_lock
w = al.ones(2, requires_grad=True)
held, done = threading.Event(), threading.Event()
def hold():
    with gradient_lock():
        held.set()
        done.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    (w * 2).sum().backward()
    os._exit(w.grad.tolist() != [2, 2])
for _ in range(200):
    found, status = os.waitpid(child, os.WNOHANG)
    if found:
        break
    done.wait(0.1)
else:
    os.kill(child, 9)
done.set()
raise SystemExit(0 if found and status == 0 else 1)
"""
    assert run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_a_lock_is_taken_again_by_its_thread() -> None:
    w = al.ones(2, requires_grad=True)
    with gradient_lock():
        (w * 2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 2]
