"""Programs as files of Python: each runs, and finds what the program finds. Rules: GEN-11."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.reference import ReferenceBackend
from aotlite.ir.errors import ArgumentError
from aotlite.testing import Difference, Program, differences_of
from aotlite.testing.cells import POSSIBLE
from aotlite.testing.draws.whole import draw
from tests.testing.examples import EXAMPLES, program

SEEDS = range(40)


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    return [draw(seed, POSSIBLE[(seed * 7919) % len(POSSIBLE)]) for seed in SEEDS]


def executed(text: str) -> dict[str, Any]:
    """The names of a file that was run."""
    scope: dict[str, Any] = {"__name__": "a_script"}
    exec(compile(text, "<script>", "exec"), scope)
    return scope


def raised(action: Callable[[], Any]) -> list[str]:
    """What a check found."""
    try:
        action()
    except Difference as error:
        return list(error.found)
    return []


def found_by(text: str) -> list[str]:
    """What a script finds."""
    return raised(lambda: executed(text))


def wrong_compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A compiled function whose results are copies, and which writes once too often."""
    compiled = al.compile(function, **options)

    def run(*args: Any) -> Any:
        found = compiled(*args)
        return [r.clone() if isinstance(r, al.Tensor) else r for r in found]

    return run


HERE = f"{__name__}:wrong_compile"


@pytest.mark.rules("GEN-11")
def test_scripts_of_programs_run_and_find_nothing_where_the_program_finds_nothing(
    drawn: list[Program],
) -> None:
    for each in drawn:
        told = found_by(each.to_script())
        if "Unsupported" not in str(told):  # a script does not forgive a refused call
            assert told == differences_of(each)


def test_scripts_find_what_the_program_finds(drawn: list[Program]) -> None:
    """Compiled by a wrong function; the lines differ in what they call things."""
    several = 0
    for each in drawn:
        found = differences_of(each, compile=wrong_compile)
        told = found_by(each.to_script(compile=HERE))
        if not found and any("Error(" in line for line in told):
            continue
        assert sorted(map(_unnamed, told)) == sorted(map(_unnamed, found))
        several += bool(found)
    assert several > len(drawn) // 2


def _unnamed(line: str) -> str:
    """A line without the call's number and the things' names and numbers."""
    line = re.sub(r"call \d+: ", "", line)
    line = re.sub(r"^((?:storage|base) .*:).*", r"\1", line)
    line = re.sub(r"(object|input|result) \d+", "it", line)
    return line.partition(":")[0] if line.startswith(("plain", "objects")) else line


def test_a_test_function_asserts_what_the_script_asserts() -> None:
    given, options = EXAMPLES["a copy that min-cut saves lies as the value did"]
    text = given.to_pytest("test_saved", **options)
    executed(text)["test_saved"]()
    wrong = executed(given.to_pytest(compile=HERE))["test_compiled_equals_eager"]
    assert raised(wrong) == found_by(given.to_script(compile=HERE))


WHOLE = program(
    [
        ["getitem", ["$1", ["1:", "none"]]],
        ["mul_", ["$2", 2], True],
        ["unbind", ["$0", 0]],
        ["setitem", ["$4.1", ["..."], "$4.0"]],
    ],
    ["$3", "$0", None],
    {
        "setup": [
            ["make", [0, [2, 3], "float64", True]],
            ["mul", ["$0", 1]],
            ["select", ["$1", 0, 1]],
            ["make", [1, [], "int64", False]],
        ],
        "args": ["$1", "$2"],
        "grad": False,
        "write": [0, "mul_"],
    },
)

TEXT = """\
import aotlite as al
from aotlite.testing import Inputs, assert_same_effects
from aotlite.backends.reference import ReferenceBackend


def inputs():
    leaf = al.tensor([[-3.0, 2.0, 4.0], [-2.0, 3.0, 1.0]], dtype=al.float64, requires_grad=True)
    x = leaf.mul(1)
    y = x.select(0, 1)
    base = al.tensor(4, dtype=al.int64)
    return Inputs((x, y), also=[leaf, base])


def f(x, y):
    view = y[1:, None]
    with al.no_grad(): view.mul_(2)
    parts = x.unbind(0)
    parts[1][...] = parts[0]
    return [view, x, None]


assert_same_effects(f, al.compile(f, backend=ReferenceBackend(0)), inputs, grad=False, \
write=(0, "mul_"))
"""


def test_a_script_reads_like_code_by_hand() -> None:
    assert TEXT == WHOLE.to_script(backend=ReferenceBackend(0))
    executed(TEXT)


def test_what_a_script_cannot_say_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^to_script: option partition is .*, expected a func"):
        WHOLE.to_script(partition=lambda joint: joint)
    with pytest.raises(ArgumentError, match="^to_pytest: the name is 'a b', expected an identif"):
        WHOLE.to_pytest("a b")
    unnamed = program([["neg", ["$7"]]], [], *WHOLE.calls)
    with pytest.raises(ArgumentError, match=r"^script: a name is '\$7', expected one of the 2 val"):
        unnamed.to_script()
