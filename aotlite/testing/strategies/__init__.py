"""Hypothesis strategies for aliasing: memory, layouts, aliased inputs, view chains, programs.

    storages()          memory, as `Storage`
    layouts()           a tensor's shape, stride, offset and dtype on a storage, as `Layout`
    aliased_inputs()    a setup and arguments that share memory, as `Call`
    view_chains()       a view of a view of ..., as `Program`
    programs()          whole programs of views and writes, as `Program`
    calls_of(program)   further calls of a program, as `Call`
    exact_numbers()     numbers whose sums and products are exact
    Choices             Hypothesis as a source of choices, for your own draws

All are plain data: their repr is Python that makes them again, and they run on any engine. They
shrink towards fewer steps, smaller shapes and plain arguments; `aotlite.testing.shrunk` shrinks
them further. Hypothesis' phase `explain` runs a hundred variants of each failure, longer than all
other phases; `settings(phases=...)` leaves it out. Needs Hypothesis.
"""

try:
    import hypothesis as _hypothesis  # noqa: F401
except ImportError as _error:
    from aotlite.ir.errors import MissingExtraError

    raise MissingExtraError(
        "aotlite.testing.strategies: Hypothesis is not installed, expected: pip install hypothesis"
    ) from _error

from aotlite.testing.generate.layouts import Layout as Layout
from aotlite.testing.generate.layouts import Storage as Storage
from aotlite.testing.strategies.hypothesis_choices import Choices as Choices
from aotlite.testing.strategies.memory_strategies import exact_numbers as exact_numbers
from aotlite.testing.strategies.memory_strategies import layouts as layouts
from aotlite.testing.strategies.memory_strategies import storages as storages
from aotlite.testing.strategies.program_strategies import aliased_inputs as aliased_inputs
from aotlite.testing.strategies.program_strategies import calls_of as calls_of
from aotlite.testing.strategies.program_strategies import programs as programs
from aotlite.testing.strategies.program_strategies import view_chains as view_chains
