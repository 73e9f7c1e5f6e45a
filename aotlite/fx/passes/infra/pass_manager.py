"""`PassManager`: runs passes in an order that satisfies constraints (FXG-24)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from aotlite.fx.graph_module import GraphModule
from aotlite.fx.passes.infra.pass_base import PassResult
from aotlite.ir.errors import ArgumentError, noted

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

Pass = Callable[[GraphModule], Any]
Constraint = Callable[[Pass, Pass], bool]
"""Of two passes: whether the first one may run before the second."""


def pass_result_wrapper(fn: Pass) -> Pass:
    """A pass that returns a `PassResult`, of one that returns a GraphModule, or None for the given
    one, changed."""

    def wrapped(gm: GraphModule) -> PassResult:
        found = fn(gm)
        if isinstance(found, PassResult):
            return found
        if found is None or isinstance(found, GraphModule):
            return PassResult(gm if found is None else found, True)
        raise ArgumentError(
            f"{_name(fn)}: it returns a {type(found).__name__}, expected a GraphModule, a "
            "PassResult or None"
        )

    if hasattr(fn, "__name__"):
        functools.update_wrapper(wrapped, fn)
    wrapped.__name__ = _name(fn)
    return wrapped


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """The constraint that `this` runs before `that`."""
    return lambda first, second: first is not that or second is not this


class PassManager:
    """Passes and constraints on their order.

    A pass takes a GraphModule, and returns a `PassResult`, another GraphModule, or None if it has
    changed the one that it got. Up to `steps` rounds run, until a round changes nothing. After each
    pass the graph is linted and recompiled; with `run_checks_after_each_pass`, so do the checks
    that `add_checks` names.

    >>> from aotlite import fx
    >>> def clean(gm):
    ...     return PassResult(gm, gm.graph.eliminate_dead_code())
    >>> manager = PassManager(passes=[clean], steps=3)
    >>> manager(fx.symbolic_trace(lambda x: (x.exp(), x + 1)[1], "f32[2]")).modified
    True
    """

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = list(passes or [])
        self.constraints = list(constraints or [])
        self.steps = 1 if steps is None else steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._checks: list[Callable[[GraphModule], object]] = []
        self._validated = False

    # --- the schedule
    def add_pass(self, _pass: Pass) -> None:
        """Adds a pass at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Adds a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def add_checks(self, check: Callable[[GraphModule], object]) -> None:
        """Adds a check of the module between passes: it raises where something is wrong."""
        self._checks.append(check)

    def validate_constraints(self) -> None:
        """Raises ArgumentError if the passes stand in an order that a constraint forbids."""
        for place, first in enumerate(self.passes):
            for second in self.passes[place + 1 :]:
                if not all(allows(first, second) for allows in self.constraints):
                    raise noted(
                        ArgumentError(
                            f"PassManager: {_name(first)} stands before {_name(second)}, expected "
                            "the other order"
                        ),
                        "solve_constraints() sorts the passes.",
                    )
        self._validated = True

    def solve_constraints(self) -> None:
        """Sorts the passes as the constraints say, else as they stand. Raises ArgumentError for
        constraints that no order satisfies."""
        waiting, done = list(self.passes), []
        while waiting:
            ready = [each for each in waiting if self._may_be_next(each, waiting)]
            if not ready:
                names = ", ".join(map(_name, waiting))
                raise ArgumentError(
                    f"PassManager: each of {names} has to run behind another one, expected an order"
                )
            waiting.remove(ready[0])
            done.append(ready[0])
        self.passes, self._validated = done, True

    def _may_be_next(self, each: Pass, waiting: list[Pass]) -> bool:
        others = [other for other in waiting if other is not each]
        return all(allows(each, other) for other in others for allows in self.constraints)

    # --- running
    def check(self, module: GraphModule) -> None:
        """Lints the graph, and runs the checks that were added."""
        module.graph.lint()
        for each in self._checks:
            each(module)

    def __call__(self, module: GraphModule) -> PassResult:
        """Runs the passes; an error in one names it, and those that ran before."""
        if not self._validated:
            self.solve_constraints()
        modified = False
        for _ in range(self.steps):
            changed = False
            for number, fn in enumerate(self.passes):
                found = self._run(fn, module, number)
                module, changed = found.graph_module, changed or found.modified
            modified = modified or changed
            if not changed:
                break
        return PassResult(module, modified)

    def _run(self, fn: Pass, module: GraphModule, number: int) -> PassResult:
        try:
            found: PassResult = pass_result_wrapper(fn)(module)
            found.graph_module.recompile()
            if self.run_checks_after_each_pass:
                self._checked(found.graph_module)
        except Exception as error:
            before = ", ".join(_name(each) for each in self.passes[:number]) or "none"
            error.add_note(f"in the pass {_name(fn)}; passes before it: {before}")
            raise
        return found

    def _checked(self, module: GraphModule) -> None:
        try:
            self.check(module)
        except Exception:
            if not self.suppress_check_failures:
                raise
