"""What a compiled entry checks of the world outside its arguments. Rules: CAP-3..CAP-5, GRD-1.

Stage 1 collects guards while the function runs; `aotlite.calls` checks them at each call.
Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.hooks import is_watched
from aotlite.eager.observed import Observed
from aotlite.eager.state import STATE
from aotlite.eager.tensor import Tensor
from aotlite.ir.role import Hidden, Part, Primal
from aotlite.stages.s1_capture.access_paths import Place
from aotlite.stages.s1_capture.python_numbers import OwnNumbers
from aotlite.stages.s1_capture.snapshots import Freezer, deep_image


@attrs.frozen(eq=False)
class HiddenPlace:
    """Hidden input number `index` is what lies at `place`."""

    index: int
    place: Place


@attrs.frozen(eq=False)
class SamePlace:
    """The tensor at `place` is the same object as an input of this role."""

    place: Place
    role: Primal | Hidden | Part


@attrs.frozen(eq=False)
class PlainValue:
    """What lies at `place` equals `frozen` (numbers, flags, the form of containers)."""

    place: Place
    frozen: Any


@attrs.frozen(eq=False)
class HasGradient:
    """The tensor at `place` has a `.grad`, or has none."""

    place: Place
    """That of the `.grad`."""
    is_so: bool

    @property
    def expected(self) -> str:
        return "a gradient" if self.is_so else "None"

    @property
    def test(self) -> str:
        return "is not None" if self.is_so else "is None"


@attrs.frozen(eq=False)
class Unwatched:
    """The input of this role has no hooks, and does not retain its gradient (TEN-41)."""

    role: Primal | Hidden | Part


@attrs.frozen(eq=False)
class Surroundings:
    """What lies at `places` has these images, with one memory of which objects are the same.

    The places are all that the function can reach by name, and the Modules among its arguments.
    """

    places: tuple[Place, ...]
    images: tuple[Any, ...]

    @classmethod
    def at(
        cls, places: tuple[Place, ...], leaves: list[Any], tensors: list[Tensor]
    ) -> Surroundings:
        """The surroundings as they are now, for these argument leaves and tensor arguments."""
        freezer = Freezer(tensors, deep=True)
        return cls(places, tuple([freezer.image(place.resolve(leaves)) for place in places]))

    def changed(self, leaves: list[Any], tensors: list[Tensor]) -> Place | None:
        """The first place where something else lies now; None if all is as it was."""
        now = Surroundings.at(self.places, leaves, tensors).images
        if now == self.images:
            return None
        pairs = zip(self.places, self.images, now, strict=True)
        return next(place for place, before, after in pairs if before != after)


class Around:
    """What a function can reach by name, as it was before the function ran."""

    def __init__(self) -> None:
        self._before: list[tuple[Place, Any]] = []
        self._changed: set[int] = set()
        """The numbers of those that hooks change, which are put back when they have been tried."""
        self._guard: Surroundings | None = None
        self.numbers = OwnNumbers()

    def look(self, places: Sequence[Place], leaves: list[Any]) -> None:
        """Before the function runs."""
        self._before = [(place, deep_image(place.resolve(leaves))) for place in places]
        self.numbers.look(places, leaves)

    def note_reached(self, things: Sequence[Any], leaves: list[Any]) -> None:
        """These containers may be changed by calls."""
        ids = set(map(id, things))
        for number, (place, _) in enumerate(self._before):
            if id(place.resolve(leaves)) in ids:
                self._changed.add(number)

    def guard(self, recorder: Any, tensors: list[Tensor]) -> None:
        """Guards what the function left as it was, and hooks do.

        What it changed itself, such as a list that it appends to, it cannot be told by: that is so
        once, and not read (CAP-14). The form of a Module must stay.
        """
        leaves, kept = recorder.leaves, []
        for number, (place, before) in enumerate(self._before):
            if deep_image(place.resolve(leaves)) == before:
                if number not in self._changed:
                    kept.append(place)
            elif isinstance(place.resolve(leaves), Observed):
                raise recorder.refuse(
                    f"a change of what {place} holds",
                    "keep what changes in a buffer and write it in place, or change the object "
                    "outside the compiled function",
                )
        if self._guard is not None:
            recorder.guards.remove(self._guard)
        self._guard = Surroundings.at(tuple(kept), leaves, tensors) if kept else None
        if self._guard is not None:
            recorder.guards.append(self._guard)


def check_unwatched(recorder: Any, inputs: Sequence[Any]) -> None:
    """Refuses inputs with hooks, whose gradients the function asks for, and guards that of others.

    The hooks would have to run at each call, and may be others then.
    """
    for each in inputs:
        given = recorder.input_of(recorder.here(each)) if isinstance(each, Tensor) else None
        if given is not None and is_watched(recorder.real_of(given.fake)):
            what = f"the gradient of {given.place}, which has hooks or is retained,"
            raise recorder.refuse(what, "ask for it outside, or of x.view_as(x), taken inside")
        if given is not None and given.family is None and given.storage.version:
            is_view = recorder.real_of(given.fake)._base is not None
            if is_view and given.requires_grad:
                what = f"the gradient of {given.place}, a view that was written before,"
                raise recorder.refuse(what, "pass what it is a view of, too")
        if given is not None:
            recorder.guards.append(Unwatched(given.role))


@attrs.frozen
class AnomalyMode:
    """Anomaly mode is so: the function runs backwards, which it looks at (DBL-3, TEN-43)."""

    is_on: bool
    check_nan: bool

    @classmethod
    def now(cls) -> AnomalyMode:
        """The thread's mode; whether nans are looked for means nothing where it is off."""
        watch = STATE.watch
        is_on = watch is not None and watch.anomaly
        return cls(is_on, is_on and watch.check_nan)  # type: ignore[union-attr]

    def __str__(self) -> str:
        if not self.is_on:
            return "off"
        return "on" if self.check_nan else "on, without a look at nans"


Guard = HiddenPlace | SamePlace | PlainValue | HasGradient | Unwatched | Surroundings | AnomalyMode
