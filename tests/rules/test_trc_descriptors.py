"""TRC-8: a descriptor, read in the caller's structures, is the value of the graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.compilers import nop
from aotlite.descriptors import (
    AnyDescriptor,
    BufferInput,
    GradOutput,
    InputMutationOutput,
    Moment,
    Names,
    ParamInput,
    PlainInput,
    PlainOutput,
    RandomStateInput,
    ReachedInput,
    SavedValueDescriptor,
    SubclassPart,
    SyntheticBaseInput,
    TangentInput,
    TokenInput,
    TokenOutput,
    arguments_with_gradients,
    descriptors_of,
    parameters,
    parameters_with_gradients,
    read,
    results_with_tangents,
)
from aotlite.ir.graph import Graph
from aotlite.pipeline.arguments import call_of
from aotlite.subclasses import TwoTensor
from tests.end_to_end import view_size_programs, wrapper_size_programs
from tests.end_to_end.drawn_size_programs import TRIED, SizeProgram, draw
from tests.end_to_end.size_program_lines import ALL
from tests.thinning import thinned

UNREAD = (TokenInput, TokenOutput, SavedValueDescriptor, TangentInput)
"""No caller has these."""


class Log:
    """A backend that notes what each graph is given and returns."""

    def __init__(self) -> None:
        self.runs: list[tuple[Graph, list[Any], list[Any]]] = []

    def __call__(self, graph: Graph) -> Callable[..., Any]:
        run = nop(graph, ())

        def noted(*arrays: Any) -> Any:
            given = [np.array(each) for each in arrays]
            made = run(list(arrays))
            self.runs.append((graph, given, [None if x is None else np.array(x) for x in made]))
            return made

        return noted


def values(tensor: Any) -> np.ndarray:
    return np.array(tensor.detach().numpy() if isinstance(tensor, al.Tensor) else tensor)


def same(mine: Any, its: np.ndarray, what: AnyDescriptor) -> None:
    found = values(mine)
    assert found.shape == its.shape and found.tobytes() == its.tobytes(), f"{what}: {found} {its}"


def as_given(names: Names, what: AnyDescriptor, after: Moment, geometries: dict[Any, Any]) -> Any:
    """An output's value; an input that is also transposed is looked at as it was given."""
    value = read(names, what, after)
    if isinstance(what, InputMutationOutput) and what.of in geometries:
        return value.detach().as_strided(*geometries[what.of])
    return value


def check(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    again: Callable[[], Any] | None = None,
    backward: bool = False,
    **options: Any,
) -> tuple[Names, list[AnyDescriptor]]:
    """Calls a function twice, the second time with further arguments, and compares each input and
    output of its graphs with the reading of its descriptor; all descriptors that were read."""
    log, kwargs = Log(), kwargs or {}
    compiled = al.compile(function, backend=log, **options)
    compiled.prepare(*args, **kwargs)
    names: Names | None = None
    seen: list[AnyDescriptor] = []
    for given in (args, args if again is None else tuple(again())):
        call = call_of(given, kwargs)
        entry = compiled._valid(call) or compiled.entries[-1]
        names = Names(function, call, entry)
        before, geometries, log.runs = {}, {}, []
        forward = names.of_graph(entry.partition.forward)
        state = [x.name for x in forward.inputs if isinstance(x, (ParamInput, BufferInput))]
        assert len(state) == len({*state})
        for each in forward.inputs:
            if not isinstance(each, UNREAD):
                value = read(names, each, Moment(given, kwargs))
                before[each] = values(value)
                if isinstance(value, al.Tensor):
                    geometries[each] = value.shape, value.stride(), value.offset
        result = compiled(*given, **kwargs)
        if entry not in compiled.entries:
            continue
        graph, arrays, made = log.runs[-1]  # behind those of prefixes, which count
        described = names.of_graph(graph)
        for what, array in zip(described.inputs, arrays, strict=True):
            if what in before:
                same(before[what], array, what)
                seen.append(what)
        after = Moment(given, kwargs, result)
        for what, array in zip(described.outputs, made, strict=True):
            if array is not None and not isinstance(what, UNREAD):
                same(as_given(names, what, after, geometries), array, what)
                seen.append(what)
        if backward:
            log.runs = []
            result.sum().backward()
            [(graph, _, made)] = log.runs
            for what, array in zip(names.of_graph(graph).outputs, made, strict=True):
                if isinstance(what, GradOutput) and array is not None:
                    same(read(names, what, after), array, what)
                    seen.append(what)
    assert names is not None
    return names, seen


def runs(program: SizeProgram, sizes: dict[str, int]) -> bool:
    """Whether eager raises nothing at these sizes."""
    try:
        program.function()(*program.arguments(sizes))
    except al.AotliteError:
        return False
    return True


@pytest.mark.rules("TRC-8")
@pytest.mark.parametrize("first", thinned(range(0, 240, 20), 6))
def test_descriptors_of_drawn_programs_are_what_graphs_are_given(first: int) -> None:
    """Over views, windows, arguments that share memory, writes, random numbers and symbols."""
    seen: list[AnyDescriptor] = []
    for seed in range(first, first + 20):
        program = draw(seed, ALL)
        sizes = {name: TRIED[name] for name in program.symbols}
        larger = {name: TRIED[name] + 1 for name in program.symbols}
        if not runs(program, sizes):
            continue
        again = partial(program.arguments, larger if runs(program, larger) else sizes)
        arguments = tuple(program.arguments(sizes))
        try:
            _, read_ones = check(program.function(), arguments, again=again, dynamic=seed % 2 == 1)
        except al.UnsupportedError:  # a question about a count without a default
            continue
        seen += read_ones
    kinds = {type(each) for each in seen}
    assert len(seen) > 60 and kinds >= {PlainInput, PlainOutput, InputMutationOutput}


@pytest.mark.rules("TRC-8")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", ["overlap", "turned"])
@pytest.mark.parametrize("history", ["none", "leaf"])
def test_descriptors_of_views_of_one_base(kind: str, history: str) -> None:
    drawn = partial(view_size_programs.arguments, kind, history)
    seen = [each for seed in range(12) for each in read_in_drawn(seed, drawn)]
    assert any(isinstance(each, SyntheticBaseInput) for each in seen) or history == "leaf"


@pytest.mark.rules("TRC-8", "SUB-3")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", ["two", "nested", "masked", "quantized", "padded"])
def test_descriptors_of_drawn_programs_on_wrappers(kind: str) -> None:
    drawn = partial(wrapper_size_programs.arguments, wrapper_size_programs.KINDS[kind])
    seen = [each for seed in range(12) for each in read_in_drawn(seed, drawn)]
    assert sum(isinstance(each, SubclassPart) for each in seen) > 10


TOKENS: dict[str, Callable[..., Any]] = {
    "symbols": lambda program, sizes: program.arguments(sizes),
    "overlap": partial(view_size_programs.arguments, "overlap", "none"),
    "two": partial(wrapper_size_programs.arguments, wrapper_size_programs.KINDS["two"]),
    "masked": partial(wrapper_size_programs.arguments, wrapper_size_programs.KINDS["masked"]),
}


@pytest.mark.rules("TRC-8", "TOK-2")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", TOKENS)
def test_descriptors_of_drawn_programs_with_tokens(kind: str) -> None:
    """Tokens stand in front, one for each type of effect, and no caller has them: the others are
    read as they are without effects."""
    seen: list[AnyDescriptor] = []
    tokens: list[list[AnyDescriptor]] = []
    for seed in range(8):
        found: list[tuple[Names, Graph]] = []
        seen += read_in_drawn(seed, TOKENS[kind], effects=True, graphs=found)
        for names, graph in found:
            described = names.of_graph(graph)
            takes = [each for each in described.inputs if isinstance(each, TokenInput)]
            gives = [each for each in described.outputs if isinstance(each, TokenOutput)]
            assert [each.effect for each in takes] == [each.effect for each in gives]
            assert len(takes) == 2 == len({each.effect for each in takes})
            assert list(described.inputs[:2]) == takes and list(described.outputs[:2]) == gives
            with pytest.raises(al.ArgumentError):
                read(names, takes[0], Moment((), {}))
            tokens.append([*takes])
    assert len(tokens) > 3 and len(seen) > 30


def read_in_drawn(
    seed: int,
    make: Callable[..., Any],
    *,
    effects: bool = False,
    graphs: list[tuple[Names, Graph]] | None = None,
) -> list[AnyDescriptor]:
    """The descriptors that are read in a drawn program, with arguments that `make` makes; with
    `effects` the program prints and calls back, and its joint graph takes tokens."""
    program = draw(seed)
    sizes = {name: TRIED[name] for name in program.symbols}
    again = partial(make, program, sizes)
    body = program.function()

    def function(*given: Any) -> Any:
        with al.no_grad():
            given[0].mul_(2)
        if not effects:
            return body(*given)
        al.effects.print("started")
        al.effects.callback(noted.append, al.ones(2))
        made = body(*given)
        al.effects.print("ended")
        return made

    noted: deque[Any] = deque(maxlen=1)
    try:
        function(*again())
    except (al.AotliteError, TypeError):  # what wrappers of a class refuse
        return []
    made: dict[str, Any] = {}
    how: Any = {"dynamic": seed % 2 == 1, "observer": made.__setitem__}
    try:
        names, seen = check(function, tuple(again()), again=again, **how)
        if graphs is not None:
            graphs.append((names, made["7 simplify"]))
        return seen
    except (al.UnsupportedError, al.AliasError):
        return []


# ------------------------------------------------------------------------------- kind by kind
class Net(nn.Module):
    def __init__(self) -> None:
        first = nn.Linear(3, 2)
        self.layers = nn.Sequential(first, nn.BatchNorm1d(2))
        self.calls = nn.Buffer(al.zeros(1))
        self.tied = first.weight

    def forward(self, batch: Any, *rest: Any, factor: Any) -> Any:
        self.calls.add_(1)
        made = self.layers(batch["x"][0]) * factor
        for each in rest:
            made = made + each
        base = made.sin()
        return {"loss": made.sum() + self.tied.sum(), "views": [base.view(-1), base.t()]}


def arguments() -> tuple[Any, ...]:
    return {"x": [al.arange(12.0).reshape(4, 3)]}, al.ones(2), al.tensor(3.0)


def test_paths_of_arguments_parameters_and_results() -> None:
    net, factor = Net(), al.ones(2, requires_grad=True)
    names, seen = check(net, arguments(), {"factor": factor}, again=arguments)
    texts = {str(each): each for each in seen}
    assert texts.keys() >= {
        "argument batch['x'][0]",
        "argument args[0]",
        "argument args[1]",
        "argument factor",
        "parameter tied",
        "parameter layers.0.bias",
        "buffer calls",
        "buffer layers.1.running_mean",
        "updated buffer calls",
        "result['loss']",
        "intermediate base of (result['views'][0], result['views'][1])",
    }
    tied, mean = texts["parameter tied"], texts["buffer layers.1.running_mean"]
    assert isinstance(tied, ParamInput) and tied.also == ("layers.0.weight",)
    assert isinstance(mean, BufferInput) and mean.place == "Net.layers.1.running_mean"
    assert read(names, tied, Moment(arguments(), {"factor": factor})) is net.tied


def test_a_module_among_the_arguments() -> None:
    def loss(model: nn.Module, x: al.Tensor) -> al.Tensor:
        return model(x).sum()

    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    _, seen = check(loss, (model, al.ones(2, 3)), again=lambda: (model, al.zeros(2, 3)))
    assert [str(each) for each in seen[:5]] == [
        "argument x",
        "parameter model.0.weight",
        "parameter model.0.bias",
        "parameter model.1.weight",
        "parameter model.1.bias",
    ]


def test_tensors_that_are_reached_otherwise() -> None:
    table = {"scale": al.ones(2)}
    _, seen = check(lambda x: x * table["scale"], (al.ones(2),))
    [reached] = {each for each in seen if isinstance(each, ReachedInput)}
    assert reached.place == "table['scale']"


def test_ndarrays_and_keyword_arguments() -> None:
    def scaled(x: Any, *, by: Any) -> Any:
        return x * by["factor"]

    x, by = np.ones(3, np.float32), {"factor": np.full(3, 2, np.float32)}
    _, seen = check(scaled, (x,), {"by": by})
    assert {str(each) for each in seen} == {"argument x", "argument by['factor']", "result"}


def test_a_synthetic_base_is_the_memory_that_arguments_share() -> None:
    def write(a: al.Tensor, b: al.Tensor) -> al.Tensor:
        a.mul_(2)
        return a + b

    def overlapping() -> tuple[al.Tensor, al.Tensor]:
        whole = al.arange(12.0).reshape(3, 4)
        return whole[1:], whole[:2]

    _, seen = check(write, overlapping(), again=overlapping)
    [base] = {each for each in seen if isinstance(each, SyntheticBaseInput)}
    assert str(base) == "synthetic base of (argument a, argument b)"


def test_a_base_of_bytes_for_members_of_different_dtypes() -> None:
    def write(a: al.Tensor, b: al.Tensor) -> al.Tensor:
        a.mul_(2)
        return b + 1

    def overlapping() -> tuple[al.Tensor, al.Tensor]:
        whole = al.arange(8.0)
        return whole[2:], whole.view(al.int32)[1:4]

    _, seen = check(write, overlapping(), again=overlapping)
    assert any(isinstance(each, SyntheticBaseInput) for each in seen)


def test_parts_of_wrappers() -> None:
    def scaled(x: Any) -> Any:
        return x * 2

    def wrapped() -> tuple[Any]:
        return (TwoTensor(al.arange(3.0), al.ones(3)),)

    _, seen = check(scaled, wrapped(), again=wrapped)
    texts = {str(each) for each in seen if isinstance(each, SubclassPart)}
    assert texts == {f"part {x} of {of}" for x in "ab" for of in ("argument x", "result")}


def test_tokens_and_random_state() -> None:
    def noisy(x: al.Tensor) -> al.Tensor:
        al.effects.print("x is {}", x)
        return x + al.rand(3)

    _, seen = check(noisy, (al.ones(3),))
    states = {str(each) for each in seen if isinstance(each, RandomStateInput)}
    assert states == {"seed of the generator", "offset of the generator"}
    described = descriptors_of(noisy, al.ones(3)).joint
    assert str(described.inputs[0]) == "token of print"
    assert str(described.outputs[0]) == "token of print, after it"


def test_sizes_that_no_input_has() -> None:
    def grown(x: al.Tensor, n: int) -> al.Tensor:
        return x.sum() + al.ones(n).sum()

    described = descriptors_of(al.compile(grown, dynamic=True), al.ones(3), 4)
    assert [str(each) for each in described.forward.sizes.values()] == ["argument n"]


def test_gradients_and_tangents() -> None:
    def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
        return x.sin() * w

    def leaves() -> tuple[al.Tensor, ...]:
        return al.arange(3.0).requires_grad_(), al.ones(3, requires_grad=True)

    _, seen = check(loss, leaves(), again=leaves, backward=True)
    grads = [str(each) for each in seen if isinstance(each, GradOutput)]
    assert grads == ["gradient of argument x", "gradient of argument w"] * 2


def test_gradients_that_the_function_stores_itself() -> None:
    def step(x: al.Tensor) -> al.Tensor:
        y = (x * x).sum()
        y.backward()
        return y.detach()

    x = al.arange(3.0).requires_grad_()
    described = descriptors_of(step, x)
    assert ".grad of argument x" in [str(each) for each in described.forward.outputs]


def test_saved_values_say_whose_memory_they_are_and_whether_it_is_checked() -> None:
    described = descriptors_of(
        lambda x, w: (x * w).exp(), al.ones(2, requires_grad=True), al.ones(2, requires_grad=True)
    )
    saved = [each for each in described.forward.outputs if isinstance(each, SavedValueDescriptor)]
    assert [(each.name, str(each.owner), each.is_checked) for each in saved] == [
        ("primals_0", "argument x", True),
        ("primals_1", "argument w", True),
        ("exp", "result", True),
    ]
    assert described.backward is not None
    assert saved == [e for e in described.backward.inputs if isinstance(e, SavedValueDescriptor)]


def test_joint_graphs_have_descriptors_too() -> None:
    described = descriptors_of(lambda x: x.sin(), al.ones(2, requires_grad=True)).joint
    assert [str(each) for each in described.inputs] == ["argument x", "tangent of result"]
    assert [str(each) for each in described.outputs] == ["result", "gradient of argument x"]


def test_what_no_caller_has_is_an_error() -> None:
    described = descriptors_of(lambda x: x.sin(), al.ones(2, requires_grad=True))
    with pytest.raises(al.ArgumentError, match="no caller has the tangent of result, expected"):
        described.read(described.joint.inputs[1], (al.ones(2),))
    with pytest.raises(al.ArgumentError, match="result is read before the call, expected a result"):
        described.read(described.joint.outputs[0], (al.ones(2),))


def test_parameters_have_gradients_and_results_have_tangents() -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    found = descriptors_of(lambda x: (net(x), x.sin()), al.ones(1, 3, requires_grad=True))
    names, joint = found.names, found.joint_graph
    with_gradients = parameters_with_gradients(names, joint)
    assert list(with_gradients) == ["net.0.weight", "net.0.bias"] == list(parameters(names, joint))
    outputs = dict(zip(map(str, found.joint.outputs), joint.outputs, strict=True))
    for name, (node, gradient) in with_gradients.items():
        assert node in joint.placeholders
        assert gradient is outputs[f"gradient of parameter {name}"]
    [(_, gradient)] = arguments_with_gradients(names, joint).values()
    assert gradient is outputs["gradient of argument x"]
    tangents = results_with_tangents(names, joint)
    assert [str(each) for each in tangents] == ["result[0]", "result[1]"]
    assert [str(names.of(node.role)) for _, node in tangents.values() if node] == [
        "tangent of result[0]",
        "tangent of result[1]",
    ]


@pytest.mark.rules("TRC-8")
@pytest.mark.parametrize("args", [(), (None,), ({},), ({"x": []},)])
def test_value_that_a_call_does_not_have_is_an_argument_error(args: Any) -> None:
    found = descriptors_of(lambda batch: batch["x"][0] * 2, {"x": [al.ones(2)]})
    (given,) = found.forward.inputs
    assert found.read(given, ({"x": [al.ones(2)]},)).tolist() == [1.0, 1.0]
    with pytest.raises(al.ArgumentError, match=r"the call has no argument batch\['x'\]\[0\]"):
        found.read(given, args)
