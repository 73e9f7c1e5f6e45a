"""Scripts: random programs as Python text, played by one engine or the other, line by line.

A script defines a function, and then is a user at work: makes tensors, calls the function again
and again, writes, goes backward, rebinds what the function reads. Being text, it prints as it is.
`play` runs it and notes after each line what could be observed. Rules: GEN-11, GEN-12, GEN-13.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import count
from math import inf, nan
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite import nn, optim
from aotlite.nn import functional
from tests.end_to_end.helpers.observing import View, observe

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

PRELUDE = """\
import numpy as np
import aotlite as al
from aotlite import nn, optim
from aotlite.nn import functional as F
from tests.end_to_end.helpers.scripts import G, L, N, T, W, inf, nan, results

al.manual_seed(3)
"""


# ------------------------------------------------------------------- what scripts call by name
def N(seed: int, *shape: int, dtype: Any = al.float64) -> np.ndarray:
    """An ndarray of small numbers, none of them 0 but for bools, other ones for other seeds."""
    numbers = np.arange(np.prod(shape, dtype=int))
    numbers = (numbers * 5 + seed * 3) % 7 - 3
    numbers = np.where(numbers == 0, 4, numbers)
    if dtype is al.bool_:
        numbers = numbers > 0
    if dtype is al.uint8:
        numbers = abs(numbers)
    values = numbers + 1j * numbers[::-1] if dtype.is_complex else numbers
    return values.reshape(shape).astype(al.zeros(1, dtype=dtype).numpy().dtype)


def T(seed: int, *shape: int, dtype: Any = al.float64, grad: bool = False) -> Any:
    """A tensor of the same numbers, on memory of its own."""
    return al.from_numpy(N(seed, *shape, dtype=dtype)).clone().requires_grad_(grad)


def L(values: Any, *stride: int, dtype: Any, grad: bool = False, scale: float = 1) -> Any:
    """A tensor of these numbers that lies in memory as the strides say."""
    made = al.tensor(values, dtype=dtype)
    made = made if scale == 1 else (made * scale).to(dtype)
    if stride and stride != made.stride():
        made = al.empty_strided(made.shape, stride, dtype=dtype).copy_(made)
    return made.requires_grad_(grad)


def W(tensor: Any, size: int) -> Any:
    """The tensor with the dimensions of this size one longer, their last parts repeated."""
    made = tensor.detach().clone()
    for dim in [dim for dim, length in enumerate(tensor.shape) if length == size]:
        made = al.cat([made, made.narrow(dim, size - 1, 1)], dim)
    made.requires_grad_(tensor.requires_grad)
    return made if tensor.is_leaf else made.clone()


def G(tensor: Any, seed: int = 1, how: str = "plain") -> Any:
    """A gradient for a tensor: also in other layouts, on shared memory, or with a history."""
    made = T(seed, *tensor.shape, dtype=tensor.dtype)
    match how:
        case "turned" if made.ndim > 1:
            return made.transpose(0, -1).contiguous().transpose(0, -1)
        case "gaps":
            return al.stack([made, made], -1)[..., 0]
        case "expanded":
            return al.ones((), dtype=tensor.dtype).expand(*tensor.shape)
        case "tracked":
            return made.requires_grad_()
        case "itself":
            return tensor.detach()
        case _:
            return made


def results(value: Any) -> list[Any]:
    """The tensors that require grad among what a function returned."""
    return [tensor for tensor in tensors_in(value) if tensor.requires_grad]


def tensors_in(value: Any) -> list[Any]:
    """The tensors in a value's containers."""
    match value:
        case al.Tensor():
            return [value]
        case list() | tuple():
            return [tensor for item in value for tensor in tensors_in(item)]
        case dict():
            return [tensor for item in value.values() for tensor in tensors_in(item)]
        case _:
            return []


# ------------------------------------------------------------------------------------ the data
@attrs.frozen
class Line:
    """One statement of the user. Kinds: make, call, backward, other."""

    kind: str
    text: str


@attrs.frozen
class Script:
    """`outside` is run first; then the function is defined and wrapped; then the session."""

    outside: tuple[str, ...]
    head: str
    body: tuple[str, ...]
    result: str
    session: tuple[Line, ...]
    closes_over: tuple[str, ...] | None = None
    """Names that are cells of the function; None: they are globals."""

    def definition(self) -> str:
        """The source of the function."""
        lines = [self.head, *_indented([*self.body, f"return {self.result}"])]
        if self.closes_over is not None:
            names = ", ".join(self.closes_over)
            lines = [f"def make({names}):", *_indented([*lines, "return f"]), f"f = make({names})"]
        return "\n".join([*lines, "f = wrap(f)"]) + "\n"

    def __str__(self) -> str:
        session = "\n".join(line.text for line in self.session)
        outside = "".join(f"{line}\n" for line in self.outside)
        return f"{PRELUDE}wrap = al.compile\n\n{outside}\n{self.definition()}\n{session}\n"


def _indented(lines: list[str]) -> list[str]:
    return ["    " + part for line in lines for part in line.split("\n")]


# --------------------------------------------------------------------------------- the playing
HELPERS: dict[str, Any] = {
    "np": np, "al": al, "nn": nn, "optim": optim, "F": functional,
    "G": G, "L": L, "N": N, "T": T, "W": W, "results": results, "inf": inf, "nan": nan,
}  # fmt: skip
_NUMBERS = count()


@attrs.define
class Moment:
    """The error of a line, and the view after it."""

    error: Exception | None
    view: View


@attrs.define
class Log:
    """The record of a run."""

    start: View
    moments: list[Moment] = attrs.field(factory=list)
    function: Any = None


def run_text(text: str, scope: dict[str, Any]) -> None:
    """Executes statements; tracebacks show their lines, and functions have a source."""
    file = f"<script {next(_NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        exec(compile(text, file, "exec"), scope)
    finally:
        del linecache.cache[file]


def new_scope(wrap: Wrap) -> dict[str, Any]:
    """The variables with which a script begins."""
    al.manual_seed(3)
    return {"__name__": "script", "wrap": wrap, **HELPERS}


def play(script: Script, wrap: Wrap, *, until: int | None = None) -> Log:
    """Runs a script to its end, to line `until`, or to the first call or backward that raises."""
    scope = new_scope(wrap)
    for text in (*script.outside, script.definition()):
        run_text(text, scope)
    log = Log(observe(scope), function=scope["f"])
    with al.enable_grad():
        for line in script.session[:until]:
            error = _error_of(line, scope)
            log.moments.append(Moment(error, observe(scope)))
            if error is not None and line.kind in ("call", "backward"):
                break
    return log


def _error_of(line: Line, scope: dict[str, Any]) -> Exception | None:
    try:
        run_text(line.text, scope)
    except Exception as error:
        error.__traceback__ = None  # whose frames would keep tensors alive
        return error
    return None


def eager_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is, an object of its own as the compiled one is."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return run


# ------------------------------------------------------------------------------- the shrinking
def shrunk(script: Script, fails: Callable[[Script], bool]) -> Script:
    """A script with fewer lines that still fails. `fails` must be False for scripts that do not
    run, so that nothing is dropped that is needed."""
    smaller = True
    while smaller:
        smaller = False
        for field in ("session", "body", "outside"):
            for i in reversed(range(len(getattr(script, field)))):
                lines = getattr(script, field)
                if i >= len(lines):
                    continue
                tried = attrs.evolve(script, **{field: lines[:i] + lines[i + 1 :]})
                if fails(tried):
                    script, smaller = tried, True
    return script
