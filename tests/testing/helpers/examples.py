"""Programs of `aotlite.testing.programs` that once differed from eager, made small."""

from __future__ import annotations

from typing import Any

from aotlite.testing import Call, Program

Rows = list[list[Any]]
"""Steps as lists."""


def program(body: Rows, results: list[Any], *calls: Any) -> Program:
    """A program; a call may be a dictionary of its fields."""
    made = [each if isinstance(each, Call) else Call(**each) for each in calls]
    return Program(body, results, made)


def _call(setup: Rows, *args: str, **more: Any) -> Call:
    return Call(setup, args, **more)


_PLAIN: Rows = [["make", [0, [10], "float64", False]], ["narrow", ["$0", 0, 0, 3]]]

EXAMPLES: dict[str, tuple[Program, dict[str, Any]]] = {
    "a copy that min-cut saves lies as the value did": (
        program(
            [["real", ["$0"]], ["square_", ["$1"]], ["square_", ["$1"]]],
            [],
            _call([["make", [0, [2, 2], "complex128", True]], ["mul", ["$0", 1]]], "$1"),
        ),
        {"partition": "min_cut"},
    ),
    "elements in one place share the gradient of as_strided": (
        program(
            [["as_strided", ["$0", [1, 1], [2, 3]]], ["neg", ["$1"]]],
            ["$2"],
            _call([["make", [3, [1, 1], "float64", True]], ["expand", ["$0", [4, 2]]]], "$1"),
        ),
        {},
    ),
    "a view of expanded memory in another dtype is turned and merged": (
        program(
            [["view_as_complex", ["$0"]], ["t_", ["$1"]], ["flatten", ["$1"]]],
            ["$3"],
            _call(
                [["make", [2, [1, 1, 2], "float64", False]], ["expand", ["$0", [2, 2, 2]]]], "$1"
            ),
        ),
        {},
    ),
    "a view of turned memory in another dtype is turned back and merged": (
        program(
            [["view_dtype", ["$0", "int64"]], ["t", ["$1"]], ["view", ["$2", [4]]]],
            ["$3"],
            _call([["make", [2, [2, 2], "float64", False]], ["t", ["$0"]]], "$1"),
        ),
        {},
    ),
    "a view in another dtype gets a history, of which a part was taken before": (
        program(
            [["view_dtype", ["$0", "float64"]], ["split", ["$2", 1, 0]], ["sub_", ["$2", "$1"]]],
            ["$2"],
            _call(
                [["make", [4, [4], "float64", False]], ["make", [4, [1], "float64", True]]],
                "$0",
                "$1",
            ),
        ),
        {},
    ),
    "a member of a synthetic base starts between two elements of another dtype": (
        program(
            [["view_as_complex", ["$0"]], ["mul_", ["$2", 3]]],
            [],
            _call(
                [
                    ["make", [6, [19], "float64", False]],
                    ["narrow", ["$0", 0, 1, 6]],
                    ["narrow", ["$0", 0, 4, 6]],
                    ["view", ["$2", [3, 2]]],
                ],
                "$3",
                "$1",
            ),
        ),
        {},
    ),
    "writes that may stay in the graph, of a member of a synthetic base": (
        program(
            [["setitem", ["$0", [0], 4]]],
            [],
            _call([["make", [5, [3], "float64", False]], ["detach", ["$0"]]], "$1", "$0"),
        ),
        {"keep_inference_input_mutations": True},
    ),
    "a view of what no_grad showed of a leaf on a base that requires none": (
        program(
            [["permute", ["$0", [1, 0]], "no_grad"], ["chunk", ["$1", 2, 1]]],
            ["$2.0"],
            _call([*_PLAIN, ["view", ["$1", [1, 3]]], ["requires_grad_", ["$2"]]], "$2"),
        ),
        {"fast_paths": False},
    ),
    "a view taken under no_grad of a leaf on a base that has a history by now": (
        program(
            [["sum", ["$0"]], ["mul_", ["$1", "$3"]], ["alias", ["$2"], "no_grad"]],
            ["$5"],
            _call(
                [
                    *_PLAIN,
                    ["requires_grad_", ["$1"]],
                    ["narrow", ["$0", 0, 4, 3]],
                    ["requires_grad_", ["$3"]],
                ],
                "$1",
                "$0",
                "$3",
            ),
        ),
        {},
    ),
    "a result behind None is put onto other memory": (
        program(
            [["neg", ["$0"]], ["set_", ["$1", "$1"]]],
            [None, "$1"],
            _call([["make", [0, [1, 1], "float64", False]]], "$0"),
        ),
        {},
    ),
    "an argument is written, grows, and gets a history": (
        program(
            [["fill_", ["$1", 1]], ["resize_", ["$1", [2]]], ["sub_", ["$1", "$0"]]],
            ["$1"],
            _call(
                [["make", [0, [1], "float64", True]], ["make", [4, [0], "float64", False]]],
                "$0",
                "$1",
                write=(0, "mul_"),
            ),
        ),
        {},
    ),
    "what is written through a view in another dtype lies as before, and adds up so": (
        program(
            [["imag", ["$0"]], ["mul_", ["$1", "$1"]], ["sum", ["$0"]], ["add_", ["$0", "$3"]]],
            [],
            _call(
                [["make", [5, [1, 3, 3], "complex128", False]], ["transpose", ["$0", 0, -1]]], "$1"
            ),
        ),
        {},
    ),
}
"""The program, and options of `compile`."""
