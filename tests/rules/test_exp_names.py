"""EXP-20: errors of exports say arguments by the names and paths of the user's code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.export import (
    aot_export_joint_simple,
    aot_export_joint_with_descriptors,
    aot_export_module,
    program,
)


class Two(al.nn.Module):
    """A Module with two parameters, so that numbers of flat arguments are not those of the user."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self.layer, self.body = al.nn.Linear(3, 2), body

    def forward(self, x: Any, batch: Any = None) -> Any:
        return (self.layer(x).sum() + self.body(x, batch),)


def reads(x: Any, batch: Any) -> Any:
    return 1.0


def appends(x: Any, batch: Any) -> Any:
    batch["rows"].append(x)
    return 1.0


def export_module(body: Any, *args: Any, **options: Any) -> Any:
    return aot_export_module(Two(body), args, **options)


def export_joint(body: Any, *args: Any, **options: Any) -> Any:
    return aot_export_joint_with_descriptors(Two(body), args, **options)


def export_program(body: Any, *args: Any, **options: Any) -> Any:
    return program(Two(body), *args, **options)


EXPORTS: tuple[Callable[..., Any], ...] = (export_module, export_joint, export_program)
x = al.ones(4, 3)
ROWS = al.Dim("rows", min=10)


class Masked(np.ndarray[Any, Any]):
    """An array of a class of its own."""


@pytest.mark.rules("EXP-20")
@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize(
    ("body", "args", "text"),
    [
        (reads, (x, {"rows": [object()]}), r"export: argument batch\['rows'\]\[0\] is <object"),
        (reads, (x, object()), r"export: argument batch is <object"),
        (appends, (x, {"rows": []}), r"export: the function changes argument batch\['rows'\], a l"),
        (reads, (x, [np.ones(2).view(Masked)]), r"ndarray: argument batch\[0\] is a .*Masked"),
    ],
)
def test_arguments_of_other_kinds_are_said_by_path(
    export: Any, body: Any, args: Any, text: str
) -> None:
    with pytest.raises(al.AotliteError, match=text):
        export(body, *args)


@pytest.mark.rules("EXP-20")
@pytest.mark.parametrize("export", [export_module, export_program])
@pytest.mark.parametrize(
    ("args", "shapes", "text"),
    [
        ((x,), {"x": {0: ROWS}}, r"export: size 0 of x, dimension 'rows', is 4, expected at least"),
        (
            (x, {"y": [al.ones(5)]}),
            {"x": {0: al.Dim("n")}, "batch": {"y": [{0: al.Dim("n")}]}},
            r"export: dimension 'n' is 4 as size 0 of x and 5 as size 0 of batch\['y'\]\[0\], exp",
        ),
        ((x,), {"x": {5: ROWS}}, "dynamic_shapes of x: dimension is 5, expected -2 to 1"),
        ((x,), {"x": {0: "n"}}, "export: dynamic_shapes has 'n' for dimension 0 of x, expected"),
        (
            (x, [1]),
            {"batch": [{0: ROWS}]},
            r"export: dynamic_shapes has \{0: .*\} for batch\[0\], which is 1 in this call",
        ),
        ((x, 3), {"batch": ROWS}, "export: batch, dimension 'rows', is 3, expected at least 10"),
    ],
)
def test_sizes_are_said_by_path(export: Any, args: Any, shapes: Any, text: str) -> None:
    with pytest.raises((al.ArgumentError, al.IndexOutOfRangeError), match=text):
        export(reads, *args, dynamic_shapes=shapes)


@pytest.mark.rules("EXP-20")
def test_arguments_of_a_simple_export_are_said_by_name() -> None:
    def writes(x: Any, by: Any) -> Any:
        return (x * 1, by.add_(1) * 1)

    with pytest.raises(al.ExportError, match="export: the function writes argument by, expected"):
        aot_export_joint_simple(writes, (x, x * 1), trace_joint=False)
    with pytest.raises(al.ArgumentError, match="export: argument by is <object"):
        aot_export_joint_simple(writes, (x, object()), trace_joint=False)


@pytest.mark.rules("EXP-20")
def test_errors_of_the_functions_ops_stay_as_they_are() -> None:
    """`argument 1` of an op is none of the program's."""

    def saves(x: Any, batch: Any) -> Any:
        raise ValueError("argument 1 of mine")

    for export in EXPORTS:
        with pytest.raises(ValueError, match="^argument 1 of mine$"):
            export(saves, x)
