"""Programs changed in a way that must not change their world, eagerly and compiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.ir.errors import ArgumentError
from aotlite.testing.engines.eager import AotliteEngine
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.observation import Observation
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step
from aotlite.testing.relations import (
    RELATIONS,
    Relation,
    Same,
    Subject,
    Traced,
    argument_passing,
    check,
    check_relation,
    compilers,
    equivalent_views,
    examined,
    relation,
    step_order,
    subject,
)
from aotlite.testing.relations.__main__ import main
from aotlite.testing.relations.comparison import halves
from aotlite.testing.relations.step_edits import Loose

SEEDS = range(150)
SAMPLE = 6
"""So many programs for each relation."""
NAMES = [each.name for each in RELATIONS]
COMPILED = [each for each in NAMES if not relation(each).needs_compiler]


@pytest.fixture(scope="module")
def traced() -> list[Traced]:
    library = subject().library
    return [Traced.of(library, draw(seed)) for seed in SEEDS]


def usable(traced: list[Traced], which: Relation, count: int = SAMPLE) -> list[Traced]:
    """The first programs to which a relation applies."""
    return list(islice((each for each in traced if which.pairs(each)), count))


def found_by(which: Relation, programs: list[Traced], whose: Subject) -> list[str]:
    return [
        line
        for seed, each in enumerate(programs)
        for line in examined(which, each, whose, limit=2, seed=seed).found
    ]


# ---------------------------------------------------------------------------- nothing is different
@pytest.mark.rules("GEN-11", "GEN-13")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", COMPILED)
def test_relations_hold_eagerly(name: str, traced: list[Traced]) -> None:
    which = relation(name)
    programs = usable(traced, which)
    assert SAMPLE == len(programs)
    assert [] == found_by(which, programs, subject())


@pytest.mark.rules("GEN-1", "GEN-11", "GEN-13")
@pytest.mark.thinned(9)
@pytest.mark.parametrize("name", NAMES)
def test_relations_hold_compiled(name: str, traced: list[Traced]) -> None:
    which, whose = relation(name), subject(options={})
    results = [examined(which, each, whose, limit=1) for each in usable(traced, which)]
    assert [] == [line for each in results for line in each.found]
    assert any(each.compared for each in results)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"partition": "min_cut"}], ids=["default", "min_cut"])
def test_relations_hold_for_1_000_programs(options: Any) -> None:
    found = [(seed, check(draw(seed), options, seed=seed)) for seed in range(1_000, 2_000)]
    assert [] == [each for each in found if each[1]]


@pytest.mark.torch
@pytest.mark.parametrize("name", COMPILED)
def test_relations_hold_in_pytorch(name: str, traced: list[Traced], torch: Any) -> None:
    del torch
    which, whose = relation(name), subject("torch")
    theirs = [Traced.of(whose.library, each.program) for each in usable(traced, which)]
    assert [] == found_by(which, theirs, whose)


@pytest.mark.rules("TEN-18")
@pytest.mark.torch
def test_a_view_from_before_a_history_is_a_leaf_in_pytorch(torch: Any) -> None:
    setup = [["make", [0, [1], "float64", False]], ["make", [0, [], "float64", True]]]
    body = [["copy_", ["$0", "$1"]], ["select", ["$0", 0, 0]], ["mul_", ["$3", 2]]]
    program = Program(body, [], [Call(setup, ["$0", "$1"])])
    seen, base = torch.zeros(1), torch.ones(()).requires_grad_()
    view = seen.select(0, 0)
    seen.copy_(base)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        view.mul_(2)
    which = relation("take a view before or after a write")
    assert (True, False) == (which.applies(program), which.applies(program, "torch"))
    assert [] == check_relation(which, program)


# --------------------------------------------------------------------------- mistakes are found
class Faulty(AotliteEngine):
    """aotlite's eager library with an op that is wrong."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.wrong = call
        self.is_off = False

    def call(self, op: str, args: Any) -> Any:
        return self.wrong(self, super().call, op, args)

    @contextmanager
    def no_grad(self) -> Any:
        before, self.is_off = self.is_off, True
        with super().no_grad():
            yield
        self.is_off = before


def fault(op: str, wrong: Callable[[Any, Any], Any]) -> Subject:
    """Eager mode in which the result of an op is what `wrong(result, args)` makes of it."""

    def call(library: Any, right: Any, name: str, args: Any) -> Any:
        del library
        result = right(name, args)
        return wrong(result, args) if name == op else result

    return Subject(Faulty(call))


def no_grad_loses_writes(library: Any, right: Any, name: str, args: Any) -> Any:
    if library.is_off and name in ("add_", "mul_", "fill_", "zero_", "setitem", "neg_"):
        return args[0]
    return right(name, args)


def write_gives_a_copy(library: Any, right: Any, name: str, args: Any) -> Any:
    del library
    result = right(name, args)
    return result.clone() if name in ("add_", "mul_", "fill_", "zero_", "neg_") else result


def bumped(result: Any, args: Any) -> Any:
    """A result whose making wrote what it was made of."""
    with al.no_grad():
        args[0].mul_(1)
    return result


def first_is_copied(body: Any) -> Any:
    return lambda first, *others: body(first.clone(), *others)


def aliases_are_copied(body: Any) -> Any:
    """A compiler that takes arguments for tensors on memory of their own."""

    def wrong(*args: Any) -> Any:
        storages = [id(each.storage.buffer) for each in args]
        pairs = enumerate(args, 1)
        own = [each.clone() if storages[i - 1] in storages[i:] else each for i, each in pairs]
        return body(*own)

    return wrong


def results_are_copied(body: Any) -> Any:
    """A compiler that forgets that one result is a view of another."""

    def wrong(*args: Any) -> Any:
        own = {id(each) for each in args}
        results = body(*args)
        return [
            each.clone() if isinstance(each, al.Tensor) and id(each) not in own else each
            for each in results
        ]

    return wrong


def recomputed_is_detached(body: Any, **options: Any) -> Any:
    """A compiler whose backward is wrong where nothing is saved."""
    if options["partition"] is compilers.save_all:
        return body
    return results_are_copied(
        lambda *args: [e.detach() if isinstance(e, al.Tensor) else e for e in body(*args)]
    )


def first_call_decides(body: Any) -> Any:
    """A compiler that guards nothing: the first call decides whether there is a backward."""
    kept: list[bool] = []

    def wrong(*args: Any) -> Any:
        kept.append(al.is_grad_enabled() and any(each.requires_grad for each in args))
        if kept[0]:
            return body(*args)
        with al.no_grad():
            return body(*args)

    return wrong


def third_call_is_other(body: Any) -> Any:
    """A function that counts its calls."""
    calls: list[int] = []

    def wrong(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            for each in args:
                each.detach().zero_()
        return body(*args)

    return wrong


FAULTS: dict[str, Callable[[], Subject]] = {
    "permute arguments": lambda: subject(make=first_is_copied),
    "duplicate an argument": lambda: subject(make=aliases_are_copied),
    "merge equal arguments": lambda: subject(make=aliases_are_copied),
    "add an unused argument": lambda: subject(make=aliases_are_copied),
    "split in two": lambda: subject(make=results_are_copied),
    "replay as as_strided": lambda: fault("as_strided", lambda result, _: result.clone()),
    "save all or recompute all": lambda: subject(make=recomputed_is_detached),
    "write through an identity view": lambda: fault("alias", lambda result, _: result.clone()),
    "take an unused view": lambda: fault("detach", bumped),
    "read without use": lambda: fault("clone", bumped),
    "a write gives what it wrote": lambda: Subject(Faulty(write_gives_a_copy)),
    "write under no_grad what requires no grad": lambda: Subject(Faulty(no_grad_loses_writes)),
    "out of place and copied in": lambda: fault("copy_", lambda _, args: args[0].zero_()),
    "write what is there": lambda: fault("clone", lambda result, _: al.zeros_like(result)),
    "call twice": lambda: subject(make=third_call_is_other),
    "calls in another order": lambda: subject(make=first_call_decides),
    "several at once": lambda: subject(make=results_are_copied),
    "clone and copy back": lambda: fault("clone", lambda result, _: result.detach()),
}
"""An engine or a compiler that is wrong, of which the relation shows it."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_engine_or_compiler_is_noticed(name: str, traced: list[Traced]) -> None:
    which, whose = relation(name), FAULTS[name]()
    assert any(found_by(which, [each], whose) for each in traced)


CARELESS: dict[str, tuple[Any, str, Any]] = {
    "reorder disjoint writes": (step_order, "_misses", lambda *_: True),
    "read past a disjoint write": (step_order, "_misses", lambda *_: True),
    "take a view before or after a write": (Traced, "is_fragile", lambda *_: False),
    "clone and copy back": (argument_passing, "_is_replaceable", lambda *_: True),
    "replay as as_strided": (
        equivalent_views,
        "_geometry",
        lambda look: (look.shape, look.stride, 0),
    ),
    "merge equal arguments": (argument_passing, "_are_one", lambda *_: True),
}
"""Conditions under which a relation applies, dropped."""


@pytest.mark.parametrize("name", CARELESS)
def test_each_condition_of_a_relation_is_needed(
    name: str, traced: list[Traced], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, what, always = CARELESS[name]
    monkeypatch.setattr(where, what, always)
    assert any(found_by(relation(name), [each], subject()) for each in traced)


@pytest.mark.rules("TEN-19")
def test_what_another_write_would_refuse_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of several views is used by the very write before which its base is written again."""
    setup = [["make", [0, [4], "float64", True]], ["mul", ["$0", 1]]]
    body = [["narrow", ["$0", 0, 0, 2]], ["split", ["$0", 2]], ["copy_", ["$1", "$2.1"]]]
    program = Program(body, ["$0"], [Call(setup, ["$1"])])
    assert not relation("write what is there").applies(program)
    monkeypatch.setattr(Traced, "is_fragile", lambda *_: False)
    [found] = check_relation("write what is there", program)
    assert "AutogradError" in found


def test_each_relation_has_a_mistake_that_it_finds() -> None:
    assert set(NAMES) == {*FAULTS, *CARELESS}


# ----------------------------------------------------------------------------- how it is done
BASE = [Step("make", (0, (2, 2), "float64", False))]
BODY = [["select", ["$0", 0, 0]], ["split", ["$0", 1]], ["mul_", ["$1", 2]], ["add", ["$2.1", 1]]]


def small(body: list[Any] = BODY, results: Any = ("$1", "$3", "$4")) -> Program:
    return Program(body, results, [Call(BASE, ["$0"])])


def test_halves_hand_over_what_the_second_uses() -> None:
    first, second = halves(small(), 2)
    assert ("$1", "$2.1") == first.results
    assert 2 == len(first.body)
    assert [Step("mul_", ("$1", 2)), Step("add", ("$2", 1))] == list(second.body)
    assert ("$1", "$3", "$4") == second.results
    assert 3 == second.arity


def test_the_loose_form_of_a_program_is_the_program() -> None:
    assert Loose.of(small(results=("$1", "$4"))).program() == small(results=("$1", "$4"))


def test_all_values_of_a_written_tensor_have_its_name() -> None:
    assert small(results=("$1", "$1", "$4")) == Loose.of(small()).program()


def test_a_variant_has_the_calls_that_run() -> None:
    bad = Call([Step("make", (0, (0,), "float64", False))], ["$0"])
    program = attrs.evolve(small(), calls=[*small().calls, bad])
    assert 1 == len(Traced.of(subject().library, program).traces)
    assert [] == check(program, {})


@pytest.mark.rules("FUN-23")
def test_versions_may_rise_by_the_writes_that_were_added() -> None:
    [world] = small().run()
    more = attrs.evolve(
        world, called=[attrs.evolve(each, version=each.version + 1) for each in world.called]
    )
    assert Same().differences(more, world)
    assert [] == Same(added_writes=1).differences(more, world)
    assert Same(added_writes=1).differences(world, more)
    assert [] == Same(added_writes=None).differences(world, more)


def test_gradients_are_compared_where_no_backward_raises() -> None:
    with_grad = Call([Step("make", (0, (2, 2), "float64", True))], ["$0"])
    [world] = Program([["mul", ["$0", 2]]], ["$1"], [with_grad]).run()
    other = attrs.evolve(world, grads=[None, None])
    assert Same(backward=False).differences(other, world)
    raised = attrs.evolve(other, backward="AutogradError")
    assert [] == Same(backward=False).differences(raised, world)
    assert Same().differences(raised, world)


def test_both_sides_may_raise_eagerly() -> None:
    raised = Observation(error=ValueError(), untouched=False)
    assert Same().differences(raised, raised)  # a compiled call leaves its inputs as they were


def test_a_difference_names_its_relation_and_call() -> None:
    [line] = check_relation("permute arguments", two_arguments(), make=first_is_copied)[:1]
    assert "permute arguments: call 0: objects: [0, 1, 2], unchanged [0, 1, 1]" == line
    assert check(two_arguments(), make=first_is_copied)


def two_arguments() -> Program:
    call = Call([*BASE, *BASE], ["$0", "$1"])
    return Program([["mul_", ["$0", 2]]], ["$1"], [call])


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the name is 'split', expected one of 'clone and"):
        relation("split")


def test_the_command_counts_what_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--programs", "2", "--seed", "5"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)
    assert re.search(r"^2 programs, \d\d calls compared, 0 differences$", printed, re.MULTILINE)


def test_the_command_lists_what_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(al, "compile", lambda body, **_: first_is_copied(body))
    assert 1 == main(["--programs", "3", "--partition", "min_cut"])
    printed = capsys.readouterr().out
    assert re.search(r"^seed \d: [a-z _]+: call \d: ", printed, re.MULTILINE)
    assert re.search(r" calls compared, [1-9]\d* differences$", printed)


def test_the_page_about_testing_names_each_relation() -> None:
    page = (Path(__file__).parents[2] / "specs" / "testing.md").read_text("utf-8")
    assert NAMES == [n for n in re.findall(r"^\| ([^|`]+?) \|", page, re.MULTILINE) if n in NAMES]


def test_every_relation_says_what_it_claims_and_by_which_rules() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for each in RELATIONS:
        assert each.claim.endswith(".")
        assert each.rules
