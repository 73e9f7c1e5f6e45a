"""A recorder of which nothing is kept: a users' function is run on tensors without data.

Stage 1 hands it to `RegisteredHooks`, which sees by it what a hook changes besides tensors. Tensors
from outside are inputs wherever they lie. Spec: `specs/hooks_inside.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Hidden
from aotlite.ir.meta import TensorMeta
from aotlite.stages.s1_capture.recorder import CaptureRecorder


class HookDryRun(CaptureRecorder):
    """Records a run that is forgotten."""

    def __init__(self) -> None:
        super().__init__(None, [], HookDryRun)
        self.phase = Phase.BACKWARD
        self.grads.end()
        self.hooks.end()

    def gradient(self, meta: TensorMeta) -> Tensor:
        """A tensor without data."""
        fake = Tensor(Storage(None, capture=self), meta)
        fake.value = Node("placeholder", "gradient", meta=meta)
        return fake

    def _lift(self, tensor: Tensor) -> Tensor:
        return self._fake_input(tensor, Hidden(len(self.placeholders), "outside"), "outside")

    def read_attribute(self, owner: Any, name: str, value: Any) -> Any:
        return value

    def read_absent(self, owner: Any, name: str) -> None:
        """Nothing is guarded."""
