"""Reads and writes of `.grad` in a captured function: on inputs, and on leaves that it returns.

A `backward()` inside the function adds to the `.grad` of input leaves; `zero_grad` clears it. A
tensor that is a `.grad` at the start becomes a hidden input, and may be written in place. The
tensor that is there at the end becomes an extra result; each call sets it (`GradWrite`).
Used by the recorder. Rules: CAP-4, DBL-3. Spec: `specs/gradients_inside.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.autograd.nodes.accumulate_grad import adopted
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.graph.role import Output
from aotlite.stages.records.call_effects import GradWrite
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.guard_records import GradAttributeGuard
from aotlite.stages.s1_capture.capture_trace import CaptureTrace


@attrs.define(eq=False, repr=False)
class GradAttributes:
    """The current `.grad` of each input. The eager layer calls `read`, `write` and `add`."""

    _recorder: CaptureTrace
    _now: dict[int, tuple[Tensor, Tensor | None]] = attrs.field(factory=dict)
    """By the fake's id: the fake, and the `.grad` that the function set."""
    _looked_at: dict[int, tuple[Tensor, AccessPath]] = attrs.field(factory=dict)
    """By the fake's id: the caller's gradient that was read, and its access path."""
    _over: bool = False
    """The function has returned: a write now comes from users' Python in its backward."""

    def read(self, tensor: Tensor) -> Tensor | None:
        """The `.grad` of a tensor. The first read of an input's adds a guard where it is None."""
        recorder = self._recorder
        fake = recorder.here(tensor)
        if not recorder.is_outside(fake):
            return fake._grad
        if id(fake) in self._now:
            return self._now[id(fake)][1]
        given, real = recorder.input_of(fake), recorder.real_of(fake)
        place = recorder.place_at(given.role).then("grad", None)  # type: ignore[union-attr]
        if real._grad is None:
            recorder.guards.append(GradAttributeGuard(place, False))
            return None
        recorder.learn(real._grad, place)
        found: Tensor = real._grad
        self._looked_at[id(fake)] = found, place
        return found

    def image(self) -> tuple[int, ...]:
        """What the function has set so far, to be compared."""
        return tuple([id(part) for pair in self._now.values() for part in pair])

    def write(self, tensor: Tensor, value: Tensor | None) -> None:
        """Sets the `.grad` of an input."""
        recorder = self._recorder
        self._check_running()
        fake = recorder.here(tensor)
        if is_wrapper(fake):
            raise recorder.refuse(
                "writing the .grad of a wrapper from outside", "return the gradient"
            )
        recorder.unrecorded = True  # no node of the graph says so
        self._now[id(fake)] = fake, None if value is None else recorder.here(value)

    def add(self, leaf: Tensor, grads: list[Tensor | None]) -> None:
        """Accumulates the gradient in `grads`, a list of one, into an input's `.grad` (TEN-29)."""
        self._check_running()
        self._recorder.ask_gradients([leaf])
        before = self.read(leaf)
        if before is None:
            self.write(leaf, adopted(grads, leaf))
        elif STATE.grad_mode:
            self.write(leaf, before + grads[0])
        else:
            before.add_(grads[0])

    def end(self) -> None:
        """Refuses writes from now on: they come from a backward."""
        self._over = True

    def _check_running(self) -> None:
        if self._over:
            raise self._recorder.refuse(
                "writing the .grad of a tensor from outside in a backward",
                "do it in a hook that uses nothing of the compiled function, or outside",
            )

    def guard_unused(self) -> None:
        """Guards that a `.grad` which was read, and then not used in an op, is still set (CAP-4).

        Those that an op used are hidden inputs, with guards of their own.
        """
        recorder = self._recorder
        used = {id(recorder.real_of(given.fake)) for given in recorder.inputs}
        for grad, place in self._looked_at.values():
            if id(grad) not in used:
                recorder.guards.append(GradAttributeGuard(place, True))

    def written(self, results: list[Any]) -> tuple[GradWrite, ...]:
        """The `.grad` assignments of each call; their tensors are appended to `results`.

        An assignment of the tensor that was there already counts: another call may find another
        one there (CAP-4).
        """
        self.end()
        found = []
        for fake, value in self._now.values():
            role = self._recorder.input_of(fake).role  # type: ignore[union-attr]
            found.append(GradWrite(role, None if value is None else len(results)))
            if value is not None:
                results.append(value)
        for index, result in enumerate(results):  # grows while it is walked
            if self._has_own(result):
                found.append(GradWrite(Output(index), len(results)))
                results.append(self._recorder.here(result._grad))
        return tuple(found)

    def _has_own(self, result: Any) -> bool:
        """Whether a result is no input, and has a `.grad`."""
        made = isinstance(result, Tensor) and not self._recorder.is_outside(result)
        return made and result._grad is not None
