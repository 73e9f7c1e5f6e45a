"""Ordered effects: `print` and `callback` happen once and in order, in eager and compiled code.

`aotlite.register_op(..., effect="name")` declares further ones. In a compiled function an effect
happens at each call, and not at compile time.
Spec: `specs/tokens.md`; how to use them: `docs/effects.md`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from aotlite.eager.base.host_callback import callback
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.effects import TokenOp, execution_record
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Node
from aotlite.ir.graph.effect_chains import numbered
from aotlite.ir.ops.effects import PRINT

__all__ = ["callback", "happening", "print"]


def print(format: str, *tensors: Tensor) -> None:
    """Prints a format string with the tensors' current values; fields are `{}`, `{0}`, `{0:.3f}`.

    >>> import aotlite as al
    >>> @al.compile
    ... def f(x):
    ...     y = x * 2
    ...     al.effects.print("y is {}, its sum {:.1f}", y, y.sum())
    ...     return y + 1
    >>> f(al.ones(2))
    y is [2. 2.], its sum 4.0
    tensor([3., 3.])
    """
    dispatch(PRINT, PRINT.bind((format, tensors), {}))


def happening(node: Node) -> AbstractContextManager[None]:
    """A block in which a backend runs an effect of its graph by its own code.

    It reports the effect, so that order and count are checked. `node` is the graph's
    `with_effect_...` call. A backend that calls the op's kernel, or runs the graph, does not need
    it: that reports the effect itself. Raises TokenError if it is not the effect's turn.

    >>> import aotlite as al
    >>> def compiler(graph):
    ...     (effect,) = [node for node in graph.calls if node.target.name.startswith("with_effect")]
    ...     def run(x):
    ...         with happening(effect):
    ...             builtins.print("by other means:", x)
    ...         return [x * 2]
    ...     return run
    >>> import builtins
    >>> def f(x):
    ...     al.effects.print("x is {}", x)
    ...     return x * 2
    >>> al.aot_function(f, compiler)(al.ones(2)).tolist()
    by other means: [1. 1.]
    [2.0, 2.0]
    """
    op = node.target
    if not isinstance(op, TokenOp) or not op.effect:
        raise ArgumentError(
            f"happening: the node is {node!r}, expected a call with_effect_... of a pure graph"
        )
    return execution_record.happening(op.effect, numbered(node), op.of)
