"""Programs as files of Python: each runs, and finds what the program finds. Rules: GEN-11."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.backends.reference import ReferenceBackend
from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.testing import Difference, Program, differences_of, engine
from aotlite.testing.coverage.cells import POSSIBLE
from aotlite.testing.engines.interpreter import setup_of
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.memory import memory_differences
from aotlite.testing.observe.differences import NOT_EXACT, same_numbers
from aotlite.testing.programs.vocabulary import OPS
from aotlite.testing.scripts.files import inputs_name
from tests.testing.helpers.examples import EXAMPLES, program

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
        assert _told(told) == _told(found)
        several += bool(found)
    assert several > len(drawn) // 2


def _told(lines: list[str]) -> list[str]:
    """What was found; that numbers are bits of others is known of programs alone."""
    return sorted(_unnamed(line) for line in lines if not line.endswith(NOT_EXACT))


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


# --------------------------------------------------------------------------------- other libraries
def test_arrays_of_numpy_have_eagers_values_and_memory() -> None:
    """An oracle that knows nothing of aotlite: of values, geometry, and who shares memory."""
    compared = 0
    for seed in range(120):
        given = draw(seed, POSSIBLE[(seed * 6151) % len(POSSIBLE)])
        for mine, its in zip(given.run("numpy"), given.run("aotlite"), strict=True):
            assert [] == memory_differences(mine, its), given.to_script()
            compared += its.error is None
    assert compared > 150


FORGOTTEN = {
    "a view that is a copy": ("t", "np.copy({0}.T)"),
    "a write that is lost": ("fill_", "np.copy({0})[...] = {1}"),
}


@pytest.mark.parametrize("name", FORGOTTEN)
def test_an_oracle_that_forgets_memory_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, text = FORGOTTEN[name]
    monkeypatch.setitem(OPS, op, attrs.evolve(OPS[op], numpy=text))
    given = program(
        [["t", ["$0"]], ["fill_", ["$1", 2]]],
        ["$1"],
        {"setup": [["make", [0, [2, 3], "float64", False]]], "args": ["$0"]},
    )
    (mine,), (its,) = given.run("numpy"), given.run()
    assert [] != memory_differences(mine, its)


def test_scripts_for_numpy_give_eagers_values(
    drawn: list[Program], capsys: pytest.CaptureFixture[str]
) -> None:
    ran = 0
    for each in drawn:
        if any(world.error is not None for world in each.run()):
            continue
        try:
            text = each.to_numpy()
        except UnsupportedError as error:
            assert re.match("to_numpy: a step is '[a-z_]+_', expected one that arrays", str(error))
            continue
        with warnings.catch_warnings(action="ignore", category=np.exceptions.ComplexWarning):
            scope = executed(text)
            assert "argument 0: " in capsys.readouterr().out
            for number in range(len(each.calls)):
                args = scope[inputs_name(number)]()
                assert values_of(each, number) == [
                    r.tobytes() for r in scope["f"](*args) if isinstance(r, np.ndarray)
                ]
        ran += 1
    assert ran > len(drawn) // 2


def values_of(given: Program, number: int) -> list[bytes]:
    """The bytes of what eager returns."""
    library = engine("aotlite")
    _, args = setup_of(library, given.calls[number])
    with al.set_grad_enabled(given.calls[number].grad):
        results = given.function_of()(*args)
    return [library.bytes_of(r.detach()) for r in results if isinstance(r, al.Tensor)]


def test_scripts_for_torch_give_eagers_values(
    drawn: list[Program], torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = 0
    for each in drawn:
        worlds = [*each.run("aotlite"), *each.run("torch")]
        if any(world.error is not None for world in worlds):
            continue
        scope = executed(each.to_torch())
        assert "argument 0: " in capsys.readouterr().out
        for number in range(len(each.calls)):
            args, _ = scope[inputs_name(number)]()
            with torch.set_grad_enabled(each.calls[number].grad):
                found = [r for r in scope["f"](*args) if isinstance(r, torch.Tensor)]
            library = engine("torch")
            theirs = [library.bytes_of(r.detach()) for r in found]
            dtypes = [str(r.dtype) for r in found]
            for a, b, dtype in zip(values_of(each, number), theirs, dtypes, strict=True):
                assert same_numbers(a, b, dtype)
        ran += 1
    assert ran > len(drawn) // 2


def test_a_script_for_torch_may_compile(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    del torch
    given = program([["mul_", ["$0", 2]], ["neg", ["$0"]]], ["$1", "$2"], *WHOLE.calls)
    call = attrs.evolve(given.calls[0], args=["$1"], grad=True)
    executed(attrs.evolve(given, calls=[call]).to_torch(compiled=True))
    eager, compiled = capsys.readouterr().out.split("argument 0")[1:]
    assert re.sub("memory .*", "", eager) == re.sub("memory .*", "", compiled)
    assert "gradient" in eager


ARRAYS = """\
def inputs():
    leaf = np.array([[-3.0, 2.0, 4.0], [-2.0, 3.0, 1.0]], dtype=np.float64)  # requires grad
    x = np.asarray(leaf * 1)
    y = x[1, ...]
    base = np.array(4, dtype=np.int64)
    return (x, y)


def f(x, y):
    view = y[1:, None]
    view *= 2  # under no_grad
    parts = unbind(x, 0)
    parts[1][...] = parts[0]
    return [view, x, None]
"""


def test_a_script_for_numpy_reads_like_code_by_hand() -> None:
    text = WHOLE.to_numpy()
    assert ARRAYS in text
    assert text.startswith("import numpy as np\n\n\ndef unbind(x: np.ndarray, dim: int = 0)")


def test_steps_that_arrays_cannot_do_are_named() -> None:
    call = {"setup": [["make", [0, [2, 2], "float64", False]]], "args": ["$0", "$0"]}
    with pytest.raises(UnsupportedError, match="^to_numpy: a step is 't_', .*: one object has two"):
        program([["t_", ["$0"]]], [], call).to_numpy()
    call["args"] = ["$0"]
    with pytest.raises(UnsupportedError, match="^to_numpy: a step is 'resize_', .* do not grow"):
        program([["resize_", ["$0", [9]]]], [], call).to_numpy()
    with pytest.raises(UnsupportedError, match="^to_numpy: a step is 'sinc', .* has no such op"):
        program([["sinc", ["$0"]]], [], call).to_numpy()
    assert "    x = x.T  # t_\n" in program([["t_", ["$0"]]], [], call).to_numpy()
