"""`Program`: a program as data, with methods that run it and print it as files.

Place: above engines, `observe` and `scripts`, which read programs as `ProgramData`; below the
modules that draw, check and shrink programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs

from aotlite.ir.errors import FormatError
from aotlite.testing.engines import Engine, engine
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.steps import Call, ProgramData
from aotlite.testing.programs.steps import Step as Step
from aotlite.testing.scripts.files import pytest_file, script_file
from aotlite.testing.scripts.library_scripts import numpy_file, torch_file


@attrs.frozen(repr=False)
class Program(ProgramData):
    """A function of steps, and calls of it.

    >>> call = Call([["make", [0, [2], "float64", False]]], ["$0"])
    >>> program = Program([["mul_", ["$0", 2]]], ["$1"], [call])
    >>> program.body, program.arity
    ((Step('mul_', ('$0', 2)),), 1)
    >>> program.run()[0].objects  # the result is the argument
    [0, 0]
    """

    def run(self, on: str | Engine = "aotlite", function: Any = None) -> list[Observation]:
        """Returns the observation of each call of the body, or of `function`, on an engine.

        `function` takes the arguments of the body: a compiled form of `function_of(engine)`, for
        example.
        """
        chosen = engine(on)
        function = self.function_of(chosen) if function is None else function
        return [observe_call(chosen, self, number, function) for number in range(len(self.calls))]

    def function_of(self, on: str | Engine = "aotlite") -> Callable[..., list[object]]:
        """The body as a function of an engine's tensors."""
        return body_of(engine(on), self)

    # --- as text that runs
    def to_script(self, *, compile: str | None = None, **options: object) -> str:
        """A file that calls the function eagerly and compiled, and asserts equal effects.

        `options` are the compiled function's; `compile="module:name"` is another compile function.

        >>> call = Call([["make", [0, [2], "float64", False]]], ["$0"])
        >>> print(Program([["mul_", ["$0", 2]]], ["$1"], [call]).to_script())
        import aotlite as al
        from aotlite.testing import assert_same_effects
        <BLANKLINE>
        <BLANKLINE>
        def inputs():
            x = al.tensor([-3.0, 2.0], dtype=al.float64)
            return x
        <BLANKLINE>
        <BLANKLINE>
        def f(x):
            x.mul_(2)
            return [x]
        <BLANKLINE>
        <BLANKLINE>
        assert_same_effects(f, al.compile(f), inputs)
        <BLANKLINE>
        """
        return script_file(self, compile=compile, **options)

    def to_pytest(
        self,
        name: str = "test_compiled_equals_eager",
        *,
        compile: str | None = None,
        **options: object,
    ) -> str:
        """A file with one test function for pytest, which asserts what the script asserts."""
        return pytest_file(self, name, compile=compile, **options)

    def to_numpy(self) -> str:
        """A file with the same steps in plain NumPy: views are views, and writes are in place.

        It prints the values and the shared memory. Steps about history are comments. Raises
        `UnsupportedError`, which names the step, for a step that arrays lack.
        """
        return numpy_file(self)

    def to_torch(self, *, compiled: bool = False) -> str:
        """A file with the same steps in PyTorch, `compiled` also by its `aot_function`."""
        return torch_file(self, compiled=compiled)

    @staticmethod
    def from_json(text: str) -> Program:
        """The program of a line that `to_json` wrote. Raises `FormatError` for anything else."""
        try:
            read = json.loads(text)
            calls = [Call(**call) for call in read["calls"]]
            return Program(read["body"], read["results"], calls)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(
                f"Program.from_json: the text is {text[:60]!r}, expected what to_json writes"
            ) from error
