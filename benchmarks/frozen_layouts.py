"""Measures layouts of frozen weights: what the layout pass of freezing gains, or would (FRZ-5).

    python -m benchmarks.frozen_layouts

For `(x @ w.t()).relu()`, the time with `w` as it is over the time with its transposed copy, by rows
of x and the shape of w; for convolutions of both layouts of the image the time with weights
channels last over the time with contiguous ones. Both are called in turns in one run; the least of
forty times counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import aotlite as al
from benchmarks.common import machine_console, table

SHAPES = ((256, 256), (512, 512), (1024, 1024), (4096, 1024), (1024, 4096))
ROWS = (1, 2, 4, 8, 16, 64)
CONVOLUTIONS = (
    *((1, 16, 32, 32, 3), (4, 32, 16, 64, 3), (1, 64, 14, 64, 1), (8, 3, 32, 16, 5)),
    *((1, 256, 14, 256, 3), (1, 512, 7, 512, 3)),
)
"""Batch, channels, height and width, output channels, kernel size."""


def least(functions: list[Callable[[], object]], count: int = 40) -> list[float]:
    """The least seconds of each function, which are called in turns."""
    found = [float("inf")] * len(functions)
    for _ in range(count):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            found[i] = min(found[i], time.perf_counter() - start)
    return found


def product(rows: int, columns: int, inner: int) -> float:
    """The time of a product with a turned weight over that with its copy."""
    turned = al.compile(lambda x, w: (x @ w.t()).relu(), dynamic=False)
    straight = al.compile(lambda x, w: (x @ w).relu(), dynamic=False)
    x, w = al.randn(rows, inner), al.randn(columns, inner)
    copy = w.t().contiguous()
    a, b = least([lambda: turned(x, w), lambda: straight(x, copy)])
    return a / b


def convolution(image: str, batch: int, channels: int, side: int, out: int, size: int) -> float:
    """The time of a convolution with weights channels last over that with contiguous ones."""
    function = al.compile(lambda x, w: al.conv2d(x, w, padding=size // 2), dynamic=False)
    x, w = al.randn(batch, channels, side, side), al.randn(out, channels, size, size)
    if image == "channels last":
        x = x.contiguous(memory_format=al.channels_last)
    last = w.contiguous(memory_format=al.channels_last)
    a, b = least([lambda: function(x, last), lambda: function(x, w)])
    return a / b


def main() -> None:
    console = machine_console()
    products = table("w.t() over its copy", "w of (n, k)", *[f"{m} rows" for m in ROWS])
    images = ("contiguous", "channels last")
    convolutions = table(
        "weights channels last over contiguous", "convolution", *[f"image {x}" for x in images]
    )
    with al.no_grad():
        for n, k in SHAPES:
            products.add_row(f"({n}, {k})", *[f"{product(m, n, k):.2f}" for m in ROWS])
        for each in CONVOLUTIONS:
            found = [f"{convolution(image, *each):.2f}" for image in images]
            convolutions.add_row(f"{each}", *found)
    console.print(products, convolutions)


if __name__ == "__main__":
    main()
