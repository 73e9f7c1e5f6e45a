"""Functions that compile badly, for tests of the fuzzer.

They are given by name: "tests.testing.helpers.planted_compilers:name".
"""

import os
import random
import time

import aotlite as al
from aotlite.pipeline import options as defaults

# As in tests: a worker that imports this compiles many programs, and runs each once.
defaults.DEFAULT_BACKEND = "reference"


def copying(function, **options):
    """Returns copies of views of the first argument."""
    compiled = al.compile(function, **options)

    def call(*args):
        return [x.clone() if _is_view(x, args) else x for x in compiled(*args)]

    return call


def _is_view(value, args):
    return isinstance(value, al.Tensor) and value.base is not None and value.base is args[0]


def ending(function, **options):
    """Hangs, aborts, exits or raises where the first argument has a certain size."""
    compiled = al.compile(function, **options)
    ends = {5: lambda: time.sleep(600), 6: os.abort, 7: lambda: os._exit(3)}

    def call(*args):
        ends.get(args[0].numel(), lambda: None)()
        return compiled(*args)

    return call


def unsteady(function, **options):
    """Every other compiled function returns copies."""
    return random.choice([copying, al.compile])(function, **options)
