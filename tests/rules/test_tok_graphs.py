"""Tokens in graphs: a linear chain for each type and half, lifted and unlifted; what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

import aotlite as al
from aotlite.compilers import nop
from aotlite.ir import serialize
from aotlite.ir.effects import TOKEN, new_token
from aotlite.ir.graph import Graph, Phase
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.effect_chains import effects_of
from aotlite.ir.graph.role import BackwardToken, Saved, Tangent, Token
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import run_graph
from aotlite.ir.run.transform import Transformer
from aotlite.partition import cut
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.shared.effect_tokens import lifted, unlifted
from tests.rules.helpers.tok_programs import (
    LOG,
    Compute,
    Give,
    Loudly,
    Note,
    Program,
    by_type,
    function,
    programs,
    registered,
    story,
)

PRINT = OPS["with_effect_print_tensors"]
BOTH_HALVES = Program((Loudly(0, "print", "log"), Note("callback", 3), Give("log", 3)), (3, 4))


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with registered():
        yield


def stages_of(program: Program, **options: Any) -> dict[str, Any]:
    """What each stage made of a program."""
    seen: dict[str, Any] = {}
    story(program, al.compile(function(program), observer=seen.__setitem__, **options))
    return seen


def halves(partition: Any) -> list[Graph]:
    return [each for each in (partition.forward, partition.backward) if each is not None]


@pytest.mark.draws(long=320)
# ------------------------------------------------------------------------------- chains in graphs
@pytest.mark.rules("TOK-1", "TOK-2", "TOK-4", "TOK-5", "META-20", "META-22")
@settings(max_examples=40)
@given(programs())
@example(BOTH_HALVES)
def test_a_pure_graph_has_one_chain_for_each_type_and_half(program: Program) -> None:
    """Walked from end to end here: the tokens of the forward are first on both sides, those of the
    backward stand behind the tangents, and come last.
    """
    seen = stages_of(program, backend="reference")
    pure = seen.get("6 functionalize")
    if pure is None:  # eager refuses it
        return
    log = by_type(story(program)["log"])
    forward = [kind for kind in log if (kind, Phase.FORWARD) in effects_of(pure)]
    roles = [node.role for node in pure.placeholders]
    taken = [role for role in roles if isinstance(role, Token)]
    assert set(forward) == {role.effect for role in taken}
    assert taken == roles[: len(taken)] == list(pure.output_roles[: len(taken)])
    behind = [role for role in roles if isinstance(role, BackwardToken)]
    tangents = [i for i, role in enumerate(roles) if isinstance(role, Tangent)]
    assert not behind or roles.index(behind[0]) > max(tangents)
    assert not behind or behind == list(pure.output_roles[-len(behind) :])
    chains: list[Any] = [*taken, *behind]
    for role in chains:
        assert walked(pure, role) == effects_of(pure).get((role.effect, phase_of(role)), [])


def phase_of(role: Any) -> Phase:
    return Phase.FORWARD if isinstance(role, Token) else Phase.BACKWARD


def walked(graph: Graph, role: Any) -> list[str]:
    """The ops that a chain goes through, by its tokens alone."""
    token = graph.input_with(role)
    names: list[str] = []
    assert token.meta is TOKEN
    assert TOKEN.numel == 0
    while True:
        (user,) = graph.users[token]
        if user is graph.output_node:
            assert graph.outputs[graph.output_roles.index(role)] is token
            return names
        names.append(user.target.of)
        assert user.args[0] is token
        assert token not in user.args[1:]
        token = user
        if type(user.meta) is tuple:
            (token,) = [each for each in graph.users[user] if each.args[1] == 0]


@pytest.mark.draws(long=160)
@pytest.mark.rules("TOK-1", "TOK-3", "TOK-5")
@settings(max_examples=20)
@given(programs())
@example(BOTH_HALVES)
@example(Program((Give("callback", 0), Compute("mul", 3, 0), Compute("mul", 4, 1)), (5,)))
def test_lifted_and_unlifted_halves_are_inverse(program: Program) -> None:
    """And each half has the effects of its phase, neither more nor fewer."""
    for partition in ("default", "min_cut"):
        seen = stages_of(program, backend="reference", partition=partition)
        if "8 partition" not in seen:
            return
        joint = effects_of(seen["7 simplify"])
        found = seen["8 partition"]
        assert joint == {k: v for half in halves(found) for k, v in effects_of(half).items()}
        assert not any(phase is Phase.BACKWARD for _, phase in effects_of(found.forward))
        for half in halves(found):
            inner = unlifted(half)
            verify(inner, functional=True, closing_copies=True)
            assert structurally_equal(half, lifted(inner)) is None
            kept = [n.role for n in half.placeholders if not isinstance(n.role, TOKENS)]
            assert kept == [node.role for node in inner.placeholders]
            assert not [role for role in inner.output_roles if isinstance(role, TOKENS)]
            assert effects_of(half) == effects_of(inner)


TOKENS = (Token, BackwardToken)


@pytest.mark.draws(long=160)
@pytest.mark.rules("TOK-1")
@settings(max_examples=20)
@given(programs())
@example(BOTH_HALVES)
def test_printed_text_gives_the_graph_back(program: Program) -> None:
    """Imperative, lifted and unlifted; a file holds those that call no function of the program."""
    seen = stages_of(program, backend="reference")
    graphs = [each for each in seen.values() if isinstance(each, Graph)]
    graphs += (
        [unlifted(each) for each in halves(seen["8 partition"])] if "8 partition" in seen else []
    )
    for graph in graphs:
        assert structurally_equal(graph, graph_from_source(graph.code)) is None
        if not any(kind == "callback" for kind, _ in effects_of(graph)):
            again = serialize.loads(serialize.dumps(graph))
            assert structurally_equal(graph, again) is None


@pytest.mark.rules("TOK-2", "TOK-3", "TOK-7")
@pytest.mark.parametrize("unlifts", [True, False])
def test_a_compiler_sees_tokens_where_it_wants_to(unlifts: bool) -> None:
    """First among its example inputs; without them, the inputs begin with the static ones."""
    shown: list[Any] = []

    def compiler(graph: Graph, inputs: list[Any]) -> Any:
        shown.append([(str(each.role), each.static, each.shape) for each in inputs])
        shown.append(list(map(str, graph.output_roles)))
        return nop(graph, inputs)

    f = al.aot_function(
        function(BOTH_HALVES), compiler, num_params_buffers=2, unlift_tokens=unlifts
    )
    assert story(BOTH_HALVES) == story(BOTH_HALVES, f)
    given_forward, gives_forward, given_backward, gives_backward = shown
    tokens = [(f"token_{kind}", False, (0,)) for kind in ("print", "callback", "log")]
    static = [("primals_0", True, (3,)), ("primals_1", True, (3,))]
    assert given_forward[:5] == ([*tokens, *static] if not unlifts else given_forward[:5])
    assert given_forward[:2] == (static if unlifts else tokens[:2])
    assert gives_forward[0] == ("output_0" if unlifts else "token_print")
    assert ("backward_token_log", False, (0,)) in given_backward or unlifts
    assert gives_backward[-1] == ("grad_primals_1" if unlifts else "backward_token_log")
    assert not unlifts or "token" not in str(shown)


@pytest.mark.rules("TOK-1", "TOK-3")
def test_graphs_of_both_forms_run_in_the_interpreter() -> None:
    """And let their effects happen, each time."""
    partition = stages_of(BOTH_HALVES, backend="reference")["8 partition"]
    forward = partition.forward
    inner = unlifted(forward)
    array = np.array([1, 2, 4])
    given = [
        new_token() if isinstance(node.role, Token) else array.astype(node.dtype.numpy)
        for node in forward.placeholders
    ]
    LOG.entries = []
    outs = run_graph(forward, *given)
    first = LOG.entries
    LOG.entries = []
    rest = run_graph(inner, *given[-len(inner.placeholders) :])
    assert first == LOG.entries
    assert [("callback", "step 1", [2.0, 4.0, 8.0]), ("log", "step 2", [2.0, 4.0, 8.0])] == first
    kept = [o for o, r in zip(outs, forward.output_roles, strict=True) if not isinstance(r, Token)]
    assert [each.tolist() for each in kept] == [each.tolist() for each in rest]


# --------------------------------------------------------------------------------- broken chains
def _chain(count: int = 2) -> tuple[Builder, list[Any]]:
    """A builder with a token and so many prints behind it."""
    build = Builder("chain")
    nodes = [build.placeholder(TOKEN, Token("print")).node]
    for k in range(count):
        nodes.append(build.emit(PRINT, (nodes[-1], k, f"{k}", ())))
    return build, nodes


def _forked() -> Graph:
    build, nodes = _chain(1)
    build.emit(PRINT, (nodes[0], 1, "again", ()))
    return build.finish(nodes[1:], [Token("print")])


def _dropped() -> Graph:
    build, _ = _chain()
    return build.finish([], [])


def _of_another_type() -> Graph:
    build = Builder()
    token = build.placeholder(TOKEN, Token("callback")).node
    return build.finish([build.emit(PRINT, (token, 0, "", ()))], [Token("callback")])


def _exchanged() -> Graph:
    build, nodes = _chain(0)
    for number in (1, 0):
        nodes.append(build.emit(PRINT, (nodes[-1], number, "", ())))
    return build.finish(nodes[-1:], [Token("print")])


def _returned_as_another() -> Graph:
    build, nodes = _chain()
    return build.finish(nodes[-1:], [Token("callback")])


def _out_of_nothing() -> Graph:
    build = Builder()
    value = build.placeholder(TOKEN).node
    return build.finish([build.emit(PRINT, (value, 0, "", ()))], [Token("print")])


def _two_chains() -> Graph:
    build = Builder()
    for _ in range(2):
        token = build.emit(OPS["make_token"], ("print",))
        build.emit(OPS["sink_tokens"], ((build.emit(PRINT, (token, 0, "", ())),),))
    return build.finish([])


def _read_by_a_sum() -> Graph:
    build, nodes = _chain()
    return build.finish([build.emit(OPS["sum"], (nodes[-1], None, False, None))], None)


BROKEN: dict[str, tuple[Callable[[], Graph], str]] = {
    "forked": (_forked, "the token token_print is used 2 times, expected once"),
    "dropped": (_dropped, "the token with_effect_print_tensors_1 is used 0 times, expected once"),
    "of another type": (
        _of_another_type,
        "with_effect_print_tensors takes a token of token_callback, expected its own effect's",
    ),
    "exchanged": (
        _exchanged,
        "with_effect_print_tensors_1 has the number 0 behind 1 in its chain, expected a higher one",
    ),
    "returned as another": (
        _returned_as_another,
        "the token with_effect_print_tensors_1 is returned as token_callback, expected token_print",
    ),
    "out of nothing": (
        _out_of_nothing,
        "with_effect_print_tensors is in no chain of its effect, expected in one",
    ),
    "two chains": (_two_chains, "there are two chains of token_print, expected one"),
    "read by a sum": (
        _read_by_a_sum,
        "the token with_effect_print_tensors_1 is read by sum, expected an effect",
    ),
}


@pytest.mark.rules("TOK-1")
@pytest.mark.parametrize("name", BROKEN)
def test_the_verifier_names_a_chain_that_is_none(name: str) -> None:
    make, text = BROKEN[name]
    with pytest.raises(al.GraphError, match=r"^graph: ") as caught:
        verify(make(), functional=True)
    assert f"graph: {text}" == str(caught.value)
    assert "rule: VER-16, TOK-1 (specs/verify.md)" == caught.value.__notes__[-1]


@pytest.mark.rules("TOK-3")
def test_unlifting_counts_what_it_erases() -> None:
    """Taken and returned tokens are the same ones, and the forward's are those of the analysis."""
    build, nodes = _chain()
    graph = build.finish(nodes[-1:], [Token("print")])
    assert [] == list(unlifted(graph, [Token("print")]).placeholders)
    with pytest.raises(al.TokenError) as caught:
        unlifted(graph, [Token("print"), Token("log")])
    assert (
        "unlift: the tokens among the inputs of graph chain are token_print, expected token_print, "
        "token_log" == str(caught.value)
    )
    build, nodes = _chain()
    build.emit(OPS["sink_tokens"], ((nodes[-1],),))
    with pytest.raises(al.TokenError, match="among the results of graph chain are none, expected"):
        unlifted(build.finish([]))


@pytest.mark.rules("TOK-6")
def test_a_token_has_no_elements() -> None:
    build = Builder()
    value = build.placeholder(tensor_meta((1,))).node
    for call in (
        lambda: build.emit(PRINT, (value, 0, "", ())),
        lambda: al.ops.sink_tokens([al.ones(1)]),
    ):
        with pytest.raises(
            al.TokenError, match=r"with_effect: the token is f32\[1\], expected u8\[0\]"
        ):
            call()


# -------------------------------------------------------------------------- what is refused, when
def noisy(x: Any, buffer: Any) -> Any:
    buffer.add_(1)
    x.tok_note("one")
    (x * 2).tok_note("two")
    y = al.effects.callback(_kept, x * x, results="f32[2]")
    return (y * x).sum()


def _kept(array: Any) -> Any:
    LOG.note("callback", "kept", array)
    return array


def untouched(kind: type[Exception], text: str, **options: Any) -> Any:
    """Calls a program that an option makes wrong; nothing has happened then, or is written."""
    x, buffer = al.ones(2).requires_grad_(), al.zeros(2)
    LOG.entries = []
    compiled = al.compile(noisy, **options)
    for _ in range(2):
        with pytest.raises(kind) as caught:
            compiled(x, buffer)
        assert text == str(caught.value)
        assert ([], [0.0, 0.0], 0, None) == (LOG.entries, buffer.tolist(), buffer.version, x.grad)
    return "\n".join(getattr(caught.value, "__notes__", ()))


def calls_of(edit: Any, name: str) -> list[Any]:
    return [node for node in edit.nodes if node.target is OPS[f"with_effect_{name}"]]


def dropping(graph: Graph) -> Graph:
    edit = graph.edit()
    node = calls_of(edit, "tok_note")[0]
    edit.replace_all_uses_with(node, node.args[0])
    edit.erase(node)
    return edit.graph()


class Doubling(Transformer):
    """Lets each note happen twice, with tokens as they should be."""

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        result = super().call(target, args)
        if target is OPS["with_effect_tok_note"]:
            return super().call(target, (result, *args[1:]))
        return result


def doubling(graph: Graph) -> Graph:
    return Doubling(graph).transform()


def wishing(graph: Graph) -> Graph:
    """Wishes everything to be computed again."""
    edit = graph.edit()
    for node in edit.nodes:
        if node.op == "call":
            node.recompute = True
    return edit.graph()


def cutting_at_inputs(graph: Graph) -> Any:
    return cut(graph, [n for n in graph.placeholders if n.phase is Phase.FORWARD])


@pytest.mark.rules("TOK-6")
def test_a_pass_that_changes_the_effects_is_named() -> None:
    """Before anything happens, and nothing is written."""
    notes = untouched(
        al.TokenError,
        "pass 'dropping': the effects of type 'log' are tok_note 1, expected tok_note 0, tok_note "
        "1 as in the graph it took",
        passes=[dropping],
    )
    assert "(TOK-6)" in notes
    untouched(
        al.TokenError,
        "pass 'doubling': the effects of type 'log' are tok_note 0, tok_note 0, tok_note 1, "
        "tok_note 1, expected tok_note 0, tok_note 1 as in the graph it took",
        passes=[doubling],
    )


@pytest.mark.rules("TOK-6")
def test_a_wish_to_recompute_an_effect_is_refused_with_its_line() -> None:
    notes = untouched(
        al.TokenError,
        "tok_note: the effect 'log' is in a region that is computed again in the backward, "
        "expected effects outside of such regions",
        passes=[wishing],
        partition="min_cut",
    )
    assert 'x.tok_note("one")' in notes
    assert "(TOK-6, PART-23)" in notes


@pytest.mark.rules("TOK-6")
def test_a_partition_that_would_repeat_an_effect_is_refused() -> None:
    untouched(
        al.TokenError,
        "partition: the backward would run host_callback again, an effect 'callback' of the forward"
        ", expected its results among the saved values",
        partition=cutting_at_inputs,
    )


@pytest.mark.rules("TOK-6")
def test_results_of_effects_that_the_backward_needs_are_saved() -> None:
    compiled = al.compile(noisy, partition="min_cut", backend="reference")
    compiled(al.ones(2).requires_grad_(), al.zeros(2)).backward()
    reasons = {value.name: value.reason for value in compiled.partition.saved}
    assert {"getitem_1"} == set(reasons)
    backward: Any = compiled.backward_graph
    assert Saved(0) == backward.placeholders[0].role


@pytest.mark.rules("TOK-6")
@pytest.mark.parametrize("mark", ["(a)", "(a!)"])
def test_an_effect_neither_shares_nor_writes_memory(mark: str) -> None:
    with pytest.raises(al.TokenError) as caught:
        al.register_op(
            f"tok_bad(Tensor{mark} self) -> Tensor{mark}", kernel=print, vjp=None, effect="bad"
        )
    assert (
        f"tok_bad: the schema has the mark {mark} and the effect 'bad', expected an op that shares "
        "and writes no memory" == str(caught.value)
    )
    assert "tok_bad" not in OPS
    assert "with_effect_tok_bad" not in OPS


@pytest.mark.rules("TOK-6")
def test_rewriting_functions_have_no_effects() -> None:
    """Decompositions, and the functions of `saved_hooks`: they run when a function is compiled."""
    untouched(
        al.ArgumentError,
        "decomposition of 'mul': it calls tok_note, which has effects, expected ops without "
        "effects (TRC-2)",
        decompositions={"mul": lambda a, b: (al.ops.tok_note(a, "in mul"), a + b)[1]},
    )
    untouched(
        al.ArgumentError,
        "saved_hooks: of the pack hook: it calls tok_note, expected ops without effects",
        saved_hooks=(lambda t: (al.ops.tok_note(t, "packed"), t + 1)[1], lambda t: t - 1),
        saved_hooks_mode="all",
    )
    for name in ("tok_note", "with_effect_tok_note"):
        with pytest.raises(al.ArgumentError, match="expected an op without effects"):
            al.compile(noisy, decompositions={name: lambda *args: None})


@pytest.mark.draws(long=160)
# ------------------------------------------------------------------------------- compared graphs
@pytest.mark.rules("TOK-6")
@settings(max_examples=20)
@given(programs())
@example(BOTH_HALVES)
def test_graphs_that_are_compared_let_nothing_happen(program: Program) -> None:
    """With verify=True a first call shows what any other shows."""
    f = al.compile(function(program), backend="reference", verify=True)
    first, second = story(program, f), story(program, f)
    assert first == second


class Misleading(Transformer):
    """Tells notes twice of what they are told."""

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        if target is OPS["with_effect_tok_note"]:
            args = (*args[:2], args[2] * 2, *args[3:])
        return super().call(target, args)


class Renaming(Transformer):
    """Changes what notes say."""

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        if target is OPS["with_effect_tok_note"]:
            args = (*args[:-1], "other")
        return super().call(target, args)


@pytest.mark.rules("TOK-6")
def test_a_pass_that_changes_what_an_effect_is_told_is_named() -> None:
    """Words are compared; whether operands have the same values is seen when graphs are run."""

    def misleading(graph: Graph) -> Graph:
        return Misleading(graph).transform()

    def renaming(graph: Graph) -> Graph:
        return Renaming(graph).transform()

    untouched(
        al.ArgumentError,
        "verify: pass 'misleading' changed the value of effect 0 of type 'log', part 1, expected "
        "what 7 simplify gives",
        passes=[misleading],
        verify=True,
    )
    untouched(
        al.TokenError,
        "pass 'renaming': the effect tok_note 0 of type 'log' takes (f32[2], 'other'), expected "
        "(f32[2], 'one') as in the graph it took",
        passes=[renaming],
    )
    untouched(
        al.TokenError,
        "7 simplify: the effect tok_note 0 of type 'log' takes (f32[2], 'other'), expected "
        "(f32[2], 'one') as in the graph it took",
        stages={"simplify": renaming},
    )


@pytest.mark.rules("TOK-6")
@pytest.mark.parametrize(("name", "number"), [("functionalize", 6), ("simplify", 7)])
def test_a_stage_of_somebody_elses_that_drops_an_effect_is_named(name: str, number: int) -> None:
    """Whose own graph is valid: numbers still rise."""
    stage = {"functionalize": functionalize, "simplify": simplify}[name]
    untouched(
        al.TokenError,
        f"{number} {name}: the effects of type 'log' are tok_note 1, expected tok_note 0, tok_note "
        "1 as in the graph it took",
        stages={name: lambda graph: dropping(stage(graph))},
    )


# --------------------------------------------------------------------------------------- PyTorch
def _printing(function: Any, print_one: Any, before: int, after: int) -> Any:
    """A custom function that prints so often in its forward, and in its backward."""

    class Printing(function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            for _ in range(before):
                print_one("forward")
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            for _ in range(after):
                print_one("backward")
            return grad * 2

    return lambda x: Printing.apply(x * 3)


@pytest.mark.torch
@pytest.mark.rules("TOK-2", "TOK-4", "TOK-5")
@pytest.mark.thinned(9)
@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_tokens_stand_where_pytorch_has_them(
    torch: Any, before: int, after: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Sizes of what graphs take and give, and how many effects they have: tokens have size 0."""
    theirs, ours = [], []

    def their_compiler(graph: Any, inputs: Any) -> Any:
        given = [tuple(each.shape) for each in inputs]
        (closing,) = graph.graph.find_nodes(op="output")
        gives = [tuple(node.meta["val"].shape) for node in closing.args[0]]
        calls = [node for node in graph.graph.nodes if "with_effects" in str(node.target)]
        theirs.append((given, gives, len(calls)))
        return make_boxed(graph)

    def our_compiler(graph: Graph, inputs: list[Any]) -> Any:
        gives = [value.meta.shape for value in graph.outputs]
        calls = [node for node in graph.calls if node.target is PRINT]
        ours.append(([each.shape for each in inputs], gives, len(calls)))
        return nop(graph, inputs)

    functorch = import_module("functorch.compile")
    make_boxed = functorch.make_boxed_func
    f = _printing(torch.autograd.Function, torch.ops.aten._print, before, after)
    theirs_compiled = functorch.aot_function(f, their_compiler, their_compiler)
    theirs_compiled(torch.ones(2, requires_grad=True)).sum().backward()
    shown = capfd.readouterr().out
    g = _printing(al.autograd.Function, al.effects.print, before, after)
    compiled = al.aot_function(g, our_compiler, unlift_tokens=False)
    compiled(al.ones(2).requires_grad_()).sum().backward()
    assert theirs == ours
    assert shown == capfd.readouterr().out
