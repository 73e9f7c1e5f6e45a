"""The recompile limit: what a call does that would need one entry too many (GRD-4).

The call runs eagerly, and the first such call warns of the guard that keeps failing. With
`recompile_limit_is_error` it raises. Used by `api` and `aot`. Spec: `specs/rules/grd.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.backends.native.warn_once import warn_caller
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import GuardError, UnsupportedError, noted
from aotlite.ir.forks import lock
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph.role import Hidden, Part, Primal
from aotlite.pipeline.arguments import FlatArguments
from aotlite.pipeline.options import Options
from aotlite.pipeline.request import CompiledEntry
from aotlite.pipeline.size_regions.exact_types import type_question
from aotlite.pipeline.size_regions.tensor_marks import against_marks
from aotlite.stages.records.guards.access_words import in_words
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s10_runtime.guards.failures import GuardFailure
from aotlite.stages.shared.memory.sized_views import why_numbers

ADVICE = (
    "Pass what changes at each call as a tensor, or raise recompile_limit; a size that changes is "
    "a symbol, unless dynamic=False or a line fixes it: mark_dynamic(argument, dim) names it. "
    "(GRD-4)"
)
_NAMES_A_SIZE = "; mark_dynamic(argument, dim) names the line that keeps a size a number"
_OF_SIZE = re.compile(r"\bsize \d+ of ")
_SHAPE = re.compile(r"\[[^\]]*\]")
_SHOWN = 3
"""At most this many guards are named, and of each at most this many expected values."""


@attrs.frozen
class Miss:
    """An entry that is not valid for a call: its number, its metadata, the guard that fails."""

    number: int
    meta: FunctionMeta
    failure: GuardFailure

    def __str__(self) -> str:
        why = _why_numbers(self.meta, self.failure)
        return f"entry {self.number}: {self.failure}" + (f" ({why})" if why else "")


def misses_of(
    function: object,
    entries: Sequence[CompiledEntry],
    forms: Mapping[Any, Sequence[CompiledEntry]],
    call: FlatArguments,
    options: Options,
) -> list[Miss]:
    """The guard of each entry of a function that fails for a call; `forms` are the entries by forms
    of calls."""
    known = forms.get(call.key, ())
    specs = {id(entry): form[0] for form, found in forms.items() for entry in found}
    found = []
    for number, entry in enumerate(entries):
        why = None
        if entry in known:
            why = against_marks(entry, call, options.num_params_buffers)
            why = why or entry.guarded.why_not(call.leaves)
        if why is None:
            given, expected = str(call.spec)[:200], str(specs[id(entry)])[:200]
            why = GuardFailure("the form of the arguments", given, expected)
        words = [in_words(function, text) for text in (why.subject, why.found, why.expected)]
        found.append(Miss(number, entry.meta, GuardFailure(*words)))
    return found


def unstable(
    function: object, name: str, entry: CompiledEntry, call: FlatArguments
) -> UnsupportedError:
    """The error for a function whose entry is not valid for the call that it was made for."""
    failure = entry.guarded.why_not(call.leaves)
    place = "something that it reads" if failure is None else in_words(function, failure.subject)
    error = UnsupportedError(
        f"compile: {name} changed {place} while it was captured, expected a function that leaves "
        "in place what it can read"
    )
    advice = "Every call would compile again. Keep what changes in tensors written in place."
    error.add_note(advice)
    return error


def _why_numbers(meta: FunctionMeta, failure: GuardFailure) -> str:
    """Why the sizes of an input that has others are numbers, whatever is marked; or empty."""
    found, expected = (_SHAPE.search(text) for text in (failure.found, failure.expected))
    if found is None or expected is None or found[0] == expected[0]:
        return ""
    roles = [each.role for each in meta.inputs if each.place == failure.subject]
    if any(isinstance(role.whole if isinstance(role, Part) else role, Hidden) for role in roles):
        return "sizes of a tensor that is no argument are numbers: pass it"
    return next(filter(None, [why_numbers(meta, role) for role in roles]), "")


@attrs.define(eq=False, repr=False)
class RecompileLimit:
    """The limit of one function, and whether its warning was given."""

    most: int
    is_error: bool
    _has_warned: bool = False
    _lock: Any = attrs.field(factory=lock)

    def is_silent(self, count: int) -> bool:
        """Whether a call runs eagerly without another warning, when there are `count` entries."""
        return self._has_warned and count >= self.most and not self.is_error

    def reached(self, what: str, reasons: Sequence[object], failing: str) -> None:
        """Raises GuardError with the reasons; or warns, the first time, of the `failing` guards."""
        said = f"{what}, expected at most {self.most} (recompile_limit)"
        if self.is_error:
            asks = _NAMES_A_SIZE if _OF_SIZE.search(failing) else ""
            raise noted(GuardError(f"{said}: {failing}{asks}"), *map(str, reasons), ADVICE)
        with self._lock:
            has_warned, self._has_warned = self._has_warned, True
        if not has_warned:
            warn_caller(f"{said}: such calls run eagerly from now on. {failing}. {ADVICE}")


# --------------------------------------------------------------------------- what keeps failing
def failing_guards(function: object, misses: Sequence[Miss], leaves: Sequence[object]) -> str:
    """The guards that fail in most entries, as text: the subject, what it is, what was expected;
    and what keeps numbers from being symbols, if something does."""
    groups: dict[str, list[Miss]] = {}
    for miss in misses:
        groups.setdefault(miss.failure.subject, []).append(miss)
    most = sorted(groups.values(), key=len, reverse=True)[:_SHOWN]
    asked = type_question(function, leaves)
    why = [] if asked is None else [f"no size or number is a symbol, because of {asked}"]
    return "; ".join([*[_failing(group, len(misses), leaves) for group in most], *why])


def _failing(misses: Sequence[Miss], count: int, leaves: Sequence[object]) -> str:
    sizes = _sizes(misses, leaves)
    first = misses[0].failure
    texts = [
        f"size {dim} of {first.subject} is {found}, expected {_one_of(list(map(str, expected)))}"
        for dim, found, expected in sizes
    ] or [
        f"{first.subject} is {first.found}, expected "
        f"{_one_of([miss.failure.expected for miss in misses])}"
    ]
    return f"{' and '.join(texts)} ({len(misses)} of {count} entries)"


def _sizes(misses: Sequence[Miss], leaves: Sequence[object]) -> list[tuple[int, int, list[int]]]:
    """The dimensions of one argument in which it fits none of these entries.

    Each as (dimension, size found, sizes expected). Empty where its dtype or rank differs as well.
    """
    shape, shapes = None, []
    for miss in misses:
        for each in miss.meta.inputs:
            symbolic = is_symbolic(each.meta.shape)
            if symbolic or each.place != miss.failure.subject:
                continue
            if isinstance(each.role, Primal):
                leaf = leaves[each.role.index]
                if not isinstance(leaf, Tensor) or leaf.dtype is not each.meta.dtype:
                    return []
                shape = tuple(leaf.shape)
                shapes.append(each.meta.shape)
    if shape is None or len(shapes) < len(misses) or {len(shape)} != set(map(len, shapes)):
        return []
    found = [(dim, size, [each[dim] for each in shapes]) for dim, size in enumerate(shape)]
    return [(dim, size, expected) for dim, size, expected in found if size not in expected]


def _one_of(texts: Sequence[str]) -> str:
    """Different texts joined by "or": the first few, and how many more there are."""
    different = list(dict.fromkeys(texts))
    if len(different) == 1:
        return different[0]
    if len(different) <= _SHOWN:
        return f"{', '.join(different[:-1])} or {different[-1]}"
    return f"{', '.join(different[:_SHOWN])} or one of {len(different) - _SHOWN} more"
