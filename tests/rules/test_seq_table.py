"""SEQ: the table of a model, whose op a node is, and what it is told of that op."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

import aotlite as al
from aotlite import nn
from aotlite.eager.base.modes import STATE
from aotlite.inspect import stages_of
from aotlite.ir import serialize
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.ir.provenance.call_names import name_in, source_name
from aotlite.ir.provenance.location import place_of
from tests.rules.helpers.seq_model import Model, arguments

GOLDENS = Path(__file__).parents[1] / "goldens"
KEPT = {"keep_inference_input_mutations": True}


def table(graph: Graph) -> str:
    return graph.sequence_table(print_output=False)


def names_of(function: Any, *args: Any) -> list[str]:
    rows = table(stages_of(function, *args)["capture"]).splitlines()[1:]
    return [row.split("|")[2] for row in rows]


# ---------------------------------------------------------------------------------------- golden
@pytest.mark.rules("SEQ-1", "SEQ-2", "SEQ-3")
@pytest.mark.parametrize("stage", ["joint", "simplify", "forward", "backward"])
def test_the_table_of_a_model_is_the_golden(stage: str, pytestconfig: Any) -> None:
    model = al.compile(Model(), backend="reference")
    found = table(stages_of(model, *arguments())[stage])
    path = GOLDENS / f"sequence_{stage}.txt"
    if pytestconfig.getoption("--update-goldens"):
        path.write_text(f"{found}\n", "utf-8")
    assert path.read_text("utf-8") == f"{found}\n"
    al.compile(lambda x: (x * x).sum())(al.ones(2, requires_grad=True)).backward()
    assert found == table(stages_of(model, *arguments())[stage])


@pytest.mark.rules("SEQ-1", "SEQ-2")
def test_the_model_has_the_numbers_of_its_parts() -> None:
    """What must not be lost in a golden that is rewritten: who has which number."""
    joint = stages_of(Model(), *arguments())["joint"]
    rows = [row.split("|") for row in table(joint).splitlines()]
    own = {name: number for number, op, name in rows[1:] if op not in ("mul_", "add_", "mul")}
    parts = ["conv1", "bn1", "relu1", "add", "flatten", "fc1", "loss_fn"]
    assert parts == sorted(parts, key=lambda name: int(own[name]))
    numbers = {number for number, _, name in rows[1:] if not name}
    assert {"3", "7", "8"} == {str(n) for n in range(11)} - numbers  # backwards that emit no op
    assert ["0", "add", ""] == rows[-1]  # the two uses of the argument


def trained(model: Any, x: Any, weight: Any) -> Any:
    """A step: its backward is part of the forward."""
    weight.grad = None
    loss = (model(x) * weight).sum()
    loss.backward()
    with al.no_grad():
        weight.sub_(0.1 * weight.grad)
    return (loss.detach() + 1).exp()


class Doubled(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Tanh()

    def forward(self, x: Any) -> Any:
        return self.inner(x) * 2


@pytest.mark.rules("SEQ-1", "SEQ-2", "SEQ-5", "DBL-3", "JNT-7", "JNT-8")
def test_a_backward_in_the_function_has_backward_rows() -> None:
    """In each stage; it stays in the forward, and the ops behind it go on counting."""
    model = Doubled()
    stages = stages_of(trained, model, al.ones(2), al.ones(2, requires_grad=True))
    for stage in ("capture", "functionalize", "simplify"):
        calls = stages[stage].calls
        assert {node.phase for node in calls} == {Phase.FORWARD}
        rows = [row.split("|") for row in table(stages[stage]).splitlines()[1:]]
        assert [bool(name) for _, _, name in rows] == [not node.is_backward for node in calls]
        inner = [int(number) for number, _, name in rows if not name]
        outer = [int(number) for number, _, name in rows if name]
        assert inner == sorted(inner, reverse=True) and outer == sorted(outer)
        names = {int(number): op for number, op, name in rows if name and op != "detach"}
        assert set(inner) <= set(names), "the numbers of ops of the forward"
        assert [names[n] for n in dict.fromkeys(inner)] == ["sum", "mul"]
        assert names[max(names)] == "exp"
    backward = [node for node in stages["capture"].calls if node.is_backward]
    lines = {n.target.name: place_of(n.location).text for n in backward if n.location is not None}
    assert lines["mul"] == lines["expand"] == "loss = (model(x) * weight).sum()"


def penalized(x: Any) -> Any:
    found: Any = al.autograd.grad((x * x * x).sum(), [x], create_graph=True)[0]
    return found.sum()


@pytest.mark.rules("SEQ-1", "DBL-3")
def test_what_differentiates_a_backward_in_the_function_has_the_ops_numbers() -> None:
    joint = stages_of(penalized, al.ones(2, requires_grad=True))["joint"]
    known = {n.sequence for n in joint.calls if not n.is_backward}
    for node in joint.calls:
        assert node.is_backward <= (node.sequence in known)
        assert (node.phase is Phase.BACKWARD) <= node.is_backward
    assert {n.sequence for n in joint.calls if n.phase is Phase.BACKWARD} == {0, 1, 3}


@pytest.mark.rules("SEQ-1", "DBL-3")
def test_the_recorder_goes_on_as_it_was_after_a_backward_that_fails() -> None:
    def caught(x: Any) -> Any:
        y = x.exp()
        total = y.sum()
        y.zero_()
        try:
            total.backward()
        except al.AutogradError:
            pass
        return x.sin()

    calls = stages_of(caught, al.ones(2, requires_grad=True))["capture"].calls
    assert (calls[-1].target.name, calls[-1].is_backward, calls[-1].sequence) == ("sin", False, 3)


def test_the_table_is_printed_and_returned(capsys: pytest.CaptureFixture[str]) -> None:
    graph = stages_of(lambda x: x.sin(), al.ones(2))["capture"]
    found = graph.sequence_table()
    assert f"{found}\n" == capsys.readouterr().out
    assert "SeqNr|OrigAten|SrcFn\n0|sin|sin" == found


# ----------------------------------------------------------------------------------------- names
CALLS: dict[str, tuple[str, Any]] = {
    "method": ("cumsum", lambda x: x.cumsum(0)),
    "function": ("softmax", lambda x: nn.functional.softmax(x, 0)),
    "operator": ("matmul", lambda x: x @ x),
    "negation": ("neg", lambda x: -x),
    "comparison": ("lt", lambda x: x < 3),
    "index": ("getitem", lambda x: x[0]),
    "property": ("T", lambda x: x.T),
    "on several lines": (
        "flip",
        lambda x: x.flip(
            0,
        ),
    ),
    "inner": ("exp", lambda x: x.exp()),
    "ä": ("abs", lambda x: ("ä", x.abs())[1]),
}


@pytest.mark.rules("SEQ-2")
@pytest.mark.parametrize(("name", "function"), CALLS.values(), ids=CALLS)
def test_outside_of_modules_the_name_is_what_the_line_calls(name: str, function: Any) -> None:
    assert {name} == set(names_of(function, al.ones(2, 2)))


@pytest.mark.rules("SEQ-2")
def test_statements_name_what_they_do() -> None:
    def body(x: Any) -> Any:
        y = x.clone()
        y += 1
        y[0] = 2
        for row in y:
            y = row
        return y

    names = names_of(body, al.ones(2, 2))
    assert ["clone", "add_", "setitem"] == names[:3]
    assert {"body"} == set(names[-1:])  # a loop calls nothing by a name


@pytest.mark.rules("SEQ-2")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("flip(\n    0,\n)", "flip"),  # later Pythons begin at the name where lines break
        ("x @ y", "matmul"),
        ("x //= 2", "floor_divide_"),
        ("~x", "bitwise_not"),
        ("a < b < c", "lt"),
        ("(f or g)(x)", None),
        ("not x", None),
        ("x in y", None),
        ("x", None),
        ("x; y", None),
        ("x = )", None),
        ("", None),
    ],
)
def test_texts_have_names(text: str, name: str | None) -> None:
    assert name == name_in(text)


@pytest.mark.rules("SEQ-2")
def test_where_the_source_is_not_known_the_function_gives_the_name() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def unknown(x):\n    return x.sin()", "/nowhere.py", "exec"), scope)
    assert ["unknown"] == names_of(scope["unknown"], al.ones(2))
    file = "/nowhere.py"
    linecache.cache[file] = (9, None, ["def unknown(x):\n", "    this is no Python\n"], file)
    try:
        assert ["unknown"] == names_of(scope["unknown"], al.ones(2))
    finally:
        del linecache.cache[file]


@pytest.mark.rules("SEQ-2")
def test_a_graph_from_a_file_has_numbers_and_paths() -> None:
    graph = stages_of(Model(), *arguments())["joint"]
    read = serialize.loads(serialize.dumps(graph))
    assert [(n.sequence, n.module) for n in graph.calls if not n.is_sum] == [
        (n.sequence, n.module) for n in read.calls
    ][:-1]
    assert "0|conv2d|conv1" in table(read)
    (relu,) = [n for n in read.calls if n.target.name == "relu"]
    assert relu.location is not None and "forward" == source_name(relu.location)


# --------------------------------------------------------------------------------------- Modules
class Shared(nn.Module):
    """A Module under two names, one in a plain list, one that only the function knows."""

    def __init__(self) -> None:
        self.zero = nn.Linear(2, 2)
        self.same = self.zero
        self.listed = [nn.ReLU()]

    def forward(self, x: Any) -> Any:
        x = self.same(x)
        x = self.listed[0](x)
        x = nn.Sequential(nn.Tanh(), self.zero)(x)
        return x.sin()


@pytest.mark.rules("SEQ-2")
def test_modules_have_the_first_path_that_leads_to_them() -> None:
    names = names_of(Shared(), al.ones(1, 2))
    assert ["zero", "zero", "listed.0", "0", "zero", "zero", "sin"] == names


@pytest.mark.rules("SEQ-2")
def test_paths_begin_at_the_outermost_module_that_is_called() -> None:
    inner, outer = Model(), Shared()
    calls = stages_of(lambda x: outer(inner.fc1(x)[:, :2]), al.ones(1, 32))["capture"].calls
    assert ["", "", "", "zero"] == [node.module for node in calls[:4]]


class Failing(nn.Module):
    def __init__(self) -> None:
        self.inner = Raising()

    def forward(self, x: Any) -> Any:
        try:
            self.inner(x)
        except ValueError:
            return x.cos()


class Raising(nn.Module):
    def forward(self, x: Any) -> Any:
        x.exp()
        raise ValueError


@pytest.mark.rules("SEQ-2")
def test_a_module_that_raises_is_left() -> None:
    assert ["inner", "cos"] == names_of(Failing(), al.ones(2))


@pytest.mark.rules("SEQ-2")
def test_calls_are_noted_only_while_a_function_is_captured() -> None:
    """In eager, calling a Module is plain Python."""
    plain = nn.Module.__call__
    seen = []

    def body(x: Any) -> Any:
        seen.append(nn.Module.__call__)
        return nn.ReLU()(x)

    al.compile(body)(al.ones(2))
    assert seen and seen[0] is not plain
    assert nn.Module.__call__ is plain and STATE.recorder is None


# ---------------------------------------------------------------------------------------- records
@pytest.mark.rules("SEQ-5")
def test_a_backward_node_has_the_records_of_the_op_it_differentiates() -> None:
    joint = stages_of(Model(), *arguments())["joint"]
    by_op = {node.target.name: node for node in joint.calls}
    pairs = [("relu_backward", "relu"), ("conv2d_weight", "conv2d"), ("sign", "abs")]
    for backward, forward in pairs:
        one, other = by_op[backward], by_op[forward]
        assert Phase.BACKWARD is one.phase and one.module
        assert (one.sequence, one.module) == (other.sequence, other.module)
        assert one.location is not None and one.location == other.location


@pytest.mark.rules("SEQ-1", "SEQ-5")
def test_of_ops_that_share_a_number_the_one_with_the_tape_node_gives_its_records() -> None:
    """The running statistics of the normalization have the number of what comes next."""
    joint = stages_of(Model(), *arguments())["joint"]
    numbers = {n.sequence for n in joint.calls if n.target.name in ("relu", "mul_")}
    assert 1 == len(numbers)
    (node,) = [n for n in joint.calls if n.target.name == "relu_backward"]
    assert "relu1" == node.module


@pytest.mark.rules("SEQ-4", "SEQ-5")
def test_sums_of_gradients_are_of_no_op() -> None:
    class Uses(nn.Module):
        def __init__(self) -> None:
            self.left, self.right = nn.Tanh(), nn.Sigmoid()

        def forward(self, x: Any) -> Any:
            y = x.exp()
            return (self.left(y) + self.right(y) + y).sum()

    joint = stages_of(Uses(), al.ones(2, requires_grad=True))["joint"]
    sums = [node for node in joint.calls if node.is_sum]
    assert ["add", "add"] == [node.target.name for node in sums]
    assert all((node.module, dict(node.tags)) == ("", {}) for node in sums)
    assert [2, 1] == [node.sequence for node in sums]  # those of the uses that came later
    own = [node for node in joint.calls if node.phase is Phase.BACKWARD and not node.is_sum]
    assert {"left", "right", ""} == {node.module for node in own}


@pytest.mark.rules("SEQ-5", "FUN-26")
def test_a_closing_copy_has_the_line_and_the_module_of_the_write() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            y = x.sum()
            self.inner(x)
            return y * 2.0

    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            x[0].mul_(3.0)  # the write

    compiled = al.compile(Writes(), **KEPT)
    x = al.ones(2, 2)
    compiled(x)
    assert [[3.0, 3.0], [1.0, 1.0]] == x.tolist()
    (copied,) = [node for node in compiled.forward_graph.calls if node.target is COPY_]
    assert copied.location is not None
    assert "x[0].mul_(3.0) # the write" == place_of(copied.location).text
    assert "inner" == copied.module
    (write,) = [node for node in compiled.forward_graph.calls if node.target.name == "mul"][:1]
    assert write.sequence == copied.sequence


@pytest.mark.rules("SEQ-5")
def test_passes_carry_records_on() -> None:
    graph = stages_of(Model(), *arguments())["simplify"]
    edit = graph.edit()
    (relu,) = [node for node in edit.nodes if node.target is al.ir.op.OPS["relu"]]
    with edit.inserting_before(relu):
        made = edit.call(al.ir.op.OPS["abs"], (relu.args[0],))
    edit.replace_all_uses_with(relu.args[0], made)
    edited = edit.graph()
    assert "relu1" == made.module
    after = {node.module for node in edited.calls}
    assert {node.module for node in graph.calls} == after


# ------------------------------------------------------------------------------------------ tags
def tagged(function: Any, *args: Any) -> list[tuple[str, dict[str, Any]]]:
    graph = stages_of(function, *args)["simplify"]
    return [(node.target.name, dict(node.tags)) for node in graph.calls]


@pytest.mark.rules("SEQ-5")
def test_tags_are_copied_when_the_block_is_entered() -> None:
    def body(w: Any) -> Any:
        kept: dict[str, Any] = {"list": [1]}
        with al.annotate(kept):
            kept["list"].append(2)
            kept["more"] = True
            return w.exp()

    before = {"list": [1]}
    found = tagged(body, al.ones(2, requires_grad=True))
    assert [("exp", before), ("mul", before)] == found


@pytest.mark.rules("SEQ-5")
def test_inner_tags_are_added_to_outer_ones_and_end_with_their_block() -> None:
    @al.annotate({"outer": 1, "both": 1})
    def body(x: Any) -> Any:
        with al.annotate({"inner": 2, "both": 2}):
            x = x.sin()
        return x.cos()

    outer = {"outer": 1, "both": 1}
    expected = [("sin", {"outer": 1, "inner": 2, "both": 2}), ("cos", outer), ("exp", {})]
    assert expected == tagged(lambda x: body(x).exp(), al.ones(2))


@pytest.mark.rules("SEQ-5")
def test_a_block_that_raises_is_left() -> None:
    def body(x: Any) -> Any:
        try:
            with al.annotate({"in": True}):
                raise ValueError
        except ValueError:
            return x.sin()

    assert [("sin", {})] == tagged(body, al.ones(2))


def test_tags_change_nothing_in_eager() -> None:
    with al.annotate({"any": 1}):
        assert [2.0, 2.0] == (al.ones(2) * 2).tolist()


class Holder:
    def __init__(self, tensor: Any) -> None:
        self.held = {"deep": [tensor]}


@pytest.mark.rules("SEQ-5")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("tag", [lambda x: x, lambda x: [x * 2], Holder, lambda x: Holder(x).held])
def test_a_tag_that_holds_a_tensor_is_refused(tag: Any, compiled: bool) -> None:
    def body(x: Any) -> Any:
        with al.annotate({"good": 1, "bad": tag(x)}):
            return x.sin()

    with pytest.raises(al.ArgumentError) as caught:
        (al.compile(body) if compiled else body)(al.ones(2))
    assert "annotate: the tag 'bad' holds a tensor, expected other data" == str(caught.value)


@pytest.mark.rules("SEQ-5")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_tag_that_cannot_be_copied_is_refused(compiled: bool) -> None:
    def body(x: Any) -> Any:
        with al.annotate({"file": (number for number in range(3))}):
            return x.sin()

    with pytest.raises(al.ArgumentError) as caught:
        (al.compile(body) if compiled else body)(al.ones(2))
    expected = "annotate: the tag 'file' is a generator that cannot be copied, expected data"
    assert expected == str(caught.value)
    assert caught.value.__notes__[0].startswith("TypeError: ")


@pytest.mark.parametrize("compiled", [False, True])
def test_a_tag_is_named_by_a_string(compiled: bool) -> None:
    def body(x: Any) -> Any:
        with al.annotate({1: 2}):  # type: ignore[dict-item]
            return x.sin()

    with pytest.raises(al.ArgumentError) as caught:
        (al.compile(body) if compiled else body)(al.ones(2))
    assert "annotate: a tag is named 1, expected a str" == str(caught.value)


def test_nodes_without_a_module_share_nothing_and_cost_nothing() -> None:
    (node,) = stages_of(lambda x: x.sin(), al.ones(2))["capture"].calls
    assert node.scope is None and {} == dict(node.tags) == dict(Node("call", None).tags)
