"""`cupy_table`: the names that CuPy has, with the arguments of its functions.

Ground floor. `cupy.json` is made from CuPy itself, by `tools/cupy_table.py`. For a ufunc it has the
loops and the dtypes of `at`, for another function the parameters.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def cupy_table() -> dict[str, Any]:
    """CuPy's names: ufunc -> its loops; function -> its parameters.

    >>> cupy_table()["amax"]
    {'parameters': 'a, axis=None, out=None, keepdims=False'}
    """
    text = Path(__file__).with_name("cupy.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
