"""`Scope`: the Module and the user's tags under which a node was recorded.

Ground floor. Nodes of one Module and tags share one object, so that a node costs a reference only;
a node outside of all has None. Rules: SEQ-2, SEQ-5. Spec: `specs/rules/seq.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

TAPE_NODE = "node"
"""The tag in graphs of compiled autograd that names the tape node of an op (CAG-22)."""
COMPILATION = "compilation"
"""The tag beside it where that is a compiled backward: the number of the compilation (GEN-9)."""
REGION = "region"
"""The tag of the ops of a marked region, such as `block[3]` (REG-21)."""
NO_TAGS: Mapping[str, Any] = MappingProxyType({})


@attrs.frozen(eq=False)
class Scope:
    """The Module that was being called, and the tags of `annotate`."""

    module: str = ""
    """The path from the outermost called Module, such as `layers.0.fc`; empty for that Module
    itself, and where none was called."""
    tags: Mapping[str, Any] = NO_TAGS
    """Never written: `annotate` copies the tags that it is given."""
    is_backward: bool = False
    """Whether a backward that the captured function ran itself made the node (SEQ-1)."""


SUM = Scope()
"""The scope of nodes that sum the gradients of several uses, and so belong to none (SEQ-5)."""
INNER = Scope(is_backward=True)
"""The scope of nodes of a backward inside the function whose forward op has no scope."""
