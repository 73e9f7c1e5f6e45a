"""What a function states of sizes that depend on values: `al.check`, `al.size_hint`.

In eager mode `check` checks, and `size_hint` does nothing. Rule: DYN-32. Spec:
`specs/data_sizes.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import forbid_number
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry.sizes import as_size
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.user_code import symbols_in

_OF_VALUES = (
    "return the condition and check it outside, or check the arguments before the call. Sizes can "
    "be checked inside, and so can item() of a tensor of ints"
)


def check(condition: object, message: str = "") -> None:
    """Raises ArgumentError unless a condition holds. A compiled function may rely on it then.

    >>> import aotlite as al
    >>> @al.compile(backend="reference")
    ... def first(x):
    ...     found = x[x > 0]
    ...     al.check(found.shape[0] > 0, "no element is positive")
    ...     return found[0] if found.shape[0] > 0 else found.sum()
    >>> first(al.tensor([-1.0, 2.0, 3.0])), first(al.tensor([5.0, 2.0, 3.0]))
    (tensor(2.), tensor(5.))
    >>> first(al.tensor([-1.0, -2.0, -3.0]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    aotlite.ir.errors.ArgumentError: check: no element is positive
    ...
    """
    if isinstance(condition, Tensor):
        forbid_number(condition, "check", _OF_VALUES)
    if not condition:  # of a symbol: asked here, this is an assumption, and no branch of the user's
        told = message or "the condition does not hold, expected one that does"
        raise ArgumentError(f"check: {told}")


def size_hint(size: int, value: int) -> None:
    """States a default for a size that depends on values: a compiled function may ask it then.

    A call in which an answer is another one is captured anew. Costs are computed with `value`.

    >>> import aotlite as al
    >>> @al.compile(backend="reference")
    ... def halved(x):
    ...     found = x[x > 0]
    ...     al.size_hint(found.shape[0], 4)
    ...     return found.sum() / 2 if found.shape[0] > 2 else found.sum()
    >>> halved(al.ones(3)), halved(al.tensor([1.0, -1.0, -1.0]))
    (tensor(1.5), tensor(1.))
    >>> [[guard.text for guard in region.guards] for region in halved.regions()]
    [['u0 > 2'], ['u0 <= 2']]
    """
    given: Any = as_size(size)
    if given is None or type(value) is not int or value < 0:
        raise ArgumentError(
            f"size_hint: it is given {size!r} and {value!r}, expected a size, and a size that it "
            "may have"
        )
    table: Any = given.table if type(given) is SymInt else None
    if table is not None and table.counts is not None:
        names = symbols_in(given)
        table.counts.open -= names
        if names == {table.expression(given)}:
            table.counts.values.update(dict.fromkeys(names, value))
