"""A process that forks while another thread compiles: the child does so anew, and never hangs."""

import gc
import os
import signal

import pytest

import aotlite as al
from aotlite import nn
from aotlite.backends.loops.backend import LoopsBackend
from aotlite.eager.rng.generator import GENERATOR
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.library import _LOCK
from tests.helpers.forked import LIMIT, held_up, in_forked
from tests.stages.s8_partition.test_copy_on_write import keep_inputs

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def leaf():
    return al.tensor([1.0, 2.0]).requires_grad_()


class HeldUp:
    """A function whose first capture is held up, in a thread that calls its compiled form."""

    def __init__(self):
        self.captures, self.halt = 0, None
        self.compiled = al.compile(self.function)

    def function(self, x):
        self.captures += 1
        if self.halt is not None:
            self.halt.here()
        return x * 2

    def call(self, halt):
        self.halt = halt
        self.compiled(al.ones(2))


def test_a_child_compiles_what_another_thread_was_compiling():
    """PIP-8: at the second call it is there, and in the parent it is made once."""
    held = HeldUp()

    def in_child():
        for _ in range(2):
            assert [2.0, 2.0] == held.compiled(al.ones(2)).tolist()
        assert (2, 1, 1) == (held.captures, len(held.compiled.entries), len(held.compiled._runs))

    with held_up(held.call):
        in_forked(in_child)
    assert [2.0, 2.0] == held.compiled(al.ones(2)).tolist()
    assert (1, 1) == (held.captures, len(held.compiled.entries))


def test_a_child_is_not_left_in_another_threads_capture():
    """PIP-5, CAP-4: it collects garbage, and reads of modules are plain Python."""
    module = nn.Linear(2, 2)

    def in_child():
        assert gc.isenabled() and "__getattribute__" not in vars(TrackedObject)
        al.compile(module)(al.ones(1, 2))
        assert gc.isenabled() and "__getattribute__" not in vars(TrackedObject)

    with held_up(HeldUp().call):
        assert not gc.isenabled() and "__getattribute__" in vars(TrackedObject)
        in_forked(in_child)
    assert gc.isenabled() and "__getattribute__" not in vars(TrackedObject)


def test_a_function_that_forks_while_it_is_captured_goes_on_in_both(tmp_path):
    # A file: a list that the function changed and read would be refused (CAP-14).
    results, mark = [], tmp_path / "forked"

    def function(x):
        if not mark.exists():
            mark.touch()
            child = os.fork()
            results.append(child)
            signal.alarm(0 if child else LIMIT)
        return x * 2

    compiled = al.compile(function)
    with held_up(HeldUp().call):
        try:
            given = compiled(al.ones(2)).tolist()
            if not results[0]:
                again = compiled(al.ones(2)).tolist()
                os._exit([2.0, 2.0] != given or given != again or not gc.isenabled())
        finally:
            if results == [0]:  # the child runs no tests
                os._exit(1)
    assert [2.0, 2.0] == given
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(results[0], 0)[1])


class HoldsUp(LoopsBackend):
    """Holds up the thread that has it compile a backward first."""

    halt = None

    def compile(self, graph):
        """What loops make of a graph."""
        if self.halt is not None and graph.name.endswith("backward"):
            self.halt.here()
        return super().compile(graph)


def test_a_child_runs_a_backward_that_another_thread_was_lowering():
    """TAN-8: it is lowered when it first runs."""
    backend, mine, x = HoldsUp(), leaf(), leaf()
    compiled = al.compile(lambda x: (x * x).sum(), backend=backend)
    theirs = [compiled(leaf()), compiled(x)]
    y = compiled(mine)

    def backward(halt):
        backend.halt = halt
        theirs[0].backward()

    def in_child():
        y.backward()
        assert [2.0, 4.0] == mine.grad.tolist()

    with held_up(backward):
        in_forked(in_child)
    theirs[1].backward()
    assert [2.0, 4.0] == x.grad.tolist()


def test_a_child_writes_memory_that_another_threads_backward_reads():
    """PART-37: the write waits for the node's lock, which no thread of the child holds."""
    x = leaf()
    node = al.compile(lambda x: (x * 2.0).sin().sum(), partition=keep_inputs)(x).grad_fn

    def in_child():
        with al.no_grad():
            x.mul_(5.0)
        assert node.saved is not None

    def read(halt):
        with node._lock:
            halt.here()

    with held_up(read):
        in_forked(in_child)


def test_a_child_draws_and_declares_while_another_thread_did():
    def hold(halt):
        with GENERATOR._lock, _LOCK:
            halt.here()

    def in_child():
        al.rand(3)
        al.register_op(
            "forked_twice(Tensor self) -> Tensor",
            kernel=lambda xp, a: a + a,
            scalar=lambda a: a + a,
            vjp={"self": lambda grad: grad * 2},
        )

    with held_up(hold):
        in_forked(in_child)
