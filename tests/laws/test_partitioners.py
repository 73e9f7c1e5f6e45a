"""The laws of partitioners hold for ours, and each rejects the wrong one that is meant for it."""

import importlib.util
import itertools
from pathlib import Path

import attrs
import pytest

from aotlite.ir.graph import Graph, Phase, output_node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Gradient, Output, Saved
from aotlite.ir.op import OPS
from aotlite.partition import cut, default_partition, min_cut_rematerialization_partition
from aotlite.testing import laws

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_partitioner.py"


def example():
    spec = importlib.util.spec_from_file_location("own_partitioner", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.recompute_what_is_cheap


@pytest.mark.rules("PART-8")
@pytest.mark.parametrize(
    "own",
    [default_partition, min_cut_rematerialization_partition, example()],
    ids=lambda f: f.__name__,
)
def test_right_partitioners_obey_every_law(own):
    found = laws.check_partitioner(own)
    assert tuple(law.name for law in laws.PARTITIONER_LAWS) == found.laws
    assert 28 == found.cases


def saves_inputs(graph):
    """Seeds too, which are nobody's: the run time makes them for each call."""
    inputs = [n for n in graph.nodes if n.op == "placeholder" and n.phase.value == "forward"]
    return cut(graph, dict.fromkeys(inputs, "it is there"))


def test_a_partitioner_may_save_a_seed():
    assert 28 == laws.check_partitioner(saves_inputs).cases


# ---------------------------------------------------------------------------------- wrong ones
def with_outputs(graph, change):
    """The graph with the outputs that `change(role, value)` gives."""
    pairs = zip(graph.output_roles, graph.outputs, strict=True)
    outputs = [change(role, value) for role, value in pairs]
    return Graph((*graph.nodes[:-1], output_node(outputs, graph.output_roles)), graph.name)


def emitting(graph, emit):
    """The graph with one more node, which `emit(build)` gives, and its outputs as `emit` says."""
    build = Builder(graph.name)
    build.nodes.extend(graph.nodes[:-1])
    outputs = emit(build, list(graph.outputs))
    return build.finish(outputs, graph.output_roles)


def gives_the_joint(graph):
    return graph


def without_gradients(graph):
    roles = [role for role in graph.output_roles if not isinstance(role, Gradient)]
    values = [v for r, v in zip(graph.output_roles, graph.outputs, strict=True) if r in roles]
    kept = Graph((*graph.nodes[:-1], output_node(values, roles)), graph.name)
    return default_partition(kept)


def tags_the_joint(graph):
    for node in graph.calls:
        node.recompute = True
    return default_partition(graph)


def writes_in_the_backward(graph):
    made = default_partition(graph)
    if made.backward is None or not made.backward.calls:
        return made

    def emit(build, outputs):
        build.emit(OPS["mul_"], (made.backward.calls[0], 2.0))
        return outputs

    return attrs.evolve(made, backward=emitting(made.backward, emit))


def doubles_a_gradient(graph):
    made = default_partition(graph)

    def emit(build, outputs):
        return [v if v is None else build.emit(OPS["add"], (v, v)) for v in outputs]

    return attrs.evolve(made, backward=emitting(made.backward, emit))


def saves_another_value(graph):
    """Of two saved values of one meta, the backward gets the first twice."""
    made = default_partition(graph)
    first = {}

    def change(role, value):
        return first.setdefault(value.meta, value) if isinstance(role, Saved) else value

    return attrs.evolve(made, forward=with_outputs(made.forward, change))


def zeros_for_none(graph):
    """A partition that passes the pipeline's own look: the joint graph's None is a number too."""
    made = default_partition(graph)
    calls = made.backward.calls or made.backward.placeholders
    backward = with_outputs(
        made.backward, lambda role, value: calls[-1] if value is None else value
    )
    return attrs.evolve(made, backward=backward)


def saves_all_of_it(graph):
    """Each input of the forward is saved, whether the backward reads it or not."""
    made = default_partition(graph)
    inputs = [node for node in made.forward.placeholders if node not in made.forward.outputs]
    if not inputs or made.backward is None:
        return made
    index, node = len(made.saved), inputs[0]
    forward = Graph(
        (
            *made.forward.nodes[:-1],
            output_node(
                [*made.forward.outputs, node], [*made.forward.output_roles, Saved(index, "more")]
            ),
        ),
        made.forward.name,
    )
    build = Builder(made.backward.name)
    count = len(made.saved)
    build.nodes.extend(made.backward.placeholders[:count])
    build.placeholder(node.meta, Saved(index, "more"))
    build.nodes.extend(made.backward.nodes[count:-1])
    record = (
        attrs.evolve(made.saved[0], name="more", meta=node.meta, owner=node.role)
        if (made.saved)
        else None
    )
    if record is None:
        return made
    backward = build.finish(made.backward.outputs, made.backward.output_roles)
    return attrs.evolve(made, forward=forward, backward=backward, saved=(*made.saved, record))


def disowns_its_inputs(graph):
    made = default_partition(graph)
    return attrs.evolve(made, saved=tuple(attrs.evolve(s, owner=None) for s in made.saved))


def gives_no_reason(graph):
    made = default_partition(graph)
    return attrs.evolve(made, saved=tuple(attrs.evolve(s, reason="") for s in made.saved))


def computes_gradients_early(graph):
    """What of the backward needs no tangent is computed in the forward, and thrown away."""
    made = default_partition(graph)
    inputs = [n for n in made.forward.placeholders if n.meta.dtype.is_differentiable]

    def emit(build, outputs):
        build.emit(OPS["neg"], (inputs[0],))
        build.nodes[-1] = attrs.evolve(build.nodes[-1], phase=Phase.BACKWARD)
        return outputs

    return attrs.evolve(made, forward=emitting(made.forward, emit)) if inputs else made


def returns_arguments(graph):
    """A result that is a copy of an input is the input itself."""
    made = default_partition(graph)

    def change(role, value):
        copied = isinstance(role, Output) and value.op == "call" and value.target.name == "clone"
        same = copied and value.args[0].meta == value.meta
        return value.args[0] if same else value

    return attrs.evolve(made, forward=with_outputs(made.forward, change))


class Alternating:
    """Every other time another one."""

    __name__ = "alternating"

    def __init__(self):
        self.calls = itertools.count()

    def __call__(self, graph):
        both = (default_partition, min_cut_rematerialization_partition)
        return both[next(self.calls) % 2](graph)


WRONG = [
    (gives_the_joint, "H1", "expected a Partition"),
    (without_gradients, "H1", "is in neither half"),
    (zeros_for_none, "H1", "expected None as in the graph it took"),
    (tags_the_joint, "H2", "it changes the graph that it is given"),
    (writes_in_the_backward, "H3", "is not pure, expected a functional graph"),
    (doubles_a_gradient, "H4", "expected float32"),
    (saves_another_value, "H4", "expected float32"),
    (saves_all_of_it, "H5", "which is saved, expected to save what is read"),
    (disowns_its_inputs, "H6", "is saved as nobody's memory, expected primals_"),
    (gives_no_reason, "H6", "is saved for the reason '', expected one to read"),
    (computes_gradients_early, "H7", "the forward computes neg"),
    (returns_arguments, "H8", "shares memory with primals_"),
    (Alternating(), "H9", "it gives two partitions of the same graph"),
]


@pytest.mark.parametrize(("wrong", "law", "text"), WRONG, ids=lambda v: getattr(v, "__name__", v))
def test_a_wrong_partitioner_is_rejected_by_the_law_that_is_meant_for_it(wrong, law, text):
    with pytest.raises(laws.LawError) as caught:
        laws.check_partitioner(wrong)
    assert (law, True) == (caught.value.law, text in caught.value.report), caught.value.report
    assert f": partitioner {wrong.__name__!r} on " in str(caught.value)


def test_every_law_of_partitioners_has_a_wrong_one():
    assert {law.name for law in laws.PARTITIONER_LAWS} == {law for _, law, _ in WRONG}
