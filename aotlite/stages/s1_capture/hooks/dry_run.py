"""A recorder whose graph is thrown away: it runs a hook once on fakes, to see if it needs values.

A hook that asks for a value, or raises, is called at each backward instead (`RegisteredHooks`).
Any outer tensor becomes an input, and nothing is guarded. Spec: `specs/hooks_inside.md`.
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
    """A recorder for one trial run of a hook."""

    def __init__(self) -> None:
        super().__init__(None, [], HookDryRun)
        self.phase = Phase.BACKWARD
        self.grads.end()
        self.hooks.end()

    def gradient(self, meta: TensorMeta) -> Tensor:
        """A fake gradient of this geometry."""
        fake = Tensor(Storage(None, capture=self), meta)
        fake.value = Node("placeholder", "gradient", meta=meta)
        return fake

    def _lift(self, tensor: Tensor) -> Tensor:
        return self._fake_input(tensor, Hidden(len(self.placeholders), "outside"), "outside")

    def read_attribute(self, owner: object, name: str, value: object) -> Any:
        return value

    def read_absent(self, owner: object, name: str) -> None:
        """Nothing is guarded."""
