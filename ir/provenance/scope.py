"""`Scope`: in which part of the user's program a node was made, besides its line.

Ground floor. One object serves all nodes of a part, and a node that belongs to none has None, so
that nodes pay for a reference only. Rules: SEQ-2, SEQ-5. Spec: `specs/rules/seq.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

TAPE_NODE = "node"
"""The tag of nodes that a compiled tape has recorded: whose they are (CAG-22)."""
NO_TAGS: Mapping[str, Any] = MappingProxyType({})


@attrs.frozen(eq=False)
class Scope:
    """The Module that was being called, and what the user noted."""

    module: str = ""
    """Names of attributes from the outermost Module that was called: `layers.0.fc`; empty for that
    Module itself, and where none was called."""
    tags: Mapping[str, Any] = NO_TAGS
    """Never written: `annotate` copies what it is given."""
    is_backward: bool = False
    """It was made by a backward that the captured function ran itself (SEQ-1)."""


SUM = Scope()
"""The scope of what adds up the gradients of several uses: it belongs to none of them (SEQ-5)."""
INNER = Scope(is_backward=True)
"""The scope of a backward in the function, of an op that belongs to none."""
