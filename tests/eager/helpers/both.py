"""Helpers of tests that run on aotlite and on PyTorch alike (fixture `lib`).

Such a test states the results of both; texts of errors are aotlite's.
"""

import pytest

import aotlite as al


def raises(lib, kind, text):
    """A block that raises this builtin class; aotlite's own error with this text."""
    if lib is not al:
        return pytest.raises(kind)
    return pytest.raises(al.AotliteError, match=text)


def leaf(lib, *shape, value=1.0):
    """A leaf that requires grad, filled with `value`."""
    return lib.full(shape or (2,), value, dtype=lib.float64, requires_grad=True)


def values(*tensors):
    """The numbers of tensors as lists; None for None."""
    return [None if t is None else t.detach().tolist() for t in tensors]
