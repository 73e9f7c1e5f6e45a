"""FX's names for the types of what nodes and hooks hold: any value that an argument can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Args", "Argument", "Kwargs", "Named", "Target", "Value"]

Argument = Any
"""An argument of a node: a node, a literal, or a tuple, list or dict of arguments."""
Args = tuple[Argument, ...]
Kwargs = dict[str, Argument]
Named = Mapping[str, Argument]
Target = Any
"""What a node calls or reads: a function of `aotlite.ops`, another function, or a name."""
Value = Any
"""What a node has in a run: an array, a tensor, a proxy, a number, or a tuple of values."""
