"""`OpNamespace`: every op as a function `ops.<name>`; printed graphs run in one.

Ground floor. The `call` that a namespace is made with computes each op, or emits its node.
Spec: `specs/graph.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta.text import HOST, device_from_text, dtype_text
from aotlite.ir.op import Op, op_named
from aotlite.ir.op.host_function import HostFunction, host_function_named

NOTHING: Mapping[str, object] = {}
"""No constants."""

_WORDS: Mapping[str, object] = {
    "inf": math.inf,
    "nan": math.nan,
    "math": math,
    **{f"sym_{each.__name__}": each for each in (max, min, abs, round, int, float)},
    **{dtype_text(dtype): dtype for dtype in dtypes.DTYPES},
}


class OpNamespace:
    """The `ops` of a printed graph: each attribute is a function that calls the op of that name.

    It binds its arguments to the op's schema and returns `call(op, args)`. `ops.constant(name,
    meta)` looks a constant up in `constants`, `ops.device(name)` a device in `devices`. `ops.inf`,
    `ops.nan`, dtypes, and Python's functions of sizes are there as well, such as `ops.math`, and
    `sym_item(value, symbol)`, which reads a size from a value.
    Raises ArgumentError for other names.

    >>> ops = OpNamespace(lambda op, args: (op.name, args))
    >>> ops.full(2, ops.inf)
    ('full', ((2,), inf, None, None))
    """

    def __init__(
        self,
        call: Callable[[Op, tuple[Any, ...]], Any],
        constants: Mapping[str, object] = NOTHING,
        devices: Mapping[str, Device] = HOST,
    ) -> None:
        self._call = call
        self._constants = constants
        self._devices = devices

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's protocols look these up, and expect this error
            raise AttributeError(name)
        if name in _WORDS:
            return _WORDS[name]
        op, call = op_named(name), self._call

        def function(*args: object, **kwargs: object) -> Any:
            return call(op, op.bind(args, kwargs))

        function.__name__ = function.__qualname__ = name
        function.__doc__ = str(op.schema)
        function.op = op  # type: ignore[attr-defined]
        setattr(self, name, function)
        return function

    def constant(self, name: str, meta: str) -> Any:
        """The constant of this name. Raises ArgumentError if it was not given."""
        if name not in self._constants:
            known = ", ".join(map(repr, self._constants)) or "none"
            raise ArgumentError(f"constant: name is {name!r}, expected one of those given: {known}")
        return self._constants[name]

    def device(self, name: str) -> Device:
        """The device of this name. Raises ArgumentError if it was not given."""
        return device_from_text(name, self._devices)

    def host_function(self, name: str) -> HostFunction:
        """The function of this name that a graph of this process holds. Raises ArgumentError."""
        return host_function_named(name)

    def sym_item(self, value: Any, name: str) -> int:
        """The number in a 0-d tensor of integers: the value of the symbol of this name (GRA-16)."""
        return int(value.item())

    def phase(self, name: str) -> None:
        """Marks the calls after it as "forward" or "backward". It computes nothing."""
        if name not in ("forward", "backward"):
            raise ArgumentError(f"phase: name is {name!r}, expected 'forward' or 'backward'")
