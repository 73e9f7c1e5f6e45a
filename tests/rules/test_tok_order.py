"""Effects of one op have identities too: who exchanges, repeats or drops one is found out.

Statically in what passes, partitioners and compilers give; at run time in what compiled code does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.compilers import nop
from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.graph.edit import GraphEdit
from aotlite.ir.graph.effect_chains import is_effect
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import run_graph
from aotlite.stages.s8_partition import default_partition as default
from tests.rules.helpers.tok_programs import LOG, registered


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with registered():
        al.register_op(
            "tok_other(Tensor self, str tag) -> ()",
            kernel=lambda xp, meta, a, tag: LOG.note("other", tag, a),
            vjp=None,
            effect="other",
        )
        LOG.entries = []
        yield


def noting(x: Any, buffer: Any) -> Any:
    """Two effects of one op forward, two backward; a buffer that is written."""
    buffer.add_(1)
    x.tok_note("first")
    y = x * 2
    y.register_hook(lambda grad: grad.tok_note("back first"))
    y.register_hook(lambda grad: grad.tok_note("back second"))
    x.tok_note("second")
    return y * y


# ------------------------------------------------------------------------------------- exchanges
def notes_of(graph: Graph, phase: Phase) -> list[Node]:
    note = OPS["with_effect_tok_note"]
    return [node for node in graph.calls if node.target is note and node.phase is phase]


def exchanged(graph: Graph, phase: Phase, *, numbers: bool = False) -> Graph:
    """The graph in which two notes of a phase are one in the place of the other.

    Their arguments are exchanged, behind the tokens: with their numbers, as one who moves calls
    does; or without, as one does who mixes them up.
    """
    first, second = notes_of(graph, phase)
    begin = 1 if numbers else 2
    new: dict[Node, Node] = {}
    nodes = []
    for node in graph.nodes:
        args = node.args
        if node in (first, second):
            other = second if node is first else first
            args = (*args[:begin], *other.args[begin:])
        args = map_nodes(args, lambda value: new.get(value, value))
        if args is not node.args:
            new[node] = node.with_args(args, node.meta)
        nodes.append(new.get(node, node))
    return Graph(tuple(nodes), graph.name)


def refused(text: str, **options: Any) -> None:
    """The function is refused, with this text; nothing has happened, or is written."""
    x, buffer = al.ones(2).requires_grad_(), al.zeros(2)
    with pytest.raises(al.AotliteError) as caught:
        al.compile(noting, **options)(x, buffer)
    assert (al.TokenError, text) == (type(caught.value), str(caught.value))
    assert ([], [0.0, 0.0]) == (LOG.entries, buffer.tolist())


FORMS: dict[str, tuple[dict[str, bool], str]] = {
    "moved": (
        {"numbers": True},
        "the effects of type 'log' are tok_note 1, tok_note 0, expected tok_note 0, tok_note 1",
    ),
    "mixed up": (
        {},
        "the effect tok_note 0 of type 'log' takes (f32[2], {1}), expected (f32[2], {0})",
    ),
}
TAGS = {
    Phase.FORWARD: ("'first'", "'second'"),
    Phase.BACKWARD: ("'back first'", "'back second'"),
}


@pytest.mark.rules("TOK-6")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("phase", Phase)
def test_a_pass_that_exchanges_effects_of_one_op_is_named(form: str, phase: Phase) -> None:
    how, text = FORMS[form]

    def careless(graph: Graph) -> Graph:
        return exchanged(graph, phase, **how)

    expected = text.format(*TAGS[phase])
    refused(f"pass 'careless': {expected} as in the graph it took", passes=[careless])


@pytest.mark.rules("TOK-6")
@pytest.mark.parametrize("form", FORMS)
def test_a_compiler_whose_graph_exchanges_effects_is_named(form: str) -> None:
    """That of the forward at the call, that of the backward when it is compiled."""
    how, text = FORMS[form]

    def careless(graph: Graph) -> Graph:
        phase = Phase.FORWARD if notes_of(graph, Phase.FORWARD) else Phase.BACKWARD
        return exchanged(graph, phase, **how)

    expected = text.format(*TAGS[Phase.FORWARD])
    refused(f"graph of 'careless': {expected} as in the graph it took", fw_compiler=careless)
    compiled = al.compile(noting, bw_compiler=careless)
    x = al.ones(2).requires_grad_()
    y = compiled(x, al.zeros(2))
    LOG.entries = []
    with pytest.raises(al.TokenError) as caught:
        y.sum().backward()
    expected = text.format(*TAGS[Phase.BACKWARD])
    assert f"graph of 'careless': {expected} as in the graph it took" == str(caught.value)
    assert ([], None) == (LOG.entries, x.grad)


@pytest.mark.rules("TOK-6")
def test_a_partitioner_that_exchanges_or_moves_an_effect_is_named() -> None:
    """Also one that puts an effect of the forward into the backward, at the head of its chain."""

    def careless(graph: Graph) -> Any:
        return default(exchanged(graph, Phase.FORWARD, numbers=True))

    text = FORMS["moved"][1]
    refused(f"partition: {text} as in the graph it took", partition=careless)

    def moving(graph: Graph) -> Any:
        made: Any = default(graph)
        last = notes_of(made.forward, Phase.FORWARD)[-1]
        forward = made.forward.edit()
        (mine,) = [n for n in forward.nodes if n.target is last.target and n.args[1] == 1]
        forward.replace_all_uses_with(mine, mine.args[0])
        forward.erase(mine)
        backward: GraphEdit = made.backward.edit()
        first = next(n for n in backward.nodes if n.target is last.target)
        with backward.inserting_before(first):
            moved = backward.call(last.target, (first.args[0], 1, first.args[2], "second"))
        moved.phase = Phase.FORWARD
        first.args = (moved, *first.args[1:])
        return attrs.evolve(made, forward=forward.graph(), backward=backward.graph())

    refused(
        "partition: the effects of type 'log' are tok_note 0, expected tok_note 0, tok_note 1 as "
        "in the graph it took",
        partition=moving,
    )


# -------------------------------------------------------------------------------- compiled code
def effects_in(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if is_effect(node)]


def happen(node: Node, array: Any) -> None:
    """The effect of a node, on an array, by its kernel."""
    rest = [array if type(value) is Node else value for value in node.args[2:]]
    node.target.kernel(np, node.meta, np.empty(0, np.uint8), node.args[1], *rest)


KINDS = ("log", "other")


@pytest.mark.draws(long=400)
@pytest.mark.rules("TOK-6", "TOK-7")
@settings(max_examples=66)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=6),
    st.booleans(),
    st.booleans(),
)
@example(["log", "log"], [0, 1], False, False)
@example(["log", "log"], [1, 0], False, True)
@example(["log", "log"], [0, 1, 0, 1], True, False)
@example(["log", "other"], [1, 0], True, False)
@example(["log", "log"], [0], True, True)
def test_compiled_code_lets_each_effect_happen_once_and_in_the_order_of_its_type(
    kinds: list[str], places: list[int], boxed: bool, unlifts: bool
) -> None:
    """Any sequence of them: what is out of turn is refused before it happens, what is missing when
    the code returns. Types may be mixed (TOK-7). Nothing is written then.
    """
    order = [place for place in places if place < len(kinds)]

    def f(x: Any, buffer: Any) -> Any:
        buffer.add_(1)
        for number, kind in enumerate(kinds):
            (al.ops.tok_note if kind == "log" else al.ops.tok_other)(x, str(number))
        return x * 2

    def compiler(graph: Graph) -> Any:
        nodes = effects_in(graph)
        clean = without_effects(graph)
        places_of_x = [n.role for n in graph.placeholders].index(al.ir.graph.role.Primal(0))

        def run(*arrays: Any) -> Any:
            given = arrays[0] if boxed else arrays
            for place in order:
                happen(nodes[place], given[places_of_x])
            return list(run_graph(clean, *given))

        run._boxed_call = boxed  # type: ignore[attr-defined]
        return run

    by_kind = {kind: [k for k in range(len(kinds)) if kinds[k] == kind] for kind in KINDS}
    expected: list[int] = []
    counts = dict.fromkeys(KINDS, 0)
    fails = False
    for place in order:
        kind = kinds[place]
        mine = by_kind[kind]
        if counts[kind] >= len(mine) or mine[counts[kind]] != place:
            fails = True
            break
        counts[kind] += 1
        expected.append(place)
    fails = fails or any(counts[kind] < len(by_kind[kind]) for kind in KINDS)
    LOG.entries = []
    buffer = al.zeros(2)
    compiled = al.compile(f, backend=compiler, unlift_tokens=unlifts)
    with pytest.raises(al.TokenError) if fails else contextlib.nullcontext():
        compiled(al.ones(2), buffer)
    assert [str(place) for place in expected] == [tag for _, tag, _ in LOG.entries]
    assert [0.0 if fails else 1.0] * 2 == buffer.tolist()


def without_effects(graph: Graph) -> Graph:
    """The graph whose tokens go by."""
    edit = graph.edit()
    for node in list(edit.nodes):
        if is_effect(node):
            edit.replace_all_uses_with(node, node.args[0])
            edit.erase(node)
    return edit.graph()


def running(how: Callable[[Callable[..., Any], Sequence[Any]], Any]) -> Any:
    """A compiler that gives the graph's own code, called as `how(code, arrays)` does."""

    def compiler(graph: Graph) -> Any:
        code = nop(graph, ())
        return lambda *arrays: how(code, arrays)

    return compiler


def _twice(code: Any, arrays: Any) -> Any:
    code(*arrays)
    return code(*arrays)


def _elsewhere(code: Any, arrays: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(code(*arrays)))
    thread.start()
    thread.join()
    return found[0]


AGAIN = (
    "backend: 'compiler' on graph {}: of the effects of type 'log' tok_note 0 happens, expected no "
    "more"
)
GONE = (
    "backend: 'compiler' on graph {}: of the effects of type 'log' tok_note 0 did not happen, "
    "expected it to, in this thread"
)
RUNS = {"twice": (_twice, AGAIN, 2), "elsewhere": (_elsewhere, GONE, 2)}


@pytest.mark.rules("TOK-6")
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("unlifts", [True, False])
def test_code_that_repeats_effects_or_moves_them_to_another_thread_is_named(
    name: str, unlifts: bool
) -> None:
    """Forward and backward; what the first run did has happened, the second one does nothing."""
    how, text, count = RUNS[name]
    x, buffer = al.ones(2).requires_grad_(), al.zeros(2)
    compiled = al.compile(noting, fw_compiler=running(how), unlift_tokens=unlifts)
    with pytest.raises(al.TokenError) as caught:
        compiled(x, buffer)
    assert text.format("noting_forward") == str(caught.value)
    assert "(TOK-6)" in "".join(caught.value.__notes__)
    assert (count, [0.0, 0.0]) == (len(LOG.entries), buffer.tolist())
    compiled = al.compile(noting, bw_compiler=running(how), unlift_tokens=unlifts)
    y = compiled(x, buffer)
    LOG.entries = []
    with pytest.raises(al.TokenError) as caught:
        y.sum().backward()
    assert text.format("noting_backward") == str(caught.value)
    assert ((count, None), "back first") == ((len(LOG.entries), x.grad), LOG.entries[0][1])


def failing(x: Any, buffer: Any) -> Any:
    buffer.add_(1)
    x.tok_note("before")
    al.effects.callback(_raises, x)
    x.tok_note("behind")
    return x * 2


def _raises(array: Any) -> None:
    LOG.note("callback", "raises", array)
    raise KeyError("a callback fails")


def _falls_back(code: Any, arrays: Any) -> Any:
    try:
        return code(*arrays)
    except KeyError:
        return code(*arrays)


def _swallows(code: Any, arrays: Any) -> Any:
    with contextlib.suppress(KeyError):
        code(*arrays)
    return [arrays[0] + 0, arrays[0] + 0]


@pytest.mark.rules("TOK-6")
@pytest.mark.parametrize("how", [_falls_back, _swallows])
def test_an_effect_that_fails_ends_the_call_whatever_compiled_code_does(how: Any) -> None:
    """It raises in eager, and nothing comes after it."""
    buffer = al.zeros(2)
    compiled = al.compile(failing, backend=running(how))
    with pytest.raises(KeyError, match="a callback fails"):
        compiled(al.ones(2), buffer)
    assert ["before", "raises"] == [tag for _, tag, _ in LOG.entries]
    assert [0.0, 0.0] == buffer.tolist()


@pytest.mark.rules("TOK-6")
def test_what_an_effect_calls_is_no_part_of_the_call() -> None:
    """A callback may call compiled functions with effects of their own, of the same type."""
    inner = al.compile(lambda a: (a.tok_note("inner"), a + 1)[1], backend="reference")

    def calling(array: Any) -> Any:
        return inner(al.tensor(array.tolist())).array

    def f(x: Any) -> Any:
        x.tok_note("before")
        y = al.effects.callback(calling, x, results="f32[2]")
        y.tok_note("behind")
        return y

    for run in (f, al.compile(f, backend=running(lambda code, arrays: code(*arrays)))):
        LOG.entries = []
        assert [2.0, 2.0] == run(al.ones(2)).tolist()
        assert ["before", "inner", "behind"] == [tag for _, tag, _ in LOG.entries]


@pytest.mark.rules("TOK-6")
@pytest.mark.parametrize("backend", ["reference", "loops", "cpu", nop])
def test_what_compiled_code_calls_besides_is_no_part_of_the_call(backend: Any) -> None:
    """A compiler's code may tell of itself, by effects of its own, eager or compiled."""

    def telling(array: Any) -> Any:
        array.tok_note("telling")
        return array * 1

    for tell in (telling, al.compile(telling, backend=backend)):

        def around(code: Any, arrays: Any, tell: Any = tell) -> Any:
            tell(al.ones(2))
            return code(*arrays)

        LOG.entries = []
        compiled = al.compile(lambda x: (x.tok_note("own"), x * 2)[1], backend=running(around))
        assert [2.0, 2.0] == compiled(al.ones(2)).tolist()
        assert ["telling", "own"] == [tag for _, tag, _ in LOG.entries]


@pytest.mark.rules("TOK-6")
def test_code_may_say_that_an_effect_happens_by_other_means() -> None:
    """Then that one counts: once, in order, and nothing else is an effect."""

    def compiler(graph: Graph) -> Any:
        nodes = effects_in(graph)

        def run(*arrays: Any) -> Any:
            for node in nodes[:count]:
                with al.effects.happening(node):
                    LOG.note("log", "own", arrays[0])
            return [arrays[0] * 2]

        return run

    def f(x: Any) -> Any:
        x.tok_note("one")
        x.tok_note("two")
        return x * 2

    count = 2
    compiled = al.compile(f, backend=compiler)
    assert [2.0, 2.0] == compiled(al.ones(2)).tolist()
    assert ["own", "own"] == [tag for _, tag, _ in LOG.entries]
    count = 1
    with pytest.raises(al.TokenError, match="tok_note 1 did not happen"):
        compiled(al.ones(2))
    with pytest.raises(al.ArgumentError, match=r"expected a call with_effect_\.\.\. of a pure"):
        al.effects.happening(compiled.forward_graph.placeholders[0])
