"""Effects: what a program does besides computing, each thing once and in order, compiled or not.

`print` and `callback` are the built-in ones; `aotlite.register_op(..., effect="name")` declares
others. In a compiled function they happen at each call, and not while it is compiled.
Spec: `specs/tokens.md`; how to use them: `docs/effects.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from aotlite.eager.dispatch import dispatch
from aotlite.eager.effects import on_host
from aotlite.eager.tensor import Tensor
from aotlite.ir import ledger
from aotlite.ir.effects import TokenOp, numbered
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Node
from aotlite.ir.host_function import host_function
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.effects import HOST_CALLBACK, PRINT, metas_of
from aotlite.ir.printer import meta_text

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


def callback(function: Callable[..., Any], *tensors: Tensor, results: Any = ()) -> Any:
    """Calls `function` on the host with copies of the tensors' values, as arrays of NumPy.

    `results` says what it gives: a meta or its text, such as "f32[2, 3]", for one array, which
    comes back as a tensor; a tuple or list of them for several, which come back as a tuple; nothing
    for nothing. Results are on the device of the first tensor, and have no gradient. The function
    runs without grad mode.

    >>> import aotlite as al
    >>> seen = []
    >>> def note(array):
    ...     seen.append(array.sum().item())
    ...     return array + 1
    >>> f = al.compile(lambda x: al.effects.callback(note, x * 2, results="f32[2]") * 10)
    >>> f(al.ones(2)), f(al.zeros(2)), seen
    (tensor([30., 30.]), tensor([10., 10.]), [4.0, 0.0])
    """
    if not callable(function):
        raise ArgumentError(f"callback: the function is {function!r}, expected a function")
    single = isinstance(results, (str, TensorMeta)) and results != ""
    texts = [_text(each) for each in ((results,) if single else results)]
    held = host_function(function, on_host(function))
    args = HOST_CALLBACK.bind((held, tensors, "; ".join(texts)), {})
    found = dispatch(HOST_CALLBACK, args)
    if single:
        return found[0]
    return found if texts else None


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
    return ledger.happening(op.effect, numbered(node), op.of)


def _text(result: Any) -> str:
    """The text of what a callback gives. Raises ArgumentError for what says no such thing."""
    text = result
    if isinstance(result, TensorMeta):
        text = meta_text(tensor_meta(result.shape, result.stride, result.dtype))
    try:
        if isinstance(text, str) and len(metas_of(text)) == 1:
            return text
    except ValueError:
        pass
    raise noted(
        ArgumentError(
            f"callback: argument 'results' has {result!r}, expected a meta, or the text of one "
            "such as 'f32[2, 3]'"
        ),
        "`aotlite.ir.meta.tensor_meta` makes metas; dtypes are f32, f64, i64, bool, ...",
    )
