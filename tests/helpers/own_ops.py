"""Ops that a test or an example registers are taken out of the table afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aotlite.ir.ops  # noqa: F401  (fills the table: what comes later is the user's)
from aotlite.ir.op import OPS
from aotlite.ir.op.operand import Operand


@contextmanager
def taken_out() -> Iterator[None]:
    """A block after which the op table is what it was."""
    before = set(OPS)
    try:
        yield
    finally:
        for name in set(OPS) - before:
            del OPS[name]
            if name in vars(Operand):
                delattr(Operand, name)
