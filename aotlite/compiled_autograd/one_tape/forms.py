"""`TapeForms`: what each node of a tape is in its graph: recorded, with which form, or called.

Rules: CAG-6, CAG-25, CAG-30. Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from aotlite.compiled_autograd.node_signatures import (
    CLOSED,
    Form,
    bare_form_of,
    is_released,
    records_of,
    saver_of,
)
from aotlite.compiled_autograd.one_tape.custom_backwards import BackwardReaders, Called
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.nodes.op_nodes import OpNode
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.tape.node import TapeNode
from aotlite.ir.errors import AutogradError
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from aotlite.stages.s10_runtime.backward.plan import NOTHING_ABSENT

_MOST = 256
STALE = "a saved value was written"


class TapeForms:
    """The forms of nodes in graphs with calls, for one compiler."""

    def __init__(self) -> None:
        self._readers = BackwardReaders()
        self._failed: dict[Form, str] = {}
        """Forms with which a backward could not be recorded, and why."""

    def failed(self, form: Form, why: str) -> None:
        """Notes that nodes of a form are called."""
        if len(self._failed) >= _MOST:
            del self._failed[next(iter(self._failed))]
        self._failed[form] = why

    def of(self, node: TapeNode) -> Form:
        """The form of a node without its hooks; that of a called one begins with CLOSED."""
        if type(node) is CustomNode:
            try:
                form = CustomNode, self._readers.key_of(node)
                if form not in self._failed:
                    return form
            except Called:
                pass
        return bare_form_of(node)

    def key_of(self, node: TapeNode, form: Form) -> Hashable:
        """What a graph depends on beside the form of a node with hooks, or of a called one."""
        if form[0] != CLOSED:
            return form
        if type(node) is CustomNode:
            return form, tuple(node._given), tuple(node.metas)
        call: Any = node.call if type(node) is OpNode else None
        return form if call is None else (form, call.key, call.result)

    def why_called(self, node: TapeNode) -> str:
        """Why a node whose form is CLOSED is called."""
        if type(node) is CustomNode:
            try:
                form = CustomNode, self._readers.key_of(node)
            except Called as reason:
                return str(reason)
            return self._failed.get(form, STALE)
        if is_stale(node):
            return STALE
        if type(node) is CompiledBackward:
            return "its graph is not inlined"
        bare = bare_form_of(node)
        return bare[2] if len(bare) > 2 and bare[2] else "it is Python code"


def saved_records(node: TapeNode) -> Sequence[SavedTensor | None]:
    """The saved tensors of a node that is recorded, by slot; none of a compiled backward."""
    if type(node) is CustomNode:
        return [None if each is None else each.record for each in node.ctx._kept or ()]
    saver = saver_of(node)
    return [] if saver is None else list(records_of(saver))


def is_freed(node: TapeNode) -> bool:
    """Whether a node that is recorded has released its saved values."""
    if type(node) is CustomNode:
        return node.ctx._kept is None
    return is_released(node)


def stale_among(nodes: Sequence[TapeNode], forms: Sequence[Form]) -> Iterator[int]:
    """The numbers of nodes that would be recorded, and of which a saved value was written since:
    the engine raises when it runs them, if it reads that value."""
    for number, node in enumerate(nodes):
        if forms[number][0] != CLOSED and is_stale(node):
            yield number


def is_stale(node: TapeNode) -> bool:
    """Whether a saved value of a node was written since."""
    if type(node) is CompiledBackward:
        if node.saved is None:
            return False
        try:
            node.check(NOTHING_ABSENT)
        except AutogradError:
            return True
        return False
    for record in saved_records(node):
        tensor = None if record is None else record.tensor
        if record is not None and tensor is not None and tensor.storage.version != record.version:
            return True
    return False
