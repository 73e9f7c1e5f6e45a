"""Matrix products as calls of the runtime library, which divides them among its threads.

Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from aotlite.backends.cpu.emit.calls.shared_steps import Place, SharedCall
from aotlite.backends.loops.program import Gemm, MatrixWindow, Step
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.symbols.proving import Unproved, is_proved

Pointer = Callable[[int], str]
"""From the number of a buffer to the C text of its address."""

BATCH_AXES = 4
"""The batch axes of the C struct `al_product`; further ones become C loops."""


Geometry = tuple[object, ...]


@attrs.frozen
class SharedProducts:
    """The records of matrix products that several steps have (REG-2)."""

    names: Mapping[str, str]
    """The C name of each record, by its text."""
    found: Mapping[Geometry, tuple[str, bool]]
    """Of products by their geometry: the name, and whether the operands change places."""


def shared_products(steps: Iterable[Step], stem: str) -> SharedProducts:
    """Returns the records of the products that several steps have."""
    first, uses = dict[Geometry, Gemm](), Counter[Geometry]()
    for step in steps:
        if type(step) is Gemm:
            geometry = _geometry(step)
            first.setdefault(geometry, step)
            uses[geometry] += 1
    records = {geometry: _record(step) for geometry, step in first.items()}
    count = Counter[str]()
    for geometry, text in records.items():
        count[text] += uses[geometry]
    several = [text for text, number in count.items() if number > 1 and text]
    names = {text: f"{stem}_product{k}" for k, text in enumerate(several)}
    found = {
        geometry: (names[text], _is_turned(first[geometry]))
        for geometry, text in records.items()
        if text in names
    }
    return SharedProducts(names, found)


def _geometry(step: Gemm) -> Geometry:
    """Returns all of a product but its buffers, and places in them."""
    a, b, c = step.a, step.b, step.c
    strides = a.batch, a.row, a.column, b.batch, b.row, b.column, c.batch, c.row, c.column
    return step.batch, step.m, step.n, step.k, *strides


def _record(step: Gemm) -> str:
    """Returns the C text of the record of a product, on which its buffers have no influence; empty
    for a product in loops."""
    a, b, c, m, n = _as_called(step)
    return (
        "" if len(step.batch) > BATCH_AXES else " ".join(_product(step, (m, n), (a, b, c), 0)[1:-1])
    )


def shared_gemm(
    step: Gemm,
    dtype: DType,
    place: Callable[[int], Place],
    pointer: Callable[[int], str],
    shared: SharedProducts,
) -> SharedCall | None:
    """Returns the call of a product whose record several steps have; None if it has its own.
    `place` returns the slot of a buffer and bytes behind it, `pointer` the C text of its address.
    """
    name, is_turned = shared.found.get(_geometry(step), ("", False))
    if not name:
        return None
    windows = (step.b, step.a, step.c) if is_turned else (step.a, step.b, step.c)
    kind = "f64" if dtype is dtypes.float64 else "f32"
    places = []
    for window in windows:
        slot, behind = place(window.buffer)
        places.append((slot, behind + window.start * dtype.itemsize))

    def run(a: str, b: str, c: str) -> str:
        function = "dgemm_batched" if kind == "f64" else "sgemm_batched"
        return f"runtime->{function}(&{name}, 1, {a}, {b}, 0, {c});"

    def lines() -> list[str]:
        return [run(*[f"(m_{kind} *){pointer(w.buffer)} + {w.start}" for w in windows])]

    body = run("own[0]", "own[1]", "own[2]")
    return SharedCall(step.name, f"{name}_{kind}_on", body, tuple(places), lines)


def _is_turned(step: Gemm) -> bool:
    """Whether C is column-major, and BLAS writes rows: C^T = B^T A^T."""
    return _leading(step.c, step.m, step.n)[0]


def _as_called(step: Gemm) -> tuple[MatrixWindow, MatrixWindow, MatrixWindow, int, int]:
    a, b, c, m, n = step.a, step.b, step.c, step.m, step.n
    if _is_turned(step):
        a, b, c, m, n = _transposed(b), _transposed(a), _transposed(c), n, m
    return a, b, c, m, n


def gemm_lines(step: Gemm, dtype: DType, pointer: Callable[[int], str]) -> list[str]:
    """Returns the C lines of a product; `pointer` returns the C text of a buffer's address."""
    a, b, c, m, n = _as_called(step)
    extra = max(len(step.batch) - BATCH_AXES, 0)
    loops = [f"for (i64 g{k} = 0; g{k} < {step.batch[k]}; ++g{k}) {{" for k in range(extra)]
    kind = "f64" if dtype is dtypes.float64 else "f32"
    places = [f"(m_{kind} *){pointer(w.buffer)} + {_offset(w, extra)}" for w in (a, b, c)]
    function = "dgemm_batched" if kind == "f64" else "sgemm_batched"
    product = _product(step, (m, n), (a, b, c), extra)
    call = f"runtime->{function}(&p, 1, {places[0]}, {places[1]}, 0, {places[2]});"
    sizes = [each for each in (*step.batch, m, n) if type(each) is not int]
    some = f"if ({' && '.join([f'{each} > 0' for each in sizes])}) {{" if sizes else "{"
    return [f"/* {step.name} */", *loops, some, *product, call, "}", *["}" for _ in loops]]


def _product(
    step: Gemm,
    shape: tuple[int, int],
    windows: tuple[MatrixWindow, MatrixWindow, MatrixWindow],
    extra: int,
) -> list[str]:
    (m, n), (a, b, c), k = shape, windows, step.k
    leading = [_leading(a, m, k), _leading(b, k, n), _leading(c, m, n)]
    extents = _padded(step.batch[extra:], 1)
    strides = [_padded(each.batch[extra:], 0) for each in windows]
    return [
        "const al_product p = {",
        f"{int(leading[0][0])}, {int(leading[1][0])}, {m}, {n}, {k},",
        f"{leading[0][1]}, {leading[1][1]}, {leading[2][1]},",
        ", ".join([extents, *strides]),
        "};",
    ]


def _padded(numbers: Sequence[int], rest: int) -> str:
    filled = [*[rest] * (BATCH_AXES - len(numbers)), *numbers]
    return "{" + ", ".join(map(str, filled)) + "}"


def _leading(window: MatrixWindow, rows: int, columns: int) -> tuple[bool, int | str]:
    """Returns (whether a window is column-major, its leading dimension)."""
    if is_symbolic((window.row, window.column, rows, columns)):
        return _leading_sized(window, rows, columns)
    if window.column == 1 or columns == 1:
        if rows == 1 or window.row >= columns:
            return False, max(window.row if rows > 1 else columns, columns, 1)
    return True, max(window.column if columns > 1 else rows, rows, 1)


def _leading_sized(window: MatrixWindow, rows: int, columns: int) -> tuple[bool, str]:
    """`_leading` of symbolic sizes: that of a matrix of several rows and columns."""
    for known in (is_proved, bool):  # what is not proved is demanded
        if window.column == 1 and known(window.row >= columns):
            return False, f"most({window.row}, 1)"
        if window.row == 1 and known(window.column >= rows):
            return True, f"most({window.column}, 1)"
    raise Unproved(f"the leading dimension of a matrix with strides {window.row}, {window.column}")


def _transposed(window: MatrixWindow) -> MatrixWindow:
    return MatrixWindow(window.buffer, window.start, window.batch, window.column, window.row)


def _offset(window: MatrixWindow, extra: int) -> str:
    parts = [f"g{k} * {window.batch[k]}" for k in range(extra)]
    return " + ".join([str(window.start), *parts])
