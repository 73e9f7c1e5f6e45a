"""`subclass_laws`: runs a wrapper class through the laws. Spec: `specs/testing.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper, is_wrapper_class
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.op import OPS
from aotlite.testing.laws.errors import Checked, LawError, broken, running
from aotlite.testing.laws.samples.sample import Sample
from aotlite.testing.shrinking import shrunk
from aotlite.testing.subclasses import nested_wrappers
from aotlite.testing.subclasses.instances import check_instance
from aotlite.testing.subclasses.kinds import Meanings, SubclassKind
from aotlite.testing.subclasses.wrapper_laws import (
    SUBCLASS_LAWS,
    SubclassLaw,
    TriedWrapper,
    check_ops,
    op_samples,
    tensors,
)
from aotlite.testing.subclasses.wrapper_models import SHIPPED
from aotlite.testing.subclasses.wrapper_programs import (
    Making,
    Refused,
    compiled_differences,
    draw_program,
    eager_differences,
)

NAMES = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8")
CLAIMS = {
    **{law.name: law.claim for law in SUBCLASS_LAWS},
    "S6": "random programs have the results of the meaning",
    "S7": "compiled programs have the effects of eager",
    "S8": "nesting with a pair, inside or outside, keeps the meaning",
}
"""Law -> its claim."""


@attrs.frozen
class Effort:
    """The cases of a check: ops, samples, and the numbers of programs."""

    ops: tuple[str, ...]
    samples: Callable[[str], Sequence[Sample]] = op_samples
    most: int = 4
    """The most calls of an op for each law, each also with single operands wrapped."""
    programs: int = 20
    compiled: int = 5


def subclass_laws(
    subject: object,
    meaning: Callable[[Any], Any] | None = None,
    *,
    stored: Callable[[Any, Any], Any] | None = None,
    holds: Callable[[Any], bool] | None = None,
    tolerance: float = 0.0,
    knows: Iterable[str] = (),
    kinds: Iterable[SubclassKind] = (),
    laws: Iterable[str] = NAMES,
    ops: Iterable[str] | None = None,
    samples: Callable[[str], Sequence[Sample]] | None = None,
    most: int = 4,
    programs: int = 20,
    compiled: int = 5,
) -> Checked:
    """Checks a wrapper class, and returns the laws that it keeps. Raises LawError for a broken one.

    `subject` is a shipped class; or a function that makes a wrapper of a dense tensor, and raises
    an error of aotlite's if it cannot; or a Hypothesis strategy of such functions, or of wrappers,
    which are tested by S1 to S5 on few functions. `meaning(wrapper)` is the dense tensor of a
    wrapper, or a tuple of several, on each of which an op acts alone. Parts of the class may be
    shipped wrappers; `kinds` are the meanings of other wrappers.

    The class may refuse an op with a SubclassError, unless the op is in `knows`. Without
    `tolerance`, results equal those of the meaning bit for bit; else they may differ by that part
    of the largest number, or of 1. For a class that cannot hold all numbers,
    `stored(wrapper, value)` is a dense value after it is written to a wrapper, and `holds(value)`
    whether the two are equal.

    `laws` are the laws to check, of S1 to S8; `ops` the ops, all if None, with at most `most` of
    `samples` each, by default those of their schemas; `programs` and `compiled` are the numbers of
    random programs.

    >>> from aotlite.subclasses import TwoTensor
    >>> subclass_laws(TwoTensor, ops=["mul", "mul_", "t"], programs=3, compiled=1).laws
    ('S1', 'S2', 'S3', 'S4', 'S5', 'S6', 'S7', 'S8')
    """
    if hasattr(subject, "example") and not isinstance(subject, type):
        given = {name: value for name, value in locals().items() if name != "subject"}
        return _for_each(subject, given)
    kind = _kind(subject, meaning, stored, holds, tolerance)
    chosen = [name for name in NAMES if name in set(laws)]
    unknown = [name for name in laws if name not in NAMES]
    if unknown or not chosen:
        raise ArgumentError(f"subclass_laws: laws has {unknown}, expected some of {NAMES}")
    named = _ops(OPS if ops is None else ops)
    effort = Effort(named, samples or op_samples, most, programs, compiled)
    others = [each for each in (*SHIPPED, *kinds) if each.cls is not kind.cls]
    return _checked(TriedWrapper(kind, Meanings([kind, *others])), chosen, effort, frozenset(knows))


def _checked(
    subject: TriedWrapper, chosen: list[str], effort: Effort, knows: frozenset[str]
) -> Checked:
    cases = 0
    if "S1" in chosen:
        cases += _check_alone(subject)
    of_ops = [law for law in SUBCLASS_LAWS if law.name in chosen and law.kinds]
    found, refused = check_ops(subject, of_ops, effort.ops, effort.samples, effort.most)
    for name in sorted(refused & knows):
        sentence = f"{subject.name} refuses {name}, expected an op that it knows"
        raise LawError("S2", CLAIMS["S2"], sentence, name)
    cases += found
    if "S6" in chosen:
        cases += _check_programs(subject, "S6", effort.programs)
    if "S7" in chosen:
        cases += _check_programs(subject, "S7", effort.compiled)
    if "S8" in chosen:
        cases += _check_nested(subject)
    return Checked(subject.name, tuple(chosen), cases, refused=tuple(sorted(refused)))


def _kind(subject: object, meaning: Any, stored: Any, holds: Any, tolerance: float) -> SubclassKind:
    if isinstance(subject, SubclassKind):
        return subject
    shipped = next((each for each in SHIPPED if each.cls is subject), None)
    if shipped is not None and meaning is None:
        return shipped
    if meaning is None or not callable(subject):
        return _nothing_said(subject)
    made = _first(subject)
    if not (isinstance(made, al.Tensor) and is_wrapper_class(type(made))):
        raise ArgumentError(
            f"subclass_laws: of a tensor {subject!r} makes a {type(made).__name__}, expected a "
            "wrapper, an instance of a class with __tensor_dispatch__"
        )
    return SubclassKind(type(made), subject, meaning, stored, tolerance, holds=holds)


def _first(make: Callable[[Tensor], Tensor]) -> Tensor:
    """The wrapper of the first tensor that `make` accepts."""
    for each in tensors():
        try:
            return make(each)
        except AotliteError:
            continue
    raise ArgumentError("subclass_laws: no tensor can be wrapped, expected one that can")


def _ops(names: Iterable[str]) -> tuple[str, ...]:
    found = tuple(names)
    for name in found:
        if name not in OPS:
            raise ArgumentError(f"subclass_laws: an op is {name!r}, expected one of the table")
    return tuple(name for name in found if name != "hidden_alias")


# ------------------------------------------------------------------------------------- the laws
def _check_alone(subject: TriedWrapper) -> int:
    law: SubclassLaw = SUBCLASS_LAWS[0]
    count = 0
    for each in tensors():
        try:
            subject.kind.make(each)
        except AotliteError:
            continue
        with running(law.name, law.claim, f"{subject.name} of {each.meta}"):
            law.check(subject, each)
        count += 1
    return count


def making_of(subject: TriedWrapper) -> Making:
    """Returns the maker of random programs on a class."""
    kind = subject.kind
    worlds = subject.meanings.count([_first(kind.make)])
    return Making(kind.make, subject.meanings, worlds, kind.holds, kind.writes, kind.sizes)


def _check_programs(subject: TriedWrapper, law: str, wanted: int) -> int:
    """The first programs that fit, at most so many."""
    making, count = making_of(subject), 0
    for seed in range(8 * wanted):
        program = draw_program(seed, making) if count < wanted else None
        if program is None:
            continue
        with running(law, CLAIMS[law], f"{subject.name}, program {seed}", program):
            try:
                _compare(law, program, making)
            except Refused:
                continue
        count += 1
    return count


def _compare(law: str, program: Any, making: Making) -> None:
    def differing(program: Any) -> list[str]:
        if law == "S6":
            return eager_differences(program, making)
        return compiled_differences(program, making, al.compile)

    if differing(program):
        small = shrunk(program, lambda each: _fails(differing, each), seconds=10)
        raise broken(differing(small)[0], f"the program: {small!r}")


def _fails(differing: Callable[[object], list[str]], program: object) -> bool:
    try:
        return bool(differing(program))
    except Refused:
        return False


def _check_nested(subject: TriedWrapper) -> int:
    count = 0
    for function, place in nested_wrappers.cases(subject.kind):
        where = f"{subject.name}, {function.name} of tensors {place}"
        with running("S8", CLAIMS["S8"], where, function.name):
            nested_wrappers.commutes(subject.kind, subject.meanings, function, place)
        count += 1
    return count


def _of_instance(wrapper: Tensor, meaning: Any, **given: Any) -> Checked:
    """The laws of one wrapper."""
    names = ("stored", "holds", "tolerance")
    shipped = next((each for each in SHIPPED if each.cls is type(wrapper)), None)
    kind = shipped if meaning is None else None
    if kind is None:
        if meaning is None:
            return _nothing_said(type(wrapper))
        values = {name: given[name] for name in names}
        kind = SubclassKind(type(wrapper), lambda x: x, meaning, **values)
    others = [each for each in (*SHIPPED, *given["kinds"]) if each.cls is not kind.cls]
    subject = TriedWrapper(kind, Meanings([kind, *others]))
    laws = [name for name in NAMES[:5] if name in given["laws"]]
    cases, refused = check_instance(subject, wrapper, laws, CLAIMS)
    return Checked(subject.name, tuple(laws), cases, refused=tuple(sorted(refused)))


def _nothing_said(subject: object) -> Any:
    raise noted(
        ArgumentError(
            f"subclass_laws: meaning of {subject!r} is None, expected a function from a wrapper to "
            "the dense tensor that it stands for"
        ),
        "Of the classes that ship, the meaning is known",
    )


def _for_each(strategy: Any, given: dict[str, Any]) -> Checked:
    """Checks the laws for some functions of a strategy; raises for the simplest one that fails."""
    from hypothesis import HealthCheck, settings
    from hypothesis import given as drawn

    found: list[Checked] = []

    @settings(
        max_examples=10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @drawn(strategy)
    def check(drawn: Any) -> None:
        check_one = _of_instance if is_wrapper(drawn) else subclass_laws
        found.append(check_one(drawn, **given))

    check()
    first = found[0]
    cases = sum(each.cases for each in found)
    return attrs.evolve(first, cases=cases)
