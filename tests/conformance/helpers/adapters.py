"""Adapters for the tests of isolation: without methods, with hangs, crashes or output."""

import ctypes
import os
import sys
import time

import numpy as np

from aotlite.conformance import Adapter
from aotlite.conformance.adapters.numpy import NumPy
from aotlite.conformance.models import memory_model, random_chains
from aotlite.ir.errors import DeviceError


class Nothing(Adapter):
    """A library without any op."""


class Hanging(NumPy):
    """`diagonal` of two or more rows hangs."""

    name = "hanging"

    def diagonal(self, a):
        while len(a) > 1:
            time.sleep(0.01)
        return a.diagonal()


class Crashing(NumPy):
    """A read through a null pointer."""

    name = "crashing"

    def diagonal(self, a):
        return ctypes.string_at(0)


class Leaving(NumPy):
    """Ends the process in the middle."""

    name = "leaving"

    def diagonal(self, a):
        os._exit(3)


class Printing(NumPy):
    """Writes to standard output, as some libraries do."""

    name = "printing"

    def diagonal(self, a):
        print("hello")
        os.write(1, b'{"done": true}\n')
        return a.diagonal()


class Silent(NumPy):
    """Fails before it can be asked."""

    def __init__(self):
        sys.exit("no license")


class Slow(NumPy):
    """Takes too long to start."""

    def __init__(self):
        time.sleep(600)


class Deviceless(NumPy):
    """Needs a device that is absent."""

    def __init__(self):
        raise DeviceError("conformance: no device is there, expected one")


class Mine(NumPy):
    """The user's own library, with a mistake."""

    name, version = "mine", "1.2"

    def narrow(self, a, dim, start, length):
        return np.take(a, range(start, start + length), dim)


NOT_AN_ADAPTER = 3


class Few(Adapter):
    """An array class without `+=`, item assignment, `out=`, dtypes and pickles."""

    name = "few"
    from_list = lambda self, values, dtype: Cells(np.array(values, dtype))
    zeros = lambda self, shape, dtype: Cells(np.zeros(shape, dtype))
    to_list = lambda self, a: a.inner.tolist()
    narrow = lambda self, a, dim, start, length: Cells(NumPy().narrow(a.inner, dim, start, length))
    fill_ = lambda self, a, number: a.inner.fill(number)
    clone = lambda self, a: Cells(a.inner.copy())

    def add_(self, a, b):
        np.add(a.inner, b.inner, out=a.inner, casting="unsafe")


class Cells:
    """An array of `Few`."""

    def __init__(self, inner):
        self.inner = inner

    def __reduce_ex__(self, protocol):
        raise TypeError("cells cannot be pickled")


class Speechless(NumPy):
    """Returns None in place of arrays, and raises errors without a text."""

    def narrow(self, a, dim, start, length):
        return None

    def transpose(self, a, dim0, dim1):
        class Wordless(Exception):
            def __str__(self):
                raise ValueError("no words")

        raise Wordless

    def unsqueeze(self, a, dim):
        raise ValueError("byte \udc80")


class Forking(NumPy):
    """Leaves a process behind that holds the open files."""

    def diagonal(self, a):
        child = os.fork()
        if not child:
            time.sleep(600)
        with open(os.environ["AOTLITE_TEST_FORKED"], "a") as file:
            print(child, file=file)
        os._exit(3)


class Unwell(NumPy):
    """NumPy, with a suite that ends the process in a comparison."""

    def __init__(self):
        memory_model.View.to_list = lambda view: os._exit(4)


class Stuck(NumPy):
    """NumPy, with a suite that hangs while it makes cases."""

    def __init__(self):
        random_chains.draw = lambda source, length: time.sleep(600)  # type: ignore[return-value]


class Leaver(NumPy):
    """NumPy, with a suite that raises an exception that is no `Exception`."""

    def __init__(self):
        plant = "def to_list(view):\n    raise SystemExit(5)"
        space = {}
        exec(compile(plant, memory_model.__file__, "exec"), space)
        memory_model.View.to_list = space["to_list"]


class Misspelt(NumPy):
    """Uses an undefined name."""

    name = "misspelt"

    def narrow(self, a, dim, start, length):
        return nump.take(a, range(start, start + length), dim)  # noqa: F821
