"""Rows of parametrized tests of which the usual run takes some, and `pytest -m long` all others."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], every: int = 2) -> list[Any]:
    """Each value as a row; all but every second one (or third, ...) are long.

    For tests of a whole table, where a fault of the mechanism shows in many rows.
    """
    return [
        pytest.param(value, marks=[pytest.mark.long] if number % every else [])
        for number, value in enumerate(values)
    ]
