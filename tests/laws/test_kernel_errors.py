"""An op's kernel that fails runs once, and its error is the caller's, eager and compiled."""

import operator
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.lookup import backend_from
from aotlite.backends.protocol import Window
from aotlite.eager.dispatch import dispatch
from aotlite.ir import errors
from aotlite.ir.arrays import NUMPY, copied
from aotlite.ir.op import OPS, DataOp, PureOp
from aotlite.subclasses import TwoTensor
from aotlite.testing.laws.graphs.corpus import GraphCase
from aotlite.testing.laws.graphs.op_graphs import graphs_of
from aotlite.testing.laws.ops.runs import bound, kernel_op
from tests.helpers.own_ops import taken_out
from tests.samples import samples_of

BUILTIN = (
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, GeneratorExit,
    ImportError, IndexError, KeyboardInterrupt, KeyError, LookupError, MemoryError, NameError,
    NotImplementedError, OSError, OverflowError, RecursionError, ReferenceError, RuntimeError,
    StopIteration, SystemExit, TypeError, ValueError, ZeroDivisionError,
)  # fmt: skip
OURS = tuple(
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.AotliteError)
)
KINDS = (*BUILTIN, *OURS)
TOLD: dict[type, tuple[type, ...]] = {
    MemoryError: (errors.OutOfMemoryError,),
    OverflowError: (errors.NumberOverflowError,),
}
"""What may come out in aotlite's words."""


class Failing:
    """A kernel that raises an error of its own for each call, and counts them."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.raised: list[BaseException] = []

    def __call__(self, *args: Any) -> Any:
        self.raised.append(self.kind("the kernel's own"))
        raise self.raised[-1]


@contextmanager
def failing_kernel(op: PureOp | DataOp, kind: type[BaseException]) -> Iterator[Failing]:
    """A block in which the op has no other way than a kernel that fails."""
    kernel = Failing(kind)
    other_ways = ("function", "compute", "namespaced", "loops", "scalar", "expands")
    changed = [name for name in ("kernel", *other_ways) if hasattr(op, name)]
    before = {name: getattr(op, name) for name in changed}
    for name in changed:
        setattr(op, name, kernel if name == "kernel" else None)
    shortcuts = getattr(op, "shortcuts", {})
    shortcuts.clear()
    try:
        yield kernel
    finally:
        shortcuts.clear()
        for name, value in before.items():
            setattr(op, name, value)


def check_raises_its_own(what: str, kernel: Failing, run: Callable[[], Any]) -> None:
    """The kernel ran once in `run`, and its error is the very one that came out.

    One of memory, or of numbers that are too large, may be told in aotlite's words: it is the
    cause of what came out.
    """
    kernel.raised.clear()
    with pytest.raises((kernel.kind, *TOLD.get(kernel.kind, ()))) as caught:
        run()
    assert 1 == len(kernel.raised), what
    came: BaseException | None = caught.value
    if kernel.kind in TOLD and isinstance(came, errors.AotliteError):
        came = came.__cause__
    assert kernel.raised[0] is came, what


def windows_of(case: GraphCase) -> list[Window]:
    """The inputs of a case in fresh memory."""
    pairs: Any = zip(case.graph.placeholders, case.arrays or (), strict=True)
    return [(copied(NUMPY, array, node.meta), 0) for node, array in pairs]


COMPUTING = [
    op
    for op in OPS.values()
    if kernel_op(op) is not None and samples_of(op.name) and op.name != "copy_"
]
"""The ops whose kernel eager calls: `copy_` is the array library's own copy."""
PURE = [op for op in COMPUTING if isinstance(op, PureOp)]


def test_a_failing_kernel_raises_its_own_error_once_in_eager() -> None:
    """Every op that has a kernel, in two calls of one key: one that is new, one that is known."""
    count = 0
    for number, op in enumerate(COMPUTING):
        args = bound(op, samples_of(op.name)[0])
        computing: Any = kernel_op(op)
        kinds: Any = RuntimeError, KINDS[number % len(KINDS)]
        for kind in kinds:
            with failing_kernel(computing, kind) as kernel:
                for _ in range(2):
                    check_raises_its_own(f"{op.name}: {kind}", kernel, partial(dispatch, op, args))
                    count += 1
    assert 4 * len(COMPUTING) == count > 1400


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["reference", "loops", "cpu"])
def test_a_failing_kernel_raises_its_own_error_once_compiled(name: str) -> None:
    """Every pure op, in each form that a backend gives a graph with its calls."""
    backend, count = backend_from(name), 0
    for number, op in enumerate(PURE):
        kinds: Any = RuntimeError, KINDS[number % len(KINDS)]
        (case,) = graphs_of(op, samples_of(op.name)[:1])
        for kind in kinds:
            with failing_kernel(op, kind) as kernel:
                run = backend.compile(case.graph)
                for _ in range(4):
                    check_raises_its_own(
                        f"{op.name}: {kind}", kernel, partial(run, windows_of(case))
                    )
                    count += 1
    assert 8 * len(PURE) == count > 2000


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", KINDS)
def test_an_own_ops_error_of_any_class_is_the_callers(kind: type[BaseException]) -> None:
    with taken_out():
        kernel = Failing(kind)
        op = al.register_op(
            "my_failing(Tensor self) -> Tensor",
            meta=lambda self: self,
            kernel=kernel,
            vjp={"self": lambda grad: grad},
        )
        x = al.ones(2, 3, requires_grad=True)
        check_raises_its_own("eager", kernel, partial(op, x))
        check_raises_its_own("eager, again", kernel, partial(op, x))
        for backend in ("reference", "loops", "cpu"):
            compiled = al.compile(lambda x: op(x * 2.0).sum(), backend=backend)
            for _ in range(4):
                check_raises_its_own(backend, kernel, partial(compiled, x))


def test_an_own_op_that_calls_ops_in_its_kernel_raises_once() -> None:
    """The inner calls find NumPy's quiet context in use."""
    calls: list[int] = []

    def kernel(xp: Any, meta: Any, a: Any) -> Any:
        calls.append(len(calls))
        (al.from_numpy(a.copy()) * 2.0).exp()
        raise al.AliasError("the kernel's own")

    with taken_out():
        op = al.register_op(
            "my_nesting(Tensor self) -> Tensor", meta=lambda self: self, kernel=kernel, vjp=None
        )
        for count in (1, 2, 3):
            with pytest.raises(al.AliasError, match="the kernel's own"):
                op(al.ones(2))
            assert count == len(calls)


def test_ops_run_quietly_in_several_threads_at_once() -> None:
    """Each thread that computes at the same time has a quiet context of its own."""
    meeting = threading.Barrier(4)

    def kernel(xp: Any, meta: Any, a: Any) -> Any:
        meeting.wait(10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return xp.log(a)

    with taken_out():
        op = al.register_op(
            "my_meeting(Tensor self) -> Tensor", meta=lambda self: self, kernel=kernel, vjp=None
        )
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(op, [al.zeros(2)] * 4))
    assert [[-np.inf, -np.inf]] * 4 == [each.tolist() for each in results]


class Refusing(TwoTensor):
    """A wrapper class that refuses all ops by the error that also says what cannot be compared."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise al.ArgumentError("the class's own")


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_a_comparison_of_a_wrapper_raises_what_its_class_raises(compare: Any) -> None:
    refusing = Refusing(al.ones(2), al.ones(2))
    refused: tuple[Any, ...] = (5, al.ones(2), refusing)
    for other in refused:
        with pytest.raises(al.ArgumentError, match="the class's own"):
            compare(refusing, other)
    for foreign in (None, "text"):
        assert (compare is operator.ne) is compare(refusing, foreign)
