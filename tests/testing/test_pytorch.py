"""A sample of the alias programs is run here and in PyTorch, eager both; what may differ is named.

The long run is `aotlite fuzz --against torch`. Rules: GEN-11.
"""

from collections import Counter
from pathlib import Path

import attrs
import pytest

from aotlite.testing import Call, Program, Step
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.pytorch import expected_differences
from aotlite.testing.pytorch.comparison import aot_difference, compared, is_same_error, worlds
from aotlite.testing.pytorch.expected_differences import detached_leaves, excuse, unturned

ROOT = Path(__file__).parents[2]
SAMPLE = 300


def program(setup, body, results, *, args=("$0",), grad=True, write=None):
    """A program of one call; steps are [op, args] as in `aotlite.testing.programs`."""
    return Program(body, results, [Call(setup, args, grad=grad, write=write)])


def make(*shape, dtype="float64", grad=False):
    return ["make", [3, list(shape), dtype, grad]]


LEAF, VALUE = make(4, grad=True), ["mul", ["$0", 1]]
EXPANDED = [make(1, 2, grad=True), VALUE, ["expand", ["$1", [3, 2]]]]
OVERLAPPING = ["as_strided", ["$0", [2, 2], [1, 1]]]

EXAMPLES = {
    expected_differences.EXACT: program(
        [make(4), OVERLAPPING], [["add_", ["$0", 1]]], ["$0"], args=["$1"]
    ),
    expected_differences.SAME: program(
        [make(3), ["narrow", ["$0", 0, 0, 1]], ["as_strided", ["$0", [1], [2]]]],
        [["copy_", ["$0", "$1"]]],
        [],
        args=["$1", "$2"],
    ),
    expected_differences.PICKED: program(
        [make(1, 2), ["expand", ["$0", [3, 2]]]],
        [
            ["ints", [[1]]],
            ["full", [[1, 2], 4, "float64"]],
            ["index_put_", ["$0", ["$1"], "$2"]],
        ],
        [],
        args=["$1"],
    ),
    expected_differences.BITS: program(
        [make(4)],
        [["mul_", ["$0", -0.0]], ["relu_", ["$0"]], ["view_dtype", ["$0", "int64"]]],
        ["$3"],
    ),
    expected_differences.FILLED: program(
        [make(1), ["expand", ["$0", [3]]]], [["setitem", ["$0", ["1:"], 2]]], [], args=["$1"]
    ),
    expected_differences.STALE: program(
        [make(4), ["narrow", ["$0", 0, 0, 2]], LEAF, ["sum", ["$2"]]],
        [["mul_", ["$0", "$2"]], ["as_strided_", ["$1", [1], [1]]]],
        [],
        args=["$0", "$1", "$3"],
    ),
    expected_differences.MOVED: program(
        [make(4), ["narrow", ["$0", 0, 0, 2]]], [["set_", ["$0", "$0"]]], [], args=["$1"]
    ),
    expected_differences.LEFT: program(
        [LEAF],
        [["mul", ["$0", "$0"]], ["detach", ["$1"]], ["set_", ["$2", "$0"], "no_grad"]],
        ["$1"],
    ),
    expected_differences.OUTSIDE: program(
        [LEAF, ["narrow", ["$0", 0, 0, 2]]], [["as_strided", ["$0", [4], [1]]]], ["$1"], args=["$1"]
    ),
    expected_differences.EXPANDED: program(EXPANDED, [["fill_", ["$0", 3]]], ["$0"], args=["$2"]),
    expected_differences.EMPTY: program(
        [make(0, 4, dtype="complex128", grad=True), VALUE],
        [["view_as_real", ["$0"]], ["sum", ["$1"]], ["add_", ["$1", "$2"]]],
        ["$1"],
        args=["$1"],
    ),
    expected_differences.RESIZED: program(
        [make(2, 2), LEAF, ["sum", ["$1"]]],
        [["select", ["$0", 1, 1]], ["resize_", ["$0", [3]]], ["add_", ["$2", "$1"]]],
        ["$2"],
        args=["$0", "$2"],
    ),
    expected_differences.NEGATED: program(
        [make(8), ["view_dtype", ["$0", "complex128"]]],
        [
            ["zero_", ["$0"]],
            ["neg_", ["$0"]],
            ["add_", ["$0", "$0"]],
            ["view_dtype", ["$0", "int64"]],
        ],
        ["$4"],
        args=["$1"],
    ),
    expected_differences.TYPED: program(
        [make(2, 2, grad=True), ["view_dtype", ["$0", "int64"]], ["sum", ["$0"]]],
        [["setitem", ["$0", [1], "$1"]], ["mul", ["$0", "$0"]]],
        [],
        args=["$1", "$2"],
    ),
    expected_differences.WINDOWS: program(
        [LEAF, VALUE, ["as_strided", ["$1", [2, 2], [1, 1]]]],
        [["copy_", ["$0", "$0"]]],
        ["$0"],
        args=["$2"],
    ),
    expected_differences.LEAVES: program(
        [make(4), ["narrow", ["$0", 0, 0, 2]], ["requires_grad_", ["$1"]]],
        [["sum", ["$1"]], ["mul_", ["$0", "$2"]], ["mul", ["$1", 2]]],
        ["$4"],
        args=["$0", "$1"],
    ),
    expected_differences.TURNED: program(
        [LEAF, VALUE],
        [["view", ["$0", [2, 2]]], ["as_strided_", ["$0", [2], [2]]]],
        ["$1"],
        args=["$1"],
    ),
}
"""A program for each excuse that no other excuse excuses."""


def test_each_excuse_has_an_example():
    assert set(expected_differences.EXCUSES) == set(EXAMPLES)


@pytest.mark.torch
@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_excuse_is_needed_for_its_example(torch, name):
    example = EXAMPLES[name]
    assert [] != compared(*worlds(torch, example, 0))
    assert name == excuse(torch, example, 0)


@pytest.mark.torch
def test_what_no_rule_demands_is_not_excused(torch, monkeypatch):
    """Another number in programs that have all that excuses look for."""
    import aotlite as al

    wrong = al.Tensor.mul_
    monkeypatch.setattr(al.Tensor, "neg_", lambda self: wrong(self, 2))
    for name, example in EXAMPLES.items():
        first = example.arity
        body = [_shifted(step, first) for step in example.body]
        body = [Step("mul", ("$0", 2)), Step("neg_", (f"${first}",)), *body]
        broken = attrs.evolve(example, body=body, results=[f"${first}"])
        # What raises in both after the mistake cannot show it.
        excused = {
            expected_differences.EXACT,
            expected_differences.EMPTY,
            expected_differences.PICKED,
        }
        assert name in excused or excuse(torch, broken, 0) is None, broken.to_script()


def _shifted(step, first):
    def moved(value):
        if isinstance(value, tuple):
            return tuple(moved(item) for item in value)
        if isinstance(value, str) and value[:1] == "$" and int(value[1:]) >= first:
            return f"${int(value[1:]) + 2}"
        return value

    return attrs.evolve(step, args=moved(step.args))


@pytest.mark.torch
def test_a_sample_of_programs_gives_the_world_of_pytorch(torch):
    counts = Counter()
    for seed in range(SAMPLE):
        drawn = draw(seed)
        for number in range(len(drawn.calls)):
            found = compared(*worlds(torch, drawn, number))
            counts["calls"] += 1
            if found:
                counts["excused"] += 1
                assert excuse(torch, drawn, number), f"{seed}: {found}\n{drawn.to_script()}"
                break
    assert counts["calls"] > 1.5 * SAMPLE
    assert 0 < counts["excused"] < 0.2 * SAMPLE


def test_each_excuse_is_a_difference_that_users_are_told():
    told = (ROOT / "docs" / "differences.md").read_text("utf-8")
    rules = [name.split(":")[0] for name in expected_differences.EXCUSES]
    assert [] == [rule for rule in rules if f"| {rule} |" not in told and f"`{rule}`" not in told]


def test_leaves_that_are_views_are_detached_first():
    changed = detached_leaves(EXAMPLES[expected_differences.LEAVES]).calls[0]
    assert ["narrow", "detach", "requires_grad_"] == [step.op for step in changed.setup[1:]]
    assert ("$2",) == changed.setup[3].args
    assert ("$0", "$2") == changed.args


def test_nothing_changes_its_geometry_in_an_unturned_program():
    assert ["view", "as_strided"] == [
        s.op for s in unturned(EXAMPLES[expected_differences.TURNED]).body
    ]


@pytest.mark.parametrize(
    "ours, theirs, same",
    [
        ("AliasError", "RuntimeError", True),
        ("DTypeError", "NotImplementedError", True),
        ("AliasError", "IndexError", False),
        ("IndexOutOfRangeError", "RuntimeError", False),
        ("KeyError", "RuntimeError", False),
    ],
)
def test_errors_of_one_class_count_as_the_same(ours, theirs, same):
    assert is_same_error(ours, theirs) is same


@pytest.mark.torch
def test_what_pytorchs_own_compiler_changes_is_told_by_its_kind(torch):
    twice = program([make(2, 2, grad=True)], [["mul", ["$0", 2]], ["view", ["$1", [-1]]]], [])
    assert "same" == aot_difference(torch, attrs.evolve(twice, results=["$1"]))
    assert "identity" == aot_difference(torch, attrs.evolve(twice, results=["$2", "$2"]))
    gradient = program(
        [make(2, grad=True), ["mul", ["$0", 1]], ["view", ["$1", [2, 1]]]],
        [["select", ["$0", 0, 0]], ["mul_", ["$1", 3], "no_grad"]],
        ["$0"],
        args=["$1", "$2"],
    )
    assert "gradient" == aot_difference(torch, gradient)
