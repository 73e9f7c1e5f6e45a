"""Programs and samples at other sizes, and templates that are compared with recordings.

`resized(program, a, b)` is the program where sizes of 2 are a and sizes of 3 are b, those of 6 a*b,
and so on: shapes that go together still do.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from aotlite.compiled_autograd import CompiledAutograd
from aotlite.compiled_autograd.dynamic.templates import Templates
from aotlite.compiled_autograd.segment import SegmentRecording
from aotlite.compiled_autograd.segment_recording import SegmentRecorder
from aotlite.ir.graph import Node
from aotlite.ir.op import Op
from aotlite.ir.op.schema import WHICH
from aotlite.testing.laws.samples.sample import Sample
from tests.helpers.programs import Program, Step


# ---------------------------------------------------------------------------------- other sizes
def other(size: int, a: int, b: int) -> int:
    """The size that stands for this one: products are those of the factors' sizes."""
    if size > 1:
        for prime, put in ((2, a), (3, b)):
            if size % prime == 0:
                return put * other(size // prime, a, b)
    return size


def resized(program: Program, a: int, b: int) -> Program:
    """The program at other sizes; some steps may be illegal there."""
    setup, body = ([_step(s, a, b) for s in steps] for steps in (program.setup, program.body))
    return attrs.evolve(program, setup=tuple(setup), body=tuple(body))


def _step(step: Step, a: int, b: int) -> Step:
    if step.op not in ("fresh", "view", "reshape", "expand"):
        return step
    args = [
        tuple([other(n, a, b) for n in arg]) if type(arg) is tuple else arg for arg in step.args
    ]
    return attrs.evolve(step, args=tuple(args))


def resized_sample(op: Op, sample: Sample, a: int, b: int, *, ints: bool) -> Sample:
    """The sample with arrays of other sizes, whose values repeat; with `ints` also sizes among the
    arguments.
    """
    names = [parameter.name for parameter in op.schema.parameters]

    def put(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _array(value, a, b)
        if isinstance(value, tuple):
            return tuple([put(name, each) for each in value])
        sized = ints and type(value) is int and name not in WHICH
        return other(value, a, b) if sized else value

    args = tuple([put(name, value) for name, value in zip(names, sample.args, strict=False)])
    kwargs = {name: put(name, value) for name, value in sample.kwargs.items()}
    return attrs.evolve(sample, args=args, kwargs=kwargs)


def _array(array: np.ndarray, a: int, b: int) -> np.ndarray:
    """Repeated values in the order of memory that the array has."""
    shape = tuple([other(size, a, b) for size in array.shape])
    order = sorted(range(array.ndim), key=lambda dim: -array.strides[dim])
    made = np.resize(array, [shape[dim] for dim in order]).copy()
    return made.transpose(np.argsort(order)) if order else made


# ------------------------------------------------------------------------------- what is recorded
class Checked(Templates):
    """Templates whose recordings are compared with what formulas record of the same nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0

    def segment(self, run: Any, numbers: Any, order: Any, start: int) -> Any:
        remade = super().segment(run, numbers, order, start)
        if remade is not None:
            recorded = SegmentRecorder(run)
            for number in numbers:
                assert recorded.take(number), number
            expected = recorded.recording()
            recorded.give_up()
            assert picture(expected) == picture(remade.recording)
            assert list(remade.numbers) == list(numbers)
            self.compared += 1
        return remade


def checked(**options: Any) -> tuple[CompiledAutograd, Checked]:
    """Tapes with such templates."""
    tapes = CompiledAutograd.of("reference", **options)
    tapes._templates = templates = Checked()
    return tapes, templates


def picture(recording: SegmentRecording) -> list[Any]:
    """All that a recording says, in values that are equal where it says the same."""
    graph, views = recording.graph, dict[int, int]()
    nodes = () if graph is None else graph.nodes
    numbers = {node: k for k, node in enumerate(nodes)}
    return [
        recording.numbers,
        [_node(node, numbers) for node in nodes],
        recording.places,
        recording.kept,
        recording.leaves,
        [(number, [_value(of, views) for of in row]) for number, row in recording.leaving],
        [_value(of, views) for of in recording.collected],
    ]


def _node(node: Node, numbers: dict[Node, int]) -> Any:
    records = node.role, node.grad_mode, node.phase, node.sequence, node.location, node.recompute
    target = node.target if node.op == "call" else str(node.target)
    return node.op, target, _arg(node.args, numbers), _arg(node.meta, {}), records, node.tags


def _arg(value: Any, numbers: Any) -> Any:
    """Kinds of numbers are told apart."""
    if type(value) is tuple:
        return tuple([_arg(each, numbers) for each in value])
    return ("node", numbers[value]) if type(value) is Node else (type(value), repr(value))


def _value(of: Any, views: dict[int, int]) -> Any:
    if type(of) is not tuple or of[0] != "view":
        return of
    chain = [(step.op, step.args, step.operand, step.result) for step in of[2]]
    return views.setdefault(id(of), len(views)), _value(of[1], views), chain
