"""Makes `aotlite/data/digits.npz` from the table in scikit-learn's wheel.

    pip download scikit-learn --no-deps -d download
    unzip -j download/*.whl sklearn/datasets/data/digits.csv.gz -d download
    python tools/make_digits.py download/digits.csv.gz

The same table gives the same bytes: NumPy writes no time into the archive.
"""

import sys
from pathlib import Path

import numpy as np

TARGET = Path(__file__).parents[1] / "aotlite" / "data" / "digits.npz"


def main(table: str) -> None:
    rows = np.loadtxt(table, delimiter=",")
    pixels, labels = rows[:, :64], rows[:, 64]
    if rows.shape != (1797, 65) or pixels.min() < 0 or pixels.max() > 16:
        raise SystemExit(f"{table}: not the digits table; shape {rows.shape}, expected (1797, 65)")
    images = pixels.reshape(-1, 8, 8).astype(np.uint8)
    np.savez_compressed(TARGET, images=images, labels=labels.astype(np.uint8))


if __name__ == "__main__":
    main(*sys.argv[1:])
