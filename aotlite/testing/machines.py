"""A state machine for Hypothesis: repeated calls of one compiled function in a changing world.

    run_machine(f, arguments=[((2, 3), "float64")])     a function of tensors
    run_machine(program, partition="min_cut")           the body of a program, with options
    run_machine()                                       random bodies

Between calls the aliasing, sizes and `requires_grad` of the arguments and the grad mode change;
results of calls, and views of them, are arguments of later calls; values are written and forgotten,
and gradients computed, at once or late. Each value has an eager twin, and after each rule all live
values of both sessions are compared (`aotlite.testing.sessions`): values, geometry, versions,
aliasing, histories, gradients. A failure prints the session, shrunk by Hypothesis. Derive from
`RepeatedCalls` for other settings or further rules.

Needs Hypothesis. Rules: GEN-1, GEN-2, GEN-11, GEN-13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

try:
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import (
        RuleBasedStateMachine,
        initialize,
        invariant,
        precondition,
        rule,
        run_state_machine_as_test,
    )
except ImportError as _error:
    from aotlite.ir.errors import MissingExtraError

    raise MissingExtraError(
        "aotlite.testing.machines: Hypothesis is not installed, expected: pip install hypothesis"
    ) from _error

import aotlite
from aotlite.ir.errors import ArgumentError
from aotlite.testing.compiled import compile_by_reference
from aotlite.testing.engines import Engine, engine
from aotlite.testing.engines.interpreter import setup_of
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.generate.step_arguments import name_of
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.vocabulary import EXAMPLES
from aotlite.testing.sessions import Pair, PairedSessions, is_leaf

Argument = tuple[tuple[int, ...], str]
"""Shape and dtype of an argument."""

MOST = 16
"""The most live values; the oldest are forgotten."""

picks = st.integers(0, 5)
"""The number of a live value: counted from the newest that fits, modulo their number."""

histories = st.sampled_from(["plain", "grown", "leaf"])
"""The history of a new value; `grown`: computed from a leaf that requires grad."""

drawn = st.sampled_from(["plain", "grown"])
"""The same without leaves, which bodies cannot write."""
grads = st.sampled_from([True, True, True, False])

ops = st.sampled_from(list(EXAMPLES))
"""The ops on values between calls."""
NEED_ELEMENTS = ("select", "narrow", "transpose")


class RepeatedCalls(RuleBasedStateMachine):
    """Calls one function, compiled and eager, again and again.

    Class attributes: `body`, a `Program` or a function of tensors (None: random programs),
    `arguments`, and `on`, the engine. `compile` returns the compiled function.

    >>> import aotlite as al
    >>> class Calls(RepeatedCalls):
    ...     body = staticmethod(lambda x, y: x.mul_(2) + y)
    ...     arguments = [((2,), "float64"), ((2,), "float64")]
    ...     def compile(self, body):
    ...         return al.compile(body, partition="min_cut")
    >>> Calls.TestCase.settings = settings(max_examples=5, deadline=None, database=None)
    >>> TestCalls = Calls.TestCase  # which pytest runs
    """

    body: Any = None
    arguments: ClassVar[Sequence[Any]] = ()
    """The shape and dtype of each argument of a function, or several lists of these, for calls with
    other sizes. A program has those of its calls."""
    on: str | Engine = "aotlite"
    atomic: bool = True
    """Whether a compiled call that raises must not change anything (GEN-2)."""

    def compile(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled form of a body."""
        return compile_by_reference(body)

    # --- the start
    @initialize(seed=st.integers(0, 2**20))
    def start(self, seed: int) -> None:
        """Compiles the body, which is random if there is none."""
        library = engine(self.on)
        body = draw(seed) if self.body is None else self.body
        self.last: list[Pair] = []
        """The arguments of the last call."""
        self.program = body if isinstance(body, Program) else None
        eager = body.function_of(library) if isinstance(body, Program) else body
        self.forms = _forms(library, self.program) if self.program else _given(self.arguments)
        self.twins = PairedSessions(
            library, eager, self.compile(eager), self.program, atomic=self.atomic
        )

    # --- the rules
    @rule(
        form=st.integers(0, 3),
        place=st.integers(0, 3),
        seed=st.integers(0, 6),
        history=histories,
    )
    def make(self, form: int, place: int, seed: int, history: str) -> None:
        """Makes a tensor like one of the arguments."""
        self._make(self._argument(form, place), seed, history)

    @rule(
        form=st.integers(0, 3),
        place=st.integers(0, 3),
        apart=st.integers(0, 2),
        history=histories,
    )
    def make_siblings(self, form: int, place: int, apart: int, history: str) -> None:
        """Makes two tensors like one of the arguments, on one memory."""
        shape, dtype = self._argument(form, place)
        count = _count(shape)
        flat = self._make(((count + apart,), dtype), 0, history)
        for start in (0, apart):
            window = self.twins.do("narrow", flat, 0, start, count)
            self.twins.do("view", window, list(shape))

    @precondition(lambda self: self.program is not None)
    @rule(number=st.integers(0, 1))
    def make_arguments(self, number: int) -> None:
        """Makes the values of the setup of one of the program's calls."""
        program = self.program
        assert program is not None
        self.twins.setup(program.calls[number % len(program.calls)].setup)

    @rule(
        form=st.integers(0, 3),
        which=st.lists(picks, min_size=4, max_size=4),
        history=drawn,
        grad=grads,
    )
    def call(self, form: int, which: list[int], history: str, grad: bool) -> None:
        """Calls with live values; 0 stands for a new one."""
        self.last = []
        for place, argument in enumerate(self.forms[form % len(self.forms)]):
            pick = which[place % len(which)]
            self.last.append(self._fitting(argument, pick, history))
        self.twins.call(self.last, grad=grad)

    @rule(form=st.integers(0, 3), history=drawn, grad=grads)
    def call_anew(self, form: int, history: str, grad: bool) -> None:
        """Calls with new arguments, each on new memory."""
        self.call(form, [0], history, grad)

    @rule(place=st.integers(0, 3), which=picks, history=drawn, grad=grads)
    def call_changed(self, place: int, which: int, history: str, grad: bool) -> None:
        """Repeats the last call with one other argument."""
        if not self._has_last():
            self.call(0, [0], "plain", grad)
        else:
            before = self.last[place % len(self.last)].its
            argument = tuple(before.shape), name_of(before.dtype)
            self.last[place % len(self.last)] = self._fitting(argument, which, history)
            self.twins.call(self.last, grad=grad)

    @rule(grad=grads)
    def call_again(self, grad: bool) -> None:
        """Repeats the last call."""
        if self._has_last():
            self.twins.call(self.last, grad=grad)
        else:
            self.call(0, [0], "plain", grad)

    @precondition(lambda self: self._live())
    @rule(which=picks, op=ops, no_grad=st.sampled_from([False, False, True]))
    def meddle(self, which: int, op: str, no_grad: bool) -> None:
        """Views, writes or changes the geometry of a value between calls."""
        source = self._pick(which)
        if op not in NEED_ELEMENTS or (source.its.dim() and source.its.shape[0]):
            self.twins.do(op, source, *EXAMPLES[op], no_grad=no_grad)

    @precondition(lambda self: self._alone())
    @rule(which=picks, flag=st.booleans())
    def require_grad(self, which: int, flag: bool) -> None:
        """Changes `requires_grad` of a leaf that is alone on its memory."""
        alone = self._alone()
        self.twins.do("requires_grad_", alone[-1 - which % len(alone)], flag)

    @precondition(lambda self: self._tracked())
    @rule(which=picks)
    def backward(self, which: int) -> None:
        """Runs a backward from one value, whose graph is retained."""
        tracked = self._tracked()
        self.twins.backward([tracked[-1 - which % len(tracked)]])

    @precondition(lambda self: self._tracked())
    @rule()
    def last_backward(self) -> None:
        """Runs a backward from all values, whose graphs are freed."""
        self.twins.backward(self._tracked(), retain=False)

    @precondition(lambda self: self._live())
    @rule(which=st.integers(-1, 5))
    def forget(self, which: int) -> None:
        """Drops a value, or all gradients."""
        if which < 0:
            self.twins.clear()
        else:
            self.twins.forget(self._pick(which))

    # --- after each rule
    @invariant()
    def nothing_differs(self) -> None:
        """Checks that a user observes no difference between the sessions."""
        twins = getattr(self, "twins", None)
        if twins is None:
            return
        while len(twins.live) > MOST:
            twins.forget(twins.live[0])
        found = twins.differences()
        if found:
            raise twins.difference(*found)

    # --- choices
    def _fitting(self, argument: Argument, which: int, history: str) -> Pair:
        """A live value like an argument, or a new one."""
        fitting = self.twins.like(*argument)
        pick = which % (len(fitting) + 1)
        return fitting[pick - 1] if pick else self._make(argument, which, history)

    def _live(self) -> list[Pair]:
        twins = getattr(self, "twins", None)
        return [] if twins is None else twins.live

    def _has_last(self) -> bool:
        """Whether the arguments of the last call are still live."""
        return (
            bool(self._live()) and bool(self.last) and all(p in self.twins.live for p in self.last)
        )

    def _pick(self, which: int) -> Pair:
        live = self.twins.live
        return live[-1 - which % len(live)]

    def _tracked(self) -> list[Pair]:
        return [p for p in self._live() if p.its.requires_grad and not is_leaf(p.its)]

    def _alone(self) -> list[Pair]:
        live, storage_of = self._live(), engine(self.on).storage_of
        counts = Counter(storage_of(pair.its) for pair in live)
        return [p for p in live if counts[storage_of(p.its)] == 1 and _is_base(self.on, p)]

    def _argument(self, form: int, place: int) -> Argument:
        arguments = self.forms[form % len(self.forms)]
        return arguments[place % len(arguments)] if arguments else ((2,), "float64")

    def _make(self, argument: Argument, seed: int, history: str) -> Pair:
        shape, dtype = argument
        grad = history != "plain" and dtype.startswith(("float", "complex"))
        made: Pair = self.twins.do("make", seed, list(shape), dtype, grad)
        grown: Pair = self.twins.do("mul", made, 1) if history == "grown" else made
        return grown


def _is_base(on: str | Engine, pair: Pair) -> bool:
    """Whether a value is a floating-point leaf and no view."""
    is_real = name_of(pair.its.dtype).startswith(("float", "complex"))
    return is_real and is_leaf(pair.its) and engine(on).base_of(pair.its) is None


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _forms(library: Engine, program: Program) -> list[list[Argument]]:
    """The arguments of each call of a program."""
    found = []
    for call in program.calls:
        _, args = setup_of(library, call)
        found.append([(tuple(each.shape), name_of(each.dtype)) for each in args])
    return found


def _given(arguments: Sequence[Any]) -> list[list[Argument]]:
    """The lists of arguments with which a function can be called."""
    several = [list(arguments)] if _is_form(arguments) else [list(each) for each in arguments]
    if not several or not all(map(_is_form, several)):
        raise ArgumentError(
            f"machines: arguments is {arguments!r}, expected a shape and a dtype for each argument"
            ' of the function, like [((2, 3), "float64")], or several such lists'
        )
    return [[(tuple(shape), dtype) for shape, dtype in form] for form in several]


def _is_form(given: Any) -> bool:
    return bool(given) and all(
        isinstance(each, (tuple, list)) and len(each) == 2 and isinstance(each[1], str)
        for each in given
    )


# ------------------------------------------------------------------------------------ the running
def run_machine(
    body: Any = None,
    *,
    arguments: Sequence[object] = (),
    compile: Callable[..., Any] | None = None,
    on: str | Engine = "aotlite",
    atomic: bool = True,
    settings: settings | None = None,
    **options: Any,
) -> None:
    """Runs `RepeatedCalls`; raises `Difference` with the shortest session that has one.

    `compile(body, **options)` defaults to `aotlite.compile`; `atomic=False` allows it to write
    before it raises. The default settings make the same run each time: 60 sessions of at most 25
    steps.

    >>> run_machine(lambda x: x.t().mul_(2), arguments=[((2, 3), "float64")], settings=QUICK)
    """
    make = aotlite.compile if compile is None else compile

    class Machine(RepeatedCalls):
        def compile(self, body: Callable[..., Any]) -> Callable[..., Any]:
            function: Callable[..., Any] = make(body, **options)
            return function

    Machine.body = staticmethod(body) if callable(body) else body
    Machine.arguments = arguments
    Machine.on, Machine.atomic = on, atomic
    run_state_machine_as_test(Machine, settings=settings or USUAL)


USUAL = settings(
    max_examples=60,
    stateful_step_count=25,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
QUICK = settings(USUAL, max_examples=5, stateful_step_count=6)
