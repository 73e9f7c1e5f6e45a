"""Marked regions: the graphs are those without the mark, whatever the region does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.inspect import Stages, stages_of
from aotlite.ir.graph import Graph, Node
from aotlite.ir.provenance.location import place_of
from aotlite.pipeline.journey import STAGES
from aotlite.stages.records.metadata.region_report import RegionReport
from aotlite.stages.s1_capture.regions.region_calls import MarkedRegions
from aotlite.subclasses.two_tensor import TwoTensor

REPORT = "1 capture, regions"


def unmarked(function: Any) -> Any:
    return function


# ----------------------------------------------------------------------------------------- equality
def image(graph: Graph) -> list[tuple[Any, ...]]:
    """All that nodes say, but the mark."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}

    def of(value: object) -> object:
        if type(value) is Node:
            return numbers[value]
        return tuple(map(of, value)) if type(value) is tuple else (type(value), repr(value))

    return [
        (
            *(node.op, getattr(node.target, "name", "") or str(node.target), of(node.args)),
            *(str(node.meta), str(node.role), node.grad_mode, node.phase, node.sequence),
            *(node.location and place_of(node.location), node.module, node.recompute),
            *(node.is_backward, node.is_sum),
            {name: tag for name, tag in node.tags.items() if name != "region"},
        )
        for node in graph.nodes
    ]


def stages(function: Any, arguments: Callable[[], Any], **options: Any) -> Stages:
    return stages_of(al.compile(function, backend="loops", **options), *arguments())


class Enough(Exception):
    pass


def guards(function: Any, arguments: Callable[[], Any]) -> list[str]:
    """The places of the guards, in order."""
    found: list[str] = []

    def capture(*args: Any, **named: Any) -> Any:
        captured = STAGES["capture"](*args, **named)
        for each in captured.recorder.guards:
            found.append(f"{type(each).__name__} {getattr(each, 'place', '')}")
        raise Enough

    with pytest.raises(Enough):
        al.compile(function, stages={"capture": capture}).prepare(*arguments())
    return found


def report_of(found: Stages) -> RegionReport:
    reports = [each.made for each in found if each.name == REPORT]
    return reports[0] if reports else RegionReport(())


def check_same(made: Callable[[Any], Any], arguments: Callable[[], Any]) -> RegionReport:
    """REG-25: each stage makes the same, with the mark and without it. `made` makes the program
    anew, with this decorator."""
    plain, marked = made(unmarked), made(al.nested_compile_region)
    try:
        wanted = stages(plain, arguments)
    except al.AotliteError as error:
        with pytest.raises(type(error)) as info:
            stages(marked, arguments)
        assert str(error) == str(info.value)
        return RegionReport(())
    found = stages(marked, arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MarkedRegions, "_against_here", lambda self: "tests say so")
        traced = guards(made(al.nested_compile_region), arguments)
    assert traced == guards(made(al.nested_compile_region), arguments)
    assert [each.name for each in wanted] == [e.name for e in found if e.name != REPORT]
    for each in wanted:
        made = found[each.name]
        if isinstance(each.made, Graph):
            assert image(each.made) == image(found[each.name])
        elif each.name[0] in "23":
            assert str(each) == str(found.record(each.name))
    assert str(wanted.record("partition")) == str(found.record("partition"))
    return report_of(found)


# --------------------------------------------------------------------------------------------- law
STATEMENTS = (
    "a = a * b",
    "a = (a @ b).relu() + c",
    "b = b.t()",
    "a = a.sum(0, True) + b",
    "t = a.exp(); t.mul_(2.0); a = t",
    "t = a * 1.0; t[0].add_(b[1]); a = t",
    "t = a * 1.0; u = t.view(9); u.mul_(n); a = t",
    "a = nn.functional.dropout(a, 0.5)",
    "with al.no_grad(): c = c * 2.0; a = a + c",
    "a = a * n",
    "a = a.sin() if a.requires_grad else a.cos()",
    "a = a * 2.0 if a.shape == (3, 3) and flag else a",
    "p = a.split(1); a = a + p[0]",
    "q = a.max(0); a = a + q[0]",
    "a = a.softmax(-1)",
    "a = a.detach() * a",
    "a = a * GLOBAL",
    "a = al.cat([a, b, a])[:3]",
    "a = a + al.ones(3)",
    "a = a + al.tensor([1.0, 2.0, 3.0])",
    "a = a + 1.0 if a is b else a + 2.0",
    "a, b = b, a",
    "a = inner(a, c)",
    "a = a[c > 0.0].sum() + b",
    "a.mul_(2.0)",
    "LIST.append(n)",
    "COUNTS[0] += 1; a = a * COUNTS[0]",
    "a = a * LIST[0]",
    "a.register_hook(lambda grad: grad * 2.0)",
    "a = al.checkpoint(inner, a, b)",
    "al.set_grad_enabled(False)",
    "a = a.contiguous().reshape(9).reshape(3, 3)",
)
RESULTS = ("a", "a", "a", "(a, b)", "[c, a]", "{'x': a, 'n': n}", "(a, a)", "b", "pair")
CALLS = ("h", "h", "h", "x", "y", "w", "w.t()", "v", "y[:3]")
SETTINGS = ("", "GLOBAL = OTHER", "LIST[0] = 4.0", "with al.no_grad(): h = h * 2.0")
INNER = "def inner(a, b):\n    return (a * b).tanh()\n"


def text(statements: list[str], result: str, calls: list[Any]) -> str:
    """A program that calls a region several times."""
    lines = ["@mark", "def region(a, b, c, n, flag=True):", "    pair = a, b"]
    lines += [f"    {each}" for each in statements]
    lines += [f"    return {result}", "def program(x, y, w, v):", "    global GLOBAL"]
    lines += ["    h, rest = x * 1.0, []"]
    for first, second, third, number, between in calls:
        lines += [f"    r = region({first}, {second}, {third}, {number})"]
        lines += ["    rest.append(r)", f"    {between}"]
        lines += ["    r = r[1] if type(r) in (tuple, list) else r['x'] if type(r) is dict else r"]
        lines += ["    h = r if r.shape == (3, 3) else h"]
    return "\n".join([f"@mark\n{INNER}", *lines, "    return h.sum(), rest"])


def loaded(code: Any, mark: Any) -> dict[str, Any]:
    values = {"GLOBAL": al.ones(3) * 2.0, "OTHER": al.ones(3), "LIST": [2.0], "COUNTS": [0]}
    space = {"al": al, "nn": nn, "mark": mark, "__name__": __name__, **values}
    exec(code, space)
    return space


def arguments() -> tuple[al.Tensor, ...]:
    x = al.arange(9.0).reshape(3, 3) * 0.1
    w = (al.ones(3, 3) * 0.5).requires_grad_()
    return x, al.ones(4, 3) * 0.2, w, (al.eye(3) + 0.1).requires_grad_()


operand, number = st.sampled_from(CALLS), st.sampled_from((1, 1.0, 2))
call = st.tuples(operand, operand, operand, number, st.sampled_from(SETTINGS))
SAME = [("h", "w", "v", 2, "")] * 3


@given(
    st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4),
    st.sampled_from(RESULTS),
    st.lists(call, min_size=1, max_size=3).map(lambda calls: calls + calls),
)
@example(["a = nn.functional.dropout(a, 0.5)", "a = inner(a, c)"], "a", SAME)
@example(["a = a * GLOBAL"], "a", [("h", "w", "v", 2, "GLOBAL = OTHER")] * 3)
@settings(max_examples=20)
def test_graphs_are_those_without_the_mark(
    statements: list[str], result: str, calls: list[Any]
) -> None:
    """REG-25; the side effects on Python, too."""
    code = compile(text(statements, result, calls), "<region>", "exec")
    spaces: list[dict[str, Any]] = []

    def made(mark: Any) -> Any:
        spaces.append(loaded(code, mark))
        return spaces[-1]["program"]

    check_same(made, arguments)
    effects = [(space["LIST"], space["COUNTS"]) for space in spaces]
    assert all(each == effects[0] for each in effects)


# ------------------------------------------------------------------------------------- what is said
def reported(statements: list[str], result: str = "a", calls: list[Any] = SAME) -> list[str]:
    """The lines of the report on the region, whose graphs are those without the mark."""
    code = compile(text(statements, result, calls), "<region>", "exec")
    report = check_same(lambda mark: loaded(code, mark)["program"], arguments)
    return [str(each) for each in report.calls if each.name == "region"]


WHY = {
    "a = a + al.tensor([1.0, 2.0, 3.0])": "it does more than ops to the capture",
    "a = a[c > 0.0].sum() + b": "sizes are symbols",
    "a.mul_(2.0)": "it writes a tensor from outside of it",
    "LIST.append(n)": "it reaches a list ('LIST')",
    "COUNTS[0] += 1; a = a * COUNTS[0]": "",  # refused
    "a = a * LIST[0]": "it reaches a list ('LIST')",
    "a.register_hook(lambda grad: grad * 2.0)": "",  # refused
    "a = al.checkpoint(inner, a, b)": "it does more than ops to the capture",
    "al.set_grad_enabled(False)": "it leaves grad mode changed",
    "a = a * a.is_leaf": "it reads the attribute 'is_leaf'",
    "a = a + a.storage_offset()": "it reads the attribute 'storage_offset'",
    "print(n)": "it reaches 'print' ('print')",
}


@pytest.mark.parametrize("statement", list(dict.fromkeys([*STATEMENTS, *WHY])))
def test_equal_calls_are_repeated_and_others_say_why_not(statement: str) -> None:
    """REG-22, REG-23, REG-29: the third of three calls is equal to the second, if to any."""
    lines = reported([statement, "a = a * b"])
    why = WHY.get(statement)
    if why is None:
        assert "region[2]: region[1] again." == lines[2]
    elif why:
        assert f"region[2]: traced, since {why}." == lines[2]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (lambda a, b: (a * b, [b, {"n": 2}]), None),
        (lambda a, b: [(a, b)], None),
        (lambda a, b: [[pair := (a, b), pair]], "it returns a container that is not its own"),
        (lambda a, b: range(3), "it returns a range"),
    ],
)
def test_results_keep_their_containers(result: Any, why: str | None) -> None:
    """REG-23"""

    def made(mark: Any) -> Any:
        region = mark(result)
        return lambda x, y: [list(region(x, y)), list(region(y, x))]

    line = check_same(made, lambda: (al.ones(2), al.ones(2))).calls[1]
    expected = "<lambda>[0] again" if why is None else f"traced, since {why}"
    assert f"<lambda>[1]: {expected}." == str(line)


X, W = ("x", "w", "v", 2, ""), ("h", "w", "v", 2, "")


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (("x", "w", "v", 2.0, ""), "argument 3 is of type float, not int"),
        (("x", "w", "v", 3, ""), "argument 3 is 3, not 2"),
        (("h", "w", "v", 2, ""), None),  # `h` does not require grad yet
        (("x", "x", "v", 2, ""), "argument 1 is not alike"),
        (("w", "w", "v", 2, ""), "argument 0 has another history"),
        (("x", "w.t()", "v", 2, ""), "argument 1 is f32[3, 3][1, 3], not f32[3, 3]"),
        (("x", "w", "y[:3]", 2, ""), "argument 2 has another history"),
        (("x", "v", "w", 2, ""), None),
    ],
)
def test_arguments_must_be_alike(second: Any, why: str | None) -> None:
    """REG-22: metas, history, aliases, and the types of numbers."""
    line = reported(["a = (a * b).detach() + c.detach() * n"], calls=[X, second])[1]
    expected = "region[0] again" if why is None else f"traced, since {why}"
    assert f"region[1]: {expected}." == line


def test_variables_must_be_the_same() -> None:
    """REG-24: a number, and a tensor that is made in between."""

    def made(mark: Any) -> Any:
        def program(x: Any) -> Any:
            factor, shift = 2.0, x.exp()

            @mark
            def region(a: Any) -> Any:
                return a * factor + shift

            x = region(region(x))
            factor = 3.0
            x = region(region(x))
            shift = x.cos()
            return region(region(x))

        return program

    lines = str(check_same(made, lambda: (al.ones(3),))).splitlines()
    changed = "a variable of the function around it has changed"
    expected = ["traced", "region[0] again", f"traced, since {changed}", "region[2] again"]
    expected += [f"traced, since {changed}", "region[4] again"]
    assert [f"  region[{k}]: {each}." for k, each in enumerate(expected)] == lines[1:]


def test_graph_modes_and_wrappers_are_traced() -> None:
    """REG-23: saved-tensor hooks around, a checkpoint around, wrapper subclasses."""

    def made(mark: Any) -> Any:
        region = mark(lambda a, b: (a * b).sin())

        def program(x: Any, w: Any) -> Any:
            for _ in range(2):
                with al.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                    x = region(x, w)
            x = al.checkpoint(lambda h: region(region(h, w), w), x)
            both = TwoTensor(x, w)
            return region(both, both).a.sum() + region(both, both).b.sum()

        return program

    report = check_same(made, lambda: (al.ones(2, requires_grad=True), al.ones(2) * 2.0))
    why = [call.why for call in report.calls]
    assert ["saved-tensor hooks or anomaly mode are active"] * 2 == why[:2]
    assert ["it is within a checkpoint"] * 2 == why[2:4]
    assert ["it is given a TwoTensor, a wrapper subclass"] * 2 == why[4:6]


class Block(nn.Module):
    """A block that reads parameters, numbers and other Modules, and that draws."""

    def __init__(self, rate: float = 0.5) -> None:
        self.first, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.drop, self.scale = nn.Dropout(rate), 2.0

    def forward(self, x: Any) -> Any:
        return x + self.drop(self.first(self.norm(x)).relu()) * self.scale


class MarkedBlock(Block):
    forward = al.nested_compile_region(Block.forward)


class Other(nn.Module):
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @al.nested_compile_region
    def forward(self, x: Any) -> Any:
        return self.inner(self.inner(x)) * 0.5


def test_modules_of_other_attributes_are_traced() -> None:
    """REG-22, REG-26: parameters are operands, numbers are compared, draws are new."""

    def made(mark: Any) -> Any:
        kind = Block if mark is unmarked else MarkedBlock
        al.manual_seed(0)
        blocks = [kind() for _ in range(4)] + [kind(0.25), kind()]
        blocks[3].scale = 3.0
        return nn.Sequential(*blocks)

    report = check_same(made, lambda: (al.ones(2, 4),))
    of = [call.of for call in report.calls]
    assert ["", "", "Block[1]", "", "", "Block[1]"] == of
    assert "attribute 'scale' of MarkedBlock is 3.0, not 2.0" in str(report)


def test_a_question_that_makes_an_input_is_asked_in_each_call() -> None:
    """REG-23: `requires_grad` of a Module's tensor that no op takes."""

    class Asks(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(al.ones(2))

        def forward(self, x: Any) -> Any:
            return x.sin() if self.weight.requires_grad else x.cos()

    class MarkedAsks(Asks):
        forward = al.nested_compile_region(Asks.forward)

    def made(mark: Any) -> Any:
        kind = Asks if mark is unmarked else MarkedAsks
        return nn.Sequential(*[kind() for _ in range(3)])

    report = check_same(made, lambda: (al.ones(2),))
    assert ["it does more than ops to the capture"] * 3 == [call.why for call in report.calls]


def test_regions_within_regions_have_marks_of_their_own() -> None:
    """REG-21, REG-27"""
    al.manual_seed(0)
    net = nn.Sequential(*[Other(MarkedBlock()) for _ in range(3)])
    found = stages_of(net, al.ones(2, 4, requires_grad=True))
    marks = dict.fromkeys(str(node.tags.get("region")) for node in found["capture"].calls)
    name = "Other[{0}]/Block[{1}]"
    nested = [mark for mark in marks if "/" in mark]
    assert [name.format(k, n) for k in range(3) for n in (2 * k, 2 * k + 1)] == nested
    assert any(call.within for call in report_of(found).calls)


def test_an_exception_in_a_region_passes() -> None:
    """REG-28"""
    calls = []

    def region(x: Any) -> Any:
        calls.append(1)
        y = x.exp()
        return y @ al.ones(7)

    marked = al.nested_compile_region(region)

    def program(x: Any) -> Any:
        for _ in range(2):
            with pytest.raises(al.ShapeError):
                marked(x)
        return x.sin()

    assert al.compile(program)(al.ones(2)).tolist() == al.ones(2).sin().tolist()
    assert [1, 1] == calls


def test_eager_calls_are_the_function() -> None:
    """REG-20"""
    marked: Any = al.nested_compile_region(image)
    assert (image.__name__, image) == (marked.__name__, marked.__wrapped__)
    assert [1.0, 1.0] == al.nested_compile_region(lambda x, *, y: x * y)(al.ones(2), y=1.0).tolist()


def test_printed_graphs_name_the_region() -> None:
    """REG-29"""

    @al.nested_compile_region
    def scaled(x: Any) -> Any:
        return x * 2.0

    found = stages_of(lambda x: scaled(scaled(x)).sin(), al.ones(2))
    lines = str(found["simplify"]).splitlines()
    marks = ["# region: scaled[0]", "# region: scaled[1]", "# outside of regions"]
    assert marks == [line.strip() for line in lines if "region" in line and ":" not in line[20:]]


def test_logs_keep_no_tensor_alive() -> None:
    """GEN-8: without a run of the garbage collector."""

    def alive(fails: bool) -> bool:
        block = MarkedBlock()

        def program(block: Any, x: Any) -> Any:
            x = block(block(x))
            if fails:
                raise ValueError
            return x

        held = ref(block.first.weight)
        with suppress(ValueError):
            al.compile(program, backend="reference").prepare(block, al.ones(2, 4))
        del block
        return held() is not None

    gc.collect()
    gc.disable()
    try:
        assert [False, False] == [alive(fails) for fails in (False, True)]
    finally:
        gc.enable()
