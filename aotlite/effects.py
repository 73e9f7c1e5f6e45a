"""Effects: what a program does besides computing, each thing once and in order, compiled or not.

`print` and `callback` are the built-in ones; `aotlite.register_op(..., effect="name")` declares
others. In a compiled function they happen at each call, and not while it is compiled.
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
    """Prints a text with the values that the tensors have now; fields are `{}`, `{0}`, `{0:.3f}`.

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
    """A block in which compiled code lets an effect of its graph happen by means of its own.

    `node` is the call `with_effect_...` of the graph. Code that calls the kernel of the op, or runs
    the graph, has no use for this: there it is said already. Raises TokenError where it is not the
    effect's turn.

    >>> import aotlite as al
    >>> def compiler(graph):
    ...     (told,) = [node for node in graph.calls if node.target.name.startswith("with_effect")]
    ...     def run(x):
    ...         with happening(told):
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
