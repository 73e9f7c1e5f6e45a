"""`MarkedRegions`: the calls of functions that the user has marked, in one capture.

Part of the recorder. The first of equal calls runs and is logged, each later one is repeated from
the log; in doubt a call runs. Rules: REG-20 to REG-29. Spec: `specs/equal_regions.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.tracked_objects import is_substituting
from aotlite.ir.provenance.scope import REGION
from aotlite.stages.records.metadata.region_report import RegionCall, RegionReport
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.regions.region_log import RegionLog, fakes_of
from aotlite.stages.s1_capture.regions.region_operands import Operands, UnlikeError
from aotlite.stages.s1_capture.regions.region_proof import RegionVariables, reason_against

_MOST = 8
"""The logs that are kept of one function."""


@attrs.define(eq=False, repr=False)
class _Function:
    """A marked function: its logs, or why none of its calls may be repeated."""

    function: Any
    is_asked: bool = False
    against: str | None = None
    logs: list[RegionLog] = attrs.field(factory=list)


@attrs.define(eq=False, repr=False)
class _Call:
    """A call so far, with the fields of `RegionCall`."""

    name: str
    mark: str
    of: str = ""
    within: str = ""
    why: str | None = None


@attrs.define(eq=False, repr=False)
class MarkedRegions:
    """The calls of marked functions in one capture."""

    recorder: CaptureTrace
    calls: list[_Call] = attrs.field(factory=list)
    _counts: Counter[str] = attrs.field(factory=Counter)
    _functions: dict[int, _Function] = attrs.field(factory=dict)

    @property
    def scopes(self) -> Any:
        """The recorder's `ModuleScopes`, which hold this object: it must not hold them."""
        return self.recorder.scopes

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a marked function."""
        number, scopes = len(self.calls), self.scopes
        before = self._begin(_name(function))
        try:
            return self._called(number, function, args, kwargs)
        finally:
            scopes.leave(before)

    def _begin(self, name: str, by: str = "") -> Any:
        """Marks the ops from here on as those of the next call; returns the scope before."""
        scopes = self.scopes
        within = "" if scopes.now is None else scopes.now.tags.get(REGION, "")
        mark = f"{name}[{self._counts[name]}]"
        self._counts[name] += 1
        self.calls.append(_Call(name, mark, within=by))
        log, scopes.log = scopes.log, None
        before = scopes.tag({REGION: f"{within}/{mark}" if within else mark})
        scopes.log = log
        if log is not None:
            log.scope("region", name)
        return before

    def _called(
        self, number: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        known = self._functions.setdefault(id(function), _Function(function))
        why = self._against_here() or known.against
        if why is None:
            operands = Operands(fakes_of(self.recorder))
            try:
                key = STATE.grad_mode, operands.key(args), operands.key(kwargs)
                for log in known.logs:
                    mine = operands.copy()
                    why = log.unlike(key, mine)
                    if why is None:
                        why = self._against(known, (*args, *kwargs.values()))
                        if why is None:
                            return self._again(number, log, mine)
                        break
                if known.against is None and len(known.logs) < _MOST:
                    log = RegionLog(self.calls[number].mark, key, operands, self.recorder)
                    return self._logged(number, log, known, why, (args, kwargs))
            except UnlikeError as error:
                why = str(error)
        self.calls[number].why = why
        return function(*args, **kwargs)

    def _again(self, number: int, log: RegionLog, operands: Operands) -> Any:
        self.calls[number].of = log.mark
        return log.again(operands, partial(self._begin, by=self.calls[number].mark))

    def _logged(
        self, number: int, log: RegionLog, known: _Function, why: str | None, given: Any
    ) -> Any:
        """Runs the function, whose ops and reads are logged."""
        args, kwargs = given
        self.scopes.log = log
        try:
            result = known.function(*args, **kwargs)
        finally:
            self.scopes.log = log.outer
        log.close(result, RegionVariables.of([known.function, *log.modules]))
        if log.against is None:
            known.logs.append(log)
        else:
            known.against = log.against
        self.calls[number].why = log.against or why
        return result

    @property
    def report(self) -> RegionReport:
        """What became of each call."""
        fields = [(call.name, call.mark, call.of, call.within, call.why) for call in self.calls]
        return RegionReport(tuple([RegionCall(*each) for each in fields]))

    def _against_here(self) -> str | None:
        """Why no call may be repeated now."""
        recorder = self.recorder
        if recorder.sizes is not None:
            return "sizes are symbols"
        if STATE.in_region or STATE.draws is not None or recorder.recompute is not None:
            return "it is within a checkpoint"
        if STATE.watch is not None:
            return "saved-tensor hooks or anomaly mode are active"
        if STATE.nested or is_substituting():
            return "tensors are substituted"
        return None

    def _against(self, known: _Function, given: Sequence[object]) -> str | None:
        """Why calls of a function may not be repeated; asked when the first one could be."""
        if not known.is_asked:
            known.is_asked = True
            known.against = reason_against(known.function, self.recorder.compared(), given)
        return known.against


def _name(function: Any) -> str:
    """`block` of a function; `Block` of its method `forward`."""
    name: str = getattr(function, "__qualname__", type(function).__name__)
    return name.rpartition("<locals>.")[2].removesuffix(".forward")
