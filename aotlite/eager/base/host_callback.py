"""`callback`: an effect that calls a Python function with the values of tensors.

Its public name is `aotlite.effects.callback`. Anomaly mode also uses it, to check gradients of a
backward inside a compiled function. Rules: TOK-1, TOK-6. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from aotlite.eager.base.modes import STATE, modes_kept, recording
from aotlite.eager.base.tensor import Tensor, apply_op
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.op.host_function import host_function
from aotlite.ir.ops.effects import HOST_CALLBACK, metas_of
from aotlite.ir.symbols.python_number import plain


def callback(function: Callable[..., object], *tensors: Tensor, results: Any = ()) -> Any:
    """Calls `function` with copies of the tensors' values, as NumPy arrays on the host.

    `results` declares its results: a meta or its text, such as "f32[2, 3]", for one array, which is
    returned as a tensor; a tuple or list of them for several; an empty one for none. Results are on
    the device of the first tensor, and have no gradient. The function runs without grad mode.

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
    if STATE.recorder is not None:
        STATE.recorder.data.keep(function)
    single = isinstance(results, (str, TensorMeta)) and results != ""
    texts = [_text(each) for each in ((results,) if single else results)]
    held = host_function(function, on_host(function))
    args = HOST_CALLBACK.bind((held, tensors, "; ".join(texts)), {})
    found = apply_op(HOST_CALLBACK, args)
    if single:
        return found[0]
    return found if texts else None


def _text(result: object) -> str:
    """The text of the meta of a declared result. Raises ArgumentError for anything else."""
    text = result
    if isinstance(result, TensorMeta):
        text = meta_text(tensor_meta(plain(result.shape), plain(result.stride), result.dtype))
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


def on_host(function: Callable[..., object]) -> Callable[..., Any]:
    """The function as an effect calls it: in the same modes in eager and compiled code."""

    @wraps(function)
    def call(*args: object) -> Any:
        before = STATE.watch
        STATE.watch = None
        try:
            with modes_kept(), recording(None):
                STATE.grad_mode = False
                return _plain(function(*args))
        finally:
            STATE.watch = before

    return call


def _plain(found: object) -> object:
    """The result of a host function, with tensors as arrays."""
    if isinstance(found, Tensor):
        return found._data
    if isinstance(found, (tuple, list)):
        return tuple([_plain(each) for each in found])
    return found
