"""`aotlite.inspect`: stages, sentences and dumps say what was compiled."""

import re
from collections.abc import Sequence

import pytest

import aotlite as al
from aotlite.inspect import (
    dump_to,
    explain_meta,
    explain_partition,
    saved_bytes,
    stages_of,
)
from aotlite.ir.graph import Graph
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.partition import cut
from aotlite.subclasses import TwoTensor


def loss(x, w):
    x[0].mul_(2.0)
    return (x @ w).exp().sum()


def arguments():
    return al.ones(4, 3), al.ones(3, 2).requires_grad_()


def meta_lines(function, *args, **kwargs):
    return explain_meta(stages_of(function, *args, **kwargs)["analyze"]).splitlines()


# ---------------------------------------------------------------------------------------- stages
def test_stages_come_in_order():
    expected = (
        "1 capture",
        "2 analyze",
        "3 convention",
        "4 joint",
        "6 functionalize",
        "7 simplify",
        "8 partition",
        "8 partition, forward",
        "8 partition, backward",
    )
    assert expected == stages_of(loss, *arguments()).names


@pytest.mark.rules("GEN-8")
def test_stages_leave_arguments_as_they_are():
    x, w = arguments()
    stages_of(loss, x, w)
    assert al.ones(4, 3).tolist() == x.tolist()
    assert 0 == x._version


def test_stages_are_found_with_and_without_their_number():
    stages = stages_of(loss, *arguments())
    assert stages["4 joint"] is stages["joint"]
    assert stages["backward"] is stages["partition"].backward
    assert all(isinstance(stages[name], Graph) for name in ("capture", "simplify", "forward"))


def test_unknown_stage_names_the_known_ones():
    stages = stages_of(loss, *arguments())
    with pytest.raises(al.ArgumentError) as caught:
        stages["lower"]
    expected = (
        "inspect: the stage is 'lower', expected one of: capture, analyze, convention, joint, "
        "functionalize, simplify, partition, forward, backward"
    )
    assert expected == str(caught.value)


def test_stages_of_compiled_function_use_its_options_and_add_no_entry():
    def keep(graph):
        return graph

    compiled = al.compile(loss, passes=[keep])
    stages = stages_of(compiled, *arguments())
    assert "pass 'keep'" in stages.names
    assert [] == compiled.entries


def test_every_stage_prints_under_its_purpose():
    text = str(stages_of(loss, *arguments()))
    headers = re.findall(r"^# (\d \w+(?:, \w+)?): \w+", text, re.MULTILINE)
    assert list(stages_of(loss, *arguments()).names) == headers


def test_stages_of_a_function_of_wrappers_print_under_their_purposes():
    pair = TwoTensor(al.ones(3), al.ones(3), requires_grad=True)
    stages = stages_of(lambda x: x.sin().sum(), pair)
    assert "5 desugar" in stages.names
    assert "user's" not in "".join([record.purpose for record in stages])


# ------------------------------------------------------------------------------- metadata: inputs
@pytest.mark.rules("META-16")
def test_meta_of_written_input_says_why_it_needs_no_tangent():
    expected = [
        "primals_0 is argument 0, f32[4, 3]; it does not require grad.",
        "  Its bytes are written in place; version counter +1.",
        "  Its new value needs no tangent: nothing that requires grad is written into it.",
        "primals_1 is argument 1, f32[3, 2]; a leaf that requires grad.",
        "Result 0 is new memory, f32[]; it requires grad.",
        "Tangents arrive in this order: tangents_output_0 for result 0.",
        "Training: argument 1 requires grad and tangents arrive, so a backward graph is made.",
    ]
    assert expected == meta_lines(loss, *arguments())


def no_grad_write(x):
    with al.no_grad():
        x.mul_(2)
    return x.sum()


def detached_write(x):
    x.detach().mul_(2)
    return x.sum()


@pytest.mark.rules("META-16", "FUN-20")
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (no_grad_write, "every write is under no_grad, which leaves its history alone"),
        (detached_write, "it is written through detach(), which leaves its history alone"),
    ],
)
def test_meta_says_how_a_write_spares_the_history(function, reason):
    x = al.ones(3).requires_grad_()
    assert f"  Its new value needs no tangent: {reason}." in meta_lines(function, x)


@pytest.mark.rules("META-2", "META-16")
def test_meta_of_differentiable_write_has_a_tangent():
    lines = meta_lines(lambda x, w: x.mul_(w), al.ones(3), al.ones(3).requires_grad_())
    grad = "it does not require grad, and does afterwards"
    assert f"primals_0 is argument 0, f32[3]; {grad}." in lines
    why = "the write gives it a new history, so it is differentiable"
    assert f"  Its new value needs a tangent: {why}." in lines
    tangent = "tangents_updated_primals_0 for the new value of argument 0"
    assert f"Tangents arrive in this order: {tangent}." in lines
    assert "Result 0 is argument 0 itself, the same object." in lines


@pytest.mark.rules("FUN-18")
def test_meta_of_geometry_change_names_its_steps():
    lines = meta_lines(lambda x: x.t_(), al.ones(2, 3))
    assert "  Its geometry becomes f32[3, 2][1, 3], by .t()." in lines
    assert "  Its bytes are not written; version counter +1." in lines


class Scale(al.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = al.nn.Parameter(al.ones(3))

    def forward(self, x):
        return (x * self.weight).sum()


def test_meta_of_hidden_input_says_where_it_is_read():
    lines = meta_lines(lambda model, x: model(x), Scale(), al.ones(3))
    weight = [line for line in lines if line.startswith("hidden_0")]
    assert 1 == len(weight)
    assert weight[0].startswith("hidden_0 is argument 0")
    assert "f32[3], read from its place at each call; a leaf that requires grad." in weight[0]


# ------------------------------------------------------------------------------ metadata: results
def results(function, *args):
    return [line for line in meta_lines(function, *args) if line.startswith("Result")]


@pytest.mark.rules("META-6")
def test_meta_of_results_says_what_each_is():
    def many(x):
        base = x * 2
        return x, x.t(), base, base[0], base, 3, "text"

    expected = [
        "Result 0 is argument 0 itself, the same object.",
        "Result 1 is a view of argument 0, rebuilt at each call by .t().",
        "Result 2 is new memory, f32[2, 3].",
        "Result 3 is a view of result 2, rebuilt at each call by .select(0, 0).",
        "Result 4 is result 2 again, the same object.",
        "Result 5 is no tensor: 3.",
        "Result 6 is no tensor: 'text'.",
    ]
    assert expected == results(many, al.ones(2, 3))


def test_meta_of_results_says_what_geometry_ops_they_went_through():
    def moved(x):
        y = x * 2
        view = y[0]
        y.t_()
        return y, view.unsqueeze_(0), x.view(6).unsqueeze_(1)

    expected = [
        "Result 0 is new memory, f32[2, 3], its version counter at 2; "
        "then its geometry becomes f32[3, 2][1, 3], by .t().",
        "Result 1 is a view of result 0, rebuilt at each call by .select(0, 0); "
        "then its geometry becomes f32[1, 3], by .unsqueeze(0).",
        "Result 2 is a view of argument 0, rebuilt at each call by .view((6,)); "
        "then its geometry becomes f32[6, 1], by .unsqueeze(1).",
    ]
    assert expected == results(moved, al.ones(2, 3))


def test_meta_of_restricted_view_says_that_it_was_written_since():
    def stale(x):
        y = x * 2
        first, second = y.unbind(0)
        y.mul_(3)
        return first, second

    lines = results(stale, al.ones(2, 3).requires_grad_())
    kind = "an output of an op that returns several views"
    node = "with the tape node of before a write"
    end = f"by .select(0, 0), and is {kind}, written since, {node}; it requires grad."
    assert lines[0].endswith(end)


def test_meta_of_leaf_made_inside_says_so():
    def makes_leaf(x):
        w = al.ones(3).requires_grad_()
        return w, x * 2

    lines = meta_lines(makes_leaf, al.ones(3))
    assert "Result 0 is new memory, f32[3], a leaf; it requires grad." in lines
    assert "Inference: no input requires grad, so no backward graph is made." == lines[-1]


def test_meta_of_a_view_under_no_grad_says_where_histories_end():
    leaf = al.ones(3).requires_grad_()
    with al.no_grad():
        view = leaf.view(3, 1)
    lines = meta_lines(lambda x: x * 2, view)
    ends = "No tangents arrive: none would reach an input, so the history of result 0 ends there."
    assert ends in lines
    assert "Inference: no gradient reaches an input, so no backward graph is made." == lines[-1]


@pytest.mark.rules("META-9", "META-12")
def test_meta_of_views_of_one_intermediate_names_their_base():
    lines = meta_lines(lambda x: (x * 2).unbind(0), al.ones(2, 3).requires_grad_())
    kind = "an output of an op that returns several views"
    row = "is a view of intermediate base 0, rebuilt at each call by .select(0, {})"
    assert f"Result 1 {row.format(1)}, and is {kind}; it requires grad." in lines
    base = "Intermediate base 0 is f32[2, 3], returned besides the results because"
    assert f"{base} results 0 and 1 are its views; it requires grad." in lines
    assert "Tangents arrive in this order: tangents_base_0 for intermediate base 0." in lines


def test_meta_of_module_result_says_it_is_the_argument():
    assert ["Result 0 is argument 0 itself, which is no tensor."] == results(lambda m: m, Scale())


@pytest.mark.rules("GEN-5")
def test_meta_says_why_there_is_no_backward():
    x = al.ones(2, 3)
    no_input = "Inference: no input requires grad, so no backward graph is made."
    assert no_input == meta_lines(lambda x: x * 2, x)[-1]
    views = meta_lines(lambda x: x.t(), al.ones(2, 3).requires_grad_())
    assert views[-1].startswith("Inference: all that is differentiable is inputs and views of")


@pytest.mark.rules("META-24")
def test_meta_says_that_grad_mode_is_left_changed():
    def switch(x):
        al.set_grad_enabled(False)
        return x * 2

    mode = al.is_grad_enabled()
    assert "Each call leaves grad mode off." == meta_lines(switch, al.ones(2))[-1]
    assert mode is al.is_grad_enabled()


# -------------------------------------------------------------------------------------- partition
def partition_of(function, *args, **options):
    return stages_of(al.compile(function, **options), *args)["partition"]


def test_saved_view_of_a_saved_value_counts_once():
    def pair(x):
        y = x.exp()
        return (y.sum() * y[0]).sum()

    partition = partition_of(pair, al.ones(4, 3).requires_grad_())
    assert "no bytes of its own (memory of saved_exp)" in explain_partition(partition)
    lines = explain_partition(partition).splitlines()
    sizes = [int(size) for line in lines[2:] for size in re.findall(r", (\d+) bytes", line)]
    assert saved_bytes(partition) == sum(sizes)


def test_saved_view_of_an_intermediate_counts_all_that_it_keeps_alive():
    partition = partition_of(lambda x: (x * 2)[0].sin().sum(), al.ones(4, 3).requires_grad_())
    text = explain_partition(partition)
    assert "saved_select: f32[3], 48 bytes (with all that it is a view of); saved" in text
    assert 48 == saved_bytes(partition)


def test_saved_inputs_and_results_cost_nothing():
    def product(x, w):
        y = x * w
        return y.exp(), y.sum()

    partition = partition_of(product, al.ones(3).requires_grad_(), al.ones(3).requires_grad_())
    text = explain_partition(partition)
    assert "saved_primals_0: f32[3], no bytes of its own (memory of primals_0)" in text
    assert "saved_exp: f32[3], no bytes of its own (memory of result 0)" in text
    assert 0 == saved_bytes(partition)


def test_recomputed_values_are_listed_with_their_cost():
    def save_inputs(graph):
        return cut(graph, {graph.placeholders[0]: "it is an input"})

    x = al.ones(4).requires_grad_()
    text = explain_partition(partition_of(lambda x: x.sin().exp().sum(), x, partition=save_inputs))
    row = "saved_primals_0: f32[4], no bytes of its own (memory of primals_0)"
    assert f"{row}; saved because it is an input." in text
    assert "Recomputed in the backward: sin (pointwise), exp (pointwise)." in text


def test_inference_partition_is_one_graph():
    text = explain_partition(partition_of(lambda x: x * 2, al.ones(3)))
    assert (
        "The graph has 1 ops and is the forward; there is no backward: no input requires grad."
    ) == text


# ------------------------------------------------------------------------------------------ dumps
def test_dumped_graphs_read_back_as_the_same_graphs(tmp_path):
    seen = []
    dump = dump_to(tmp_path)

    def observer(stage, made):
        dump(stage, made)
        seen.append((stage, made))

    al.compile(loss, observer=observer)(*arguments())
    files = sorted(tmp_path.glob("*.py"))
    graphs = [made for _, made in seen if isinstance(made, Graph)]
    assert len(graphs) == len(files) == 6
    for graph, file in zip(graphs, files, strict=True):
        assert structurally_equal(graph, graph_from_source(file.read_text("utf-8"))) is None


@pytest.mark.rules("LOG-4")
def test_graphs_are_named_after_the_function_and_their_half():
    stages = stages_of(loss, *arguments())
    names = [each.made.name for each in stages if isinstance(each.made, Graph)]
    assert ["loss"] * 4 + ["loss_forward", "loss_backward"] == names
    assert stages["forward"].code.startswith("def loss_forward(")


@pytest.mark.rules("GEN-9", "LOG-4")
def test_dumps_are_numbered_through_the_process(tmp_path):
    """GEN-9; numbers before these belong to other tests of this process."""
    compiled = al.compile(loss, dump=str(tmp_path))
    compiled(*arguments())
    compiled(al.ones(5, 3), arguments()[1])
    numbers = sorted({int(path.name.partition("_")[0]) for path in tmp_path.iterdir()})
    assert 2 == len(numbers) and numbers[1] == numbers[0] + 1


@pytest.mark.rules("GEN-9")
def test_one_observer_numbers_each_compilation(tmp_path):
    compiled = al.compile(loss, observer=dump_to(tmp_path))
    compiled(*arguments())
    compiled(al.ones(5, 3), arguments()[1])
    conditions = list(tmp_path.glob("*_conditions.txt"))  # of the second, which has a symbol
    assert (19, 1) == (len(list(tmp_path.iterdir())), len(conditions))


@pytest.mark.rules("LOG-4")
def test_dumped_passes_lie_between_simplify_and_partition(tmp_path):
    def first(graph):
        return graph

    al.compile(loss, dump=str(tmp_path), passes=[first, first])(*arguments())
    names = [path.name.partition("_")[2] for path in sorted(tmp_path.iterdir())]
    assert [
        "loss_7_simplify.py",
        "loss_7_simplify_1_pass_first.py",
        "loss_7_simplify_2_pass_first.py",
        "loss_8_partition.txt",
    ] == names[5:9]


def test_an_observer_that_dumps_into_a_file_is_refused_when_it_is_made(tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")
    with pytest.raises(al.ArgumentError) as caught:
        dump_to(path)
    assert f"dump: the folder is {str(path)!r}, expected one that can be made" == str(caught.value)
    assert "mine" == path.read_text()


# ---------------------------------------------------------------------------------------- symbols
def scores(x, w, b):
    found = x @ w + b
    if found.shape[0] > 3:
        found = found.relu()
    return (found.softmax(-1) * 2).sum(), found.view(-1)


def sized_arguments():
    return tuple(al.ones(*shape).requires_grad_() for shape in ((5, 4), (4, 6), (6,)))


def guards_of(**options):
    compiled = al.compile(scores, dynamic=True, backend="reference", **options)
    compiled(*sized_arguments())
    return [guard.text for region in compiled.regions() for guard in region.guards]


def look_at(stage, made):
    """Asks all that is asked about a graph by who looks at it."""
    if isinstance(made, Graph):
        made.print_tabular(print_output=False)
        made.sequence_table(print_output=False)
        assert made.edit().graph().code == made.code
        for node in made.placeholders:
            assert node.meta.numel > 0 and node.meta.span > 0
    else:
        str(made)


@pytest.mark.rules("DYN-8")
def test_who_looks_at_a_region_adds_no_guard(tmp_path):
    """Neither dumps, whose sentences have bytes and sort by them, nor observers."""
    expected = guards_of()
    assert "s0 > 3" in expected
    assert expected == guards_of(dump=str(tmp_path))
    assert expected == guards_of(observer=look_at)
    assert expected == guards_of(verify=True)


def test_sentences_of_a_region_have_its_sizes():
    compiled = al.compile(scores, dynamic=True, backend="reference")
    compiled(*sized_arguments())
    lines = explain_meta(compiled.meta).splitlines()
    assert "primals_0 is argument 0, f32[s0, s1]; a leaf that requires grad." == lines[0]
    said = explain_partition(compiled.partition)
    assert "saved_softmax: f32[s0, s3], 4*s0" in said
    assert " bytes; saved because the backward uses it." in said
    stages = stages_of(compiled, *sized_arguments())
    assert 'primals_0: "f32[s0, s1]"' in stages["simplify"].code
    rows = stages["capture"].print_tabular(print_output=False).splitlines()
    (row,) = [row.split() for row in rows if " matmul " in row]
    assert ["call", "matmul", "matmul", "primals_0,", "primals_1", "f32[s0,", "s3]", "0"] == row


@pytest.mark.rules("DYN-8", "DYN-11")
def test_stages_have_the_conditions_of_the_region():
    compiled = al.compile(scores, dynamic=True, backend="reference")
    made = stages_of(compiled, *sized_arguments())["conditions"]
    assert guards_of() == [guard.text for guard in made.guards]
    assert made.proof.is_proved or made.proof.searched
    hints = [(each.name, each.source, each.hint, each.room) for each in made.symbols]
    assert ("s0", "size 0 of argument 0", 5, (0, None)) == hints[0]
    assert 5 == len(hints)
    text = str(made)
    assert all(f"\n  {guard.text}\n" in text for guard in made.guards)
    assert "in scores: if found.shape[0] > 3:\n" in text


@pytest.mark.rules("DYN-3")
def test_conditions_name_dimensions_and_their_bounds():
    batch = al.Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}, "y": {0: batch}}
    compiled = al.compile(lambda x, y: x + y, dynamic_shapes=shapes, backend="reference")
    made = stages_of(compiled, al.ones(4, 3), al.ones(4, 3))["conditions"]
    (symbol,) = made.symbols
    places = "size 0 of argument 0 and size 0 of argument 1"
    assert f"s0 is 4 in this call, 2 to 64 in others: {places}, dimension 'batch'" == str(symbol)


@pytest.mark.rules("DYN-8", "DYN-27")
def test_conditions_on_floats_are_with_those_on_sizes():
    def clipped(x, rate):
        return x * rate if rate > 0.5 else x

    compiled = al.compile(clipped, dynamic=True, backend="reference")
    text = str(stages_of(compiled, al.ones(4), 0.75)["conditions"])
    assert "  argument 1 > 0.5" in text
    assert "in clipped: return x * rate if rate > 0.5 else x\n" in text


@pytest.mark.rules("DYN-24")
def test_a_region_without_a_dead_condition_is_shown_again():
    def longer(x):
        if x.shape[0] > 3:
            _ = 1
        return x * 2

    shown = []

    def observe(stage, made):
        if stage == "8 partition, conditions":
            shown.append([guard.text for guard in made.guards])

    compiled = al.compile(longer, dynamic=True, backend="reference", observer=observe)
    compiled(al.ones(5))
    assert [["s0 > 3"]] == shown
    compiled.regions(witnesses=True)
    assert [] == shown[-1]


@pytest.mark.rules("DYN-8", "PIP-9")
def test_dumps_have_the_conditions_of_each_entry(tmp_path):
    def halved(x):
        return x.reshape(-1, 2).sum() if x.shape[0] % 2 == 0 else x.sum()

    compiled = al.compile(halved, dynamic=True, backend="reference", dump=str(tmp_path))
    for size in (4, 6, 5):
        compiled(al.ones(size))
    files = sorted(tmp_path.glob("*_halved_8_partition_conditions.txt"))
    even, odd = [file.read_text() for file in files]
    assert "\n  s0 % 2 == 0\n    test_inspect.py:" in even
    assert "\n  s0 % 2 != 0\n    test_inspect.py:" in odd


def test_errors_that_are_recorded_are_told_without_marks():
    """The texts of eager's errors have places for numbers, which are not printed."""

    def spoiled(x, w):
        y = x @ w
        x.mul_(2.0)
        return y

    compiled = al.compile(spoiled, dynamic=True, backend="reference")
    compiled(al.ones(5, 4), al.ones(4, 6).requires_grad_())
    words = "a saved tensor f32[s0, s1] is at version 1, expected version 0"
    assert words in explain_meta(compiled.meta)
    assert words in explain_partition(compiled.partition)


def test_what_is_asked_of_a_region_later_is_not_kept():
    """Numbers of the hints would be those of other sizes, too."""
    compiled = al.compile(scores, dynamic=True, backend="reference")
    compiled(*sized_arguments())
    meta = compiled.forward_graph.placeholders[0].meta
    table = meta.shape[0].table
    before = dict(table.cache)
    assert meta.span > 0
    look_at("8 partition, forward", compiled.forward_graph)
    assert before == table.cache


@pytest.mark.rules("DYN-15")
def test_tables_of_entries_are_sequences():
    compiled = al.compile(lambda x: x * 2, dynamic=False, backend="reference")
    for size in (2, 3, 4):
        compiled(al.ones(size))
    for table in (compiled.regions(), compiled.explain_recompiles()):
        assert isinstance(table, Sequence)
        first, second, third = table
        assert (table[0], table[-1], table[1:]) == (first, third, (second, third))
        assert table.index(second) == 1 and second in table
        with pytest.raises(IndexError):
            table[3]
