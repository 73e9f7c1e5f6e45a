"""The `.grad` of tensors from outside, while a function is captured: what it is, and becomes.

A backward inside the function adds to the gradients of leaves from outside, and `zero_grad` clears
them. Tensors that are there at the start are hidden inputs, which may be written in place; which
tensor is there at the end is noted, and set by each call (`GradWrite`); so are gradients that the
function's own leaves have which it returns.
Used by the recorder. Rules: CAP-4, DBL-3. Spec: `specs/gradients_inside.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.nodes.accumulate_grad import adopted
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.graph.role import Output
from aotlite.stages.records.call_effects import GradWrite
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.guard_records import GradAttributeGuard
from aotlite.stages.s1_capture.capture_trace import CaptureTrace


class GradAttributes:
    """What the `.grad` of each tensor from outside is by now. The eager layer asks and tells."""

    def __init__(self, recorder: CaptureTrace) -> None:
        self._recorder = recorder
        self._now: dict[int, tuple[Tensor, Tensor | None]] = {}
        """By id the fake, and what the function has put there."""
        self._looked_at: dict[int, tuple[Tensor, AccessPath]] = {}
        """By id the fake, the gradient that was read, and its place."""
        self._over = False
        """The function has returned: what writes now is users' Python in its backward."""

    def read(self, tensor: Tensor) -> Tensor | None:
        """The `.grad` of a tensor; at the start a hidden input, or guarded to be None."""
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

    def write(self, tensor: Tensor, value: Tensor | None) -> None:
        """Puts another tensor there, or None."""
        recorder = self._recorder
        self._check_running()
        fake = recorder.here(tensor)
        if is_wrapper(fake):
            raise recorder.refuse(
                "writing the .grad of a wrapper from outside", "return the gradient"
            )
        recorder.unrecorded = True  # no op is left behind that says so
        self._now[id(fake)] = fake, None if value is None else recorder.here(value)

    def add(self, leaf: Tensor, grads: list[Any]) -> None:
        """Adds the gradient, which `grads` holds, to that of a leaf from outside (TEN-29)."""
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
        """What is written from now on is written in a backward, and refused."""
        self._over = True

    def _check_running(self) -> None:
        if self._over:
            raise self._recorder.refuse(
                "writing the .grad of a tensor from outside in a backward",
                "do it in a hook that uses nothing of the compiled function, or outside",
            )

    def guard_unused(self) -> None:
        """Guards that there are the gradients of which nothing else was asked (CAP-4).

        Those that were used are inputs, which are guarded as such.
        """
        recorder = self._recorder
        used = {id(recorder.real_of(given.fake)) for given in recorder.inputs}
        for grad, place in self._looked_at.values():
            if id(grad) not in used:
                recorder.guards.append(GradAttributeGuard(place, True))

    def written(self, results: list[Any]) -> tuple[GradWrite, ...]:
        """What each call puts where; the tensors are added to the results of the function.

        Also what lies there already: at another call something else may (CAP-4).
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
        """Whether a result is of the function's own making, and has a gradient."""
        made = isinstance(result, Tensor) and not self._recorder.is_outside(result)
        return made and result._grad is not None
