"""Two sessions side by side, with a function and with its compiled form: `PairedSessions`.

Each value is a `Pair`: one tensor of either session. Each action runs in both, and `differences`
compares all that a user can observe. Place: below `aotlite.testing.machines`, which draws the
actions. Rules: GEN-1, GEN-2, GEN-11, GEN-13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import optree

from aotlite.testing.assertions import Difference
from aotlite.testing.compiled import REFUSED
from aotlite.testing.engines import Engine
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation, TensorSnapshot
from aotlite.testing.observe.observe_call import observe_tensors, shows_bits
from aotlite.testing.programs.numbers import numbers
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Step, is_name, resolved
from aotlite.testing.scripts.files import function_text
from aotlite.testing.scripts.language import AotliteLanguage

Function = Callable[..., Any]


@attrs.frozen(eq=False)
class Pair:
    """A value of both sessions."""

    name: str
    mine: Any
    """The tensor in the session with the compiled function."""
    its: Any


@attrs.define(eq=False)
class UnseenBase:
    """A result alone on its memory, whose base compiled code hides (META-10)."""

    mine: Any
    """The result, kept alive so that its memory is not reused."""
    moved: int
    """The difference of its offset from eager's, in elements."""


class PairedSessions:
    """The eager and the compiled session, with their common values."""

    def __init__(
        self,
        library: Engine,
        eager: Function,
        compiled: Function,
        program: Program | None = None,
        *,
        atomic: bool = True,
    ) -> None:
        self.library = library
        self.eager = eager
        self.compiled = compiled
        self.program = program
        """The program whose body is the function."""
        self.atomic = atomic
        """Whether a compiled call that raises must not change anything (GEN-2)."""
        self.live: list[Pair] = []
        self.lines: list[str] = []
        """Returns the actions of the session as Python-like text."""
        self.calls = 0
        self.refused = 0
        self._unseen_bases: dict[int, UnseenBase] = {}
        self._made = 0

    # --- values
    def like(self, shape: Sequence[int], dtype: str) -> list[Pair]:
        """The live values of a shape and dtype, the newest first."""
        wanted = tuple(shape), str(self.library.dtype(dtype))
        return [p for p in reversed(self.live) if (tuple(p.its.shape), str(p.its.dtype)) == wanted]

    def _pairs(self, mine: Any, its: Any) -> object:
        if isinstance(mine, (tuple, list)):
            return tuple(map(self._pair, mine, its))
        return self._pair(mine, its)

    def _pair(self, mine: object, its: object) -> Pair:
        """Returns the pair of two tensors, which may be known or new.

        Raises `Difference` if one alone is known, or the two belong to different pairs.
        """
        for pair in self.live:
            if (pair.mine is mine) != (pair.its is its):
                raise self.difference(
                    f"identity: {pair.name} is the result: {pair.mine is mine}, "
                    f"eager {pair.its is its}"
                )
            if pair.mine is mine:
                return pair
        self._made += 1
        self._note_unseen_base(mine, its)
        pair = Pair(f"v{self._made - 1}", mine, its)
        self.live.append(pair)
        return pair

    def _note_unseen_base(self, mine: Any, its: Any) -> None:
        library, storage = self.library, self.library.storage_of(mine)
        bases = library.base_of(mine), library.base_of(its)
        known = {library.storage_of(pair.mine) for pair in self.live}
        if bases[0] is None and bases[1] is not None and storage not in known:
            moved = mine.storage_offset() - its.storage_offset()
            self._unseen_bases[storage] = UnseenBase(mine, moved)

    def forget(self, pair: Pair) -> None:
        """Drops a value."""
        self.live.remove(pair)
        self.lines.append(f"del {pair.name}")

    # --- actions
    def setup(self, steps: Sequence[Step]) -> list[Any]:
        """Runs the setup of a call; returns its values as pairs."""
        values: list[Any] = []
        for step in steps:
            args = [resolved(value, values) if is_name(value) else value for value in step.args]
            values.append(self.do(step.op, *args, no_grad=step.no_grad))
        return values

    def do(self, op: str, *args: object, no_grad: bool = False) -> Any:
        """Runs an op of programs in both; returns the pair of its results, or a tuple of pairs.

        Returns None if it raises in both. Raises `Difference` if it raises in one.
        """
        with self.library.no_grad() if no_grad else nullcontext():
            results = [
                _outcome(self.library.call, op, _side(list(args), side)) for side in ("mine", "its")
            ]
        self._agree(op, *[error for _, error in results])
        (mine, _), (its, _) = results
        found = None if mine is None else self._pairs(mine, its)
        under = "with no_grad(): " if no_grad else ""
        self.lines.append(f"{under}{_names(found)} = {op}({', '.join(map(_names, args))})")
        return found

    def _agree(self, what: str, mine: Exception | None, its: Exception | None) -> None:
        if type(mine) is not type(its):
            raise self.difference(f"error of {what}: {mine!r}, eager {its!r}")

    def call(self, args: Sequence[Pair], *, grad: bool = True) -> list[Any]:
        """Calls the function; returns pairs of the tensor results, and none if it is refused."""
        self.calls += 1
        under = "" if grad else "with no_grad(): "
        text = f"f({', '.join(pair.name for pair in args)})"
        self.lines.append(under + text)
        mine, error = self._called(self.compiled, [pair.mine for pair in args], grad)
        if isinstance(error, REFUSED):
            # Refused before any effect: eager's session leaves the call out, and must be equal.
            self.refused += 1
            self.lines[-1] += "  # refused"
            return []
        touched = error is not None and self.atomic and self.differences()
        its, raised = self._called(self.eager, [pair.its for pair in args], grad)
        self._agree("the call", error, raised)
        if error is not None:
            if touched:
                raise self.difference(f"touched: the call raised {error!r} and changed: {touched}")
            self._start_anew()
            return []
        pairs = self._results(mine, its)
        self.lines[-1] = f"{under}{_names(pairs)} = {text}"
        return pairs

    def _start_anew(self) -> None:
        """Drops all values, as eager raised in the middle of its writes."""
        self.lines[-1] += "  # raises; all values are forgotten"
        self.live.clear()
        self._unseen_bases.clear()

    def _called(self, function: Function, args: list[object], grad: bool) -> tuple[Any, Any]:
        with nullcontext() if grad else self.library.no_grad():
            return _outcome(function, *args)

    def _results(self, mine: Any, its: Any) -> list[Any]:
        leaves = [optree.tree_flatten(each, none_is_leaf=True) for each in (mine, its)]
        if leaves[0][1] != leaves[1][1]:
            raise self.difference(f"results: {leaves[0][1]}, eager {leaves[1][1]}")
        return [self._result(a, b) for a, b in zip(leaves[0][0], leaves[1][0], strict=True)]

    def _result(self, mine: Any, its: Any) -> Any:
        kind = self.library.tensor_type
        if isinstance(mine, kind) and isinstance(its, kind):
            return self._pair(mine, its)
        if type(mine) is not type(its) or mine != its:
            raise self.difference(f"result: {mine!r}, eager {its!r}")
        return mine

    def backward(self, pairs: Sequence[Pair], *, retain: bool = True) -> None:
        """Runs a backward from values: with `retain` one after the other, else from all at once.

        Without `retain`, all values with a history are dropped then.
        """
        self.lines.append(f"backward({_names(list(pairs))}{', retain_graph=True' * retain})")
        errors = []
        for side in ("mine", "its"):
            found = [getattr(pair, side) for pair in pairs]
            errors.append(_outcome(self._backward, found, retain)[1])
        self._agree("the backward", *errors)
        if errors[0] is not None:  # gradients accumulated before the error are not compared
            self.clear()
        if not retain:
            for pair in [p for p in self.live if p.its.requires_grad and not is_leaf(p.its)]:
                self.forget(pair)

    def _backward(self, tensors: list[Any], retain: bool) -> None:
        given = [_cotangent(self.library, each, i) for i, each in enumerate(tensors)]
        if not retain:
            self.library.backward(tensors, given)
            return
        for each, cotangent in zip(tensors, given, strict=True):
            each.backward(cotangent, retain_graph=True)

    def clear(self) -> None:
        """Forgets all gradients."""
        self.lines.append("# for all leaves: grad = None")
        for pair in self.live:
            for value in (pair.mine, pair.its):
                if is_leaf(value) and value.requires_grad:
                    value.grad = None

    # --- differences
    def differences(self) -> list[str]:
        """Returns the differences of the live values; empty if there are none."""
        bits = self.program is not None and shows_bits(self.program)
        mine = observe_tensors(self.library, [pair.mine for pair in self.live], has_bits=bits)
        its = observe_tensors(self.library, [pair.its for pair in self.live], has_bits=bits)
        return differences(self._shown(mine, its), its)

    def _shown(self, mine: Observation, its: Observation) -> Observation:
        """The compiled session's observation, with eager's values where META-10 hides them."""
        seen = zip(self.live, mine.called, its.called, strict=True)
        return attrs.evolve(mine, called=[self._shown_one(*each) for each in seen])

    def _shown_one(self, pair: Pair, mine: TensorSnapshot, its: TensorSnapshot) -> TensorSnapshot:
        unseen = self._unseen_bases.get(self.library.storage_of(pair.mine))
        if unseen is None:
            return mine
        moved = its.offset if mine.offset == its.offset + unseen.moved else mine.offset
        return attrs.evolve(mine, base=its.base, offset=moved)

    def difference(self, *found: str) -> Difference:
        """Returns the error with the differences and the lines of the session."""
        body = [] if self.program is None else ["", *definition(self.program)]
        head = "Twins: compiled differs from eager, expected the same after each step"
        text = [head, *(f"  {line}" for line in found), *body, "", *self.lines]
        error = Difference("\n".join(text))
        error.found, error.program = found, self.program
        return error


def definition(program: Program) -> list[str]:
    """The lines of a program's function."""
    return function_text(program, AotliteLanguage()).split("\n")


def _outcome(action: Callable[..., object], *args: object) -> tuple[object, Exception | None]:
    try:
        return action(*args), None
    except Exception as error:
        return None, error


def is_leaf(value: object) -> bool:
    """Whether it is a leaf; False for a view whose `is_leaf` raises after a write (TEN-19)."""
    found, _ = _outcome(getattr, value, "is_leaf")
    return bool(found)


def _side(value: object, side: str) -> object:
    if isinstance(value, (tuple, list)):
        return type(value)(_side(item, side) for item in value)
    return getattr(value, side) if isinstance(value, Pair) else value


def _cotangent(library: Engine, result: Any, place: int) -> Any:
    dtype = str(result.dtype).rpartition(".")[2]
    values = numbers(result.numel(), 11 + place, dtype)
    return library.make(values, tuple(result.shape), dtype, grad=False)


def _names(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_names, value))}]"
    return value.name if isinstance(value, Pair) else repr(value)


def pairs_in(value: object) -> Iterator[Pair]:
    """The pairs in a value, a tuple or a list."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from pairs_in(item)
    elif isinstance(value, Pair):
        yield value
