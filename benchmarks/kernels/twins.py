"""Twins: random variants of the table's rows, for which nothing is tuned, drawn by a seed.

The family of a row varies the op, the axis, the shape, the dtype and the layout. A
twin is about as large as its row (half to one and a half times), and sizes are rarely round.
A twin is named ROW~INDEX; the same seed gives the same twins everywhere.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs

from benchmarks.kernels.adamw import AdamW
from benchmarks.kernels.columns import ROWS, Measured
from benchmarks.kernels.digits import Digits
from benchmarks.kernels.libraries import Library
from benchmarks.kernels.rows import (
    FORWARD,
    LOW,
    SQUARE,
    Input,
    Row,
    Shape,
    along,
    block_row,
    classified_row,
    matrix_row,
    mlp_row,
    norm_row,
    reduced,
    scaled,
    stencil,
    strided_row,
)

TWINS = 5
DTYPES = ("float32", "float32", "float64")
"""One in three is of the other dtype."""
OPS = ("gelu", "silu", "tanh", "sigmoid", "softplus", "exp", "sin")

Family = Callable[[str, random.Random], Measured]


def row_of(name: str, seed: int = 0) -> Measured:
    """The row of a name, or the twin of ROW~INDEX."""
    base, _, index = name.partition("~")
    if not index:
        return next(row for row in ROWS if row.name == base)
    return FAMILIES[base](name, random.Random(f"{name} {seed}"))


def twins_of(row: Measured, count: int = TWINS) -> Iterator[str]:
    """The names of a row's twins."""
    for index in range(count):
        yield f"{row.name}~{index}"


def twin_text(row: Measured) -> str:
    """A twin in one line: dtype, shapes, and arguments of the function."""
    if not isinstance(row, Row):
        given = attrs.asdict(row)
        shapes = given.pop("shapes", None)
        many = f"{len(shapes)} shapes from {shapes[0]}" if shapes else ""
        names = ("batch", "channels", "kernel", "dropout")
        return f"{row.dtype} {many}" + str({k: given[k] for k in names if k in given})
    layout, body = "", row.body
    if isinstance(body, partial) and body.func is _at_rows:
        layout, body = " transposed", body.args[0]
    given = body.keywords if isinstance(body, partial) else {}
    shapes = " ".join("x".join(map(str, each.shape)) for each in row.inputs)
    return f"{row.dtype}{layout} {shapes} {given}"


# ---------------------------------------------------------------------------------------- drawing
def _near(draw: random.Random, size: int) -> int:
    """About that large: half to one and a half times."""
    return draw.randint(max(1, size // 2), size + size // 2)


def _shape(draw: random.Random, shape: Shape) -> Shape:
    """About as many elements, in another proportion."""
    rows = _near(draw, shape[0])
    return rows, max(2, _near(draw, shape[0] * shape[1]) // rows)


def _at_rows(body: Callable[..., Any], lib: Library, x: Any, *more: Any) -> Any:
    """A function of the transposed matrix: the same work in another layout."""
    return body(lib, x.T, *more)


def _maybe_transposed(draw: random.Random, body: Callable[..., Any]) -> Callable[..., Any]:
    return partial(_at_rows, body) if draw.random() < 0.3 else body


# --------------------------------------------------------------------------------------- families
def _scaled(size: int) -> Family:
    """Other op and dtype; a vector, or a matrix with w and b along its rows or down its columns."""

    def family(name: str, draw: random.Random) -> Row:
        op, form = draw.choice(OPS), draw.choice(("vector", "rows", "columns"))
        rows = draw.choice((7, 64, 100))
        length = _near(draw, size)
        whole = (length,) if form == "vector" else (rows, max(1, length // rows))
        part = {"vector": whole, "rows": whole[-1:], "columns": (*whole[:1], 1)}[form]
        inputs = Input(whole), Input(part), Input(part), Input(whole)
        dtype = draw.choice(DTYPES)
        return Row(name=name, body=partial(scaled, op=op), inputs=inputs, dtype=dtype)

    return family


def _softmax(name: str, draw: random.Random) -> Row:
    """softmax or log_softmax, of either axis."""
    body = partial(along, word=draw.choice(("softmax", "log_softmax")), axis=draw.choice((0, 1)))
    return matrix_row(name, body, _shape(draw, LOW), dtype=draw.choice(DTYPES))


def _norm(name: str, draw: random.Random) -> Row:
    """layer_norm or rms_norm."""
    word = draw.choice(("layer_norm", "rms_norm"))
    return norm_row(name, word, _shape(draw, LOW), dtype=draw.choice(DTYPES))


def _classified(name: str, draw: random.Random) -> Row:
    """Other shapes, from few classes to many."""
    classes = draw.choice((10, 100, 1000, 5000, 20000))
    rows = max(1, _near(draw, LOW[0] * LOW[1]) // classes)
    return classified_row(name, (rows, classes), dtype=draw.choice(DTYPES))


def _reduced(axis: int | None) -> Family:
    """sum, mean, amax or logsumexp, of the row's axis; of the transposed matrix, now and then."""

    def family(name: str, draw: random.Random) -> Row:
        op = draw.choice(("sum", "mean", "amax", "logsumexp"))
        body = _maybe_transposed(draw, partial(reduced, op=op, axis=axis))
        shape, dtype = _shape(draw, SQUARE), draw.choice(DTYPES)
        return matrix_row(name, body, shape, dtype=dtype, directions=(FORWARD,))

    return family


def _stencil(name: str, draw: random.Random) -> Row:
    """Two to six other shifts, of up to three places."""
    places = [(s, a) for s, a in itertools.product((-3, -2, -1, 1, 2, 3), (0, 1))]
    shifts = tuple(draw.sample(places, draw.randint(2, 6)))
    body = partial(stencil, shifts=shifts, middle=float(-len(shifts)))
    return matrix_row(name, body, _shape(draw, SQUARE), dtype=draw.choice(DTYPES))


def _strided(name: str, draw: random.Random) -> Row:
    """Steps of 2 to 4, across or down."""
    step, axis = draw.choice((2, 3, 4)), draw.choice((0, 1))
    return strided_row(name, _shape(draw, SQUARE), step, axis, dtype=draw.choice(DTYPES))


def _mlp(name: str, draw: random.Random) -> Row:
    """Other widths, depth, batch, function between layers."""
    inner = [_near(draw, 512) for _ in range(draw.randint(1, 3))]
    widths = (_near(draw, 784), *inner, draw.choice((10, 26, 100)))
    op = draw.choice(("relu", "tanh", "gelu", "silu"))
    return mlp_row(name, _near(draw, 256), widths, op, dtype=draw.choice(DTYPES))


def _block(name: str, draw: random.Random) -> Row:
    """Other batch, time, width and heads."""
    heads = draw.choice((2, 4, 8))
    width = heads * draw.choice((32, 48, 64))
    batch, time = draw.choice((2, 4, 12)), _near(draw, 128)
    return block_row(name, batch, time, width, heads, dtype=draw.choice(DTYPES))


def _digits(name: str, draw: random.Random) -> Digits:
    """Other batch, channels, kernel, part that is dropped."""
    return Digits(
        name=name,
        batch=_near(draw, 64),
        channels=tuple(draw.choice((8, 12, 16, 24, 32)) for _ in range(draw.choice((1, 2, 2, 3)))),
        kernel=draw.choice((3, 5)),
        dropout=draw.choice((0.0, 0.25, 0.5)),
        dtype=draw.choice(DTYPES),
    )


def _adamw(name: str, draw: random.Random) -> AdamW:
    """10^7 numbers in another number of tensors."""
    count = draw.choice((1, 4, 30, 100))
    sizes = [_near(draw, 10**7 // count) for _ in range(count)]
    shapes: tuple[Shape, ...] = tuple((max(1, size // 64), 64) for size in sizes)
    return AdamW(name=name, shapes=shapes, dtype=draw.choice(DTYPES))


FAMILIES: dict[str, Family] = {
    "gelu 2^14": _scaled(2**14),
    "gelu 2^20": _scaled(2**20),
    "gelu 2^24": _scaled(2**24),
    "softmax": _softmax,
    "layer norm": _norm,
    "cross-entropy": _classified,
    "sum 0": _reduced(0),
    "sum 1": _reduced(1),
    "sum all": _reduced(None),
    "Laplacian": _stencil,
    "strided": _strided,
    "MLP": _mlp,
    "transformer": _block,
    "CNN": _digits,
    "AdamW": _adamw,
}
"""Row of the table -> its family."""
