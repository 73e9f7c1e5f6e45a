"""Records a segment: the engine's own `_step` runs its nodes on fakes, one by one.

At the end the gradients in flight are restored; then the segment is compiled and runs for the first
time. Used by `execution`. Rules: CAG-1, CAG-3. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.compiled_autograd.recorder import Closed, Place, TapeRecorder
from aotlite.compiled_autograd.segment import RecordingRun, Segment, SegmentRecording
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError


class SegmentRecorder:
    """A segment that is being recorded."""

    def __init__(self, run: RecordingRun) -> None:
        self.run = run
        self.numbers: list[int] = []
        self.before: dict[TapeNode, list[Tensor | None]] = {}
        """The gradients in flight before the segment."""
        self.collected: list[Tensor | None] = []
        """The gradients at the sinks before the segment."""
        self.starting: list[Tensor | None] = []
        """The gradients at the sinks when the recording begins: those, or fakes of them."""
        self.places: dict[int, Place] = {}
        self.recorder: TapeRecorder | None = None

    def begin(self, recorder: TapeRecorder) -> None:
        """Begins the recording; keeps the gradients in flight."""
        run = self.run
        self.before = {node: list(grads) for node, grads in run.gradients.items()}
        self.collected = self.starting = list(run.collected)
        self.places = run.places()
        self.recorder = recorder

    def take(self, number: int) -> bool:
        """Records one more node; False if it turns out to be closed."""
        run = self.run
        node = run.nodes[number]
        grads = run.gradients.get(node)
        arrived = None if grads is None else list(grads)
        if self.recorder is None:
            self.begin(TapeRecorder(self.place_of))
        recorder = self.recorder
        assert recorder is not None
        mark = recorder.mark()
        try:
            self.step(number)
        except (Closed, UnsupportedError):  # the engine runs the node, and raises if eager does
            recorder.back_to(mark, number)
            if arrived is not None:
                run.gradients[node] = arrived
            return False
        except Exception:
            recorder.back_to(mark, number)
            self.end()  # the engine would have run the nodes before this one
            raise
        return True

    def step(self, number: int) -> None:
        """Runs a node on fakes."""
        run = self.run
        retain, run.retain = run.retain, True  # saved values are needed when the segment runs
        run.recorder = STATE.recorder = self.recorder
        try:
            run._step(run.nodes[number])
        finally:
            STATE.recorder = run.recorder = None
            run.retain = retain
        self.numbers.append(number)

    def place_of(self, tensor: Tensor) -> Place:
        """The place of an arrived gradient."""
        return self.places[id(tensor)]

    def end(self) -> Segment | None:
        """Compiles the segment and runs it; None if nothing was recorded."""
        if self.recorder is None:
            return None
        segment = self.recording().compiled(self.run.compiler)
        self.give_up()
        segment.execute(self.run.nodes, self.run)
        return segment

    def give_up(self) -> None:
        """Restores the gradients in flight before the segment, and closes the recorder."""
        assert self.recorder is not None
        self.run.gradients, self.run.collected = self.before, self.collected
        self.recorder.close()

    def recording(self) -> SegmentRecording:
        """The recorded segment, not compiled."""
        run, number, recorder = self.run, self.run.number, self.recorder
        assert recorder is not None
        values = Values(recorder, self.place_of)
        leaves = tuple([(leaf, values.taken(grad)) for leaf, grad in recorder.pending])
        leaving = tuple(
            [
                (number[node], tuple(map(values.seen, grads)))
                for node, grads in run.gradients.items()
            ]
        )
        pairs = zip(run.collected, self.starting, strict=True)
        collected = tuple([Ellipsis if new is old else values.seen(new) for new, old in pairs])
        results = values.results
        return SegmentRecording(
            tuple(self.numbers),
            recorder.graph(results, "tape") if results else None,
            tuple(recorder.places),
            tuple(recorder.kept.items()),
            leaves,
            leaving,
            collected,
        )


class Values:
    """The values that leave a segment: graph results, gradients that pass through, and views."""

    def __init__(self, recorder: TapeRecorder, place_of: Callable[[Tensor], Place]) -> None:
        self.recorder = recorder
        self.place_of = place_of
        self.results: list[Tensor] = []
        self._index: dict[int, int] = {}
        self._views: dict[int, Any] = {}

    def taken(self, grad: Tensor) -> Any:
        """The value of a leaf's gradient; a view is a result of its own."""
        if grad.storage.capture is not self.recorder:
            return self.place_of(grad)
        place = self.recorder.place_in(grad)
        if place is not None:
            return place
        index = self._index.get(id(grad))
        if index is None:
            index = self._index[id(grad)] = len(self.results)
            self.results.append(grad)
        return index

    def seen(self, grad: Tensor | None) -> Any:
        """The value of a gradient in flight. A view stays a view: hooks may write its base."""
        if grad is None:
            return None
        if grad.storage.capture is not self.recorder or grad._base is None:
            return self.taken(grad)
        if id(grad) not in self._views:
            self._views[id(grad)] = ("view", self.taken(grad._base), grad._chain)
        return self._views[id(grad)]
