"""Writes the guards, the first part of an entry's function.

Input: the first call's flat arguments, and the guards that capture recorded. Output: lines that
return MISS if a guard fails, and the same checks one by one, for `why_not`. Rules:
GRD-1, GRD-2, DUP-5, CAP-3..CAP-12. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.backends.python_source import listed
from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tensor_facts import Mark, are_recognized, facts_of, facts_without_sizes
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.graph.role import Part, Primal
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.proving import Unproved
from aotlite.ir.symbols.user_code import UNSEARCHED, held_symbol
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.guards.access_paths import (
    NOTHING,
    AccessPath,
    attributes_of,
    class_step_text,
    take,
)
from aotlite.stages.records.guards.float_guards import (
    FloatArgumentGuard,
    FloatFactGuard,
    FloatPath,
)
from aotlite.stages.records.guards.guard_records import (
    EnvironmentGuard,
    GradAttributeGuard,
    HiddenInputGuard,
    NoHooksGuard,
    SameTensorGuard,
    ValueGuard,
)
from aotlite.stages.records.guards.snapshots import PLAIN, Snapshot, snapshot_of
from aotlite.stages.s10_runtime.guards.failures import (
    GUARD_ERRORS,
    MOST_BITS,
    ONE_OBJECT,
    GuardCheck,
    changed_words,
    exact_test,
    one_by_one,
    outlined,
)
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues, name_of
from aotlite.stages.s10_runtime.guards.overlap import (
    share_memory,
    sharing_check,
    view_family_checks,
)
from aotlite.stages.s10_runtime.sized_source import SizedSource
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.s10_runtime.subclass_code import depth, spec_test

Facts = Callable[[Tensor], object]
MISS = object()
"""The result of an entry's function for a call for which the entry is not valid."""


def write_guards(
    source: FunctionSource,
    values: GuardedValues,
    *,
    marks: bool = True,
    sized: Collection[InputRole] = (),
) -> tuple[GuardCheck, ...]:
    """Adds the guards' lines to `source`; returns the checks one by one.

    With `marks`, a call recognizes many arguments by marks that an earlier call gave them. Sizes
    and strides of the inputs `sized` are not checked, nor the values of ints: they are symbols.
    """
    writer = _Guards(source, values, frozenset(map(name_of, sized)))
    writer.modes()
    writer.arguments(marks=marks)
    writer.outside()
    writer.memory()
    source.use(facts_of, are_recognized, is_watched, take)
    source.scope.update(
        words=in_few_words,
        words_unlike=words_unlike,
        STATE=STATE,
        MISS=MISS,
        GUARD_ERRORS=GUARD_ERRORS,
        NOTHING=NOTHING,
    )
    _add_lines(source, len(values.leaves), writer.checks)
    return tuple(writer.checks)


def _add_lines(source: FunctionSource, count: int, checks: list[GuardCheck]) -> None:
    source.add(f"if len(leaves) != {count}:", "    return MISS")
    if count:
        source.add(f"{listed([f'a{i}' for i in range(count)])} = leaves")
    source.add("try:")
    tests: list[str] = []
    for check in [*checks, None]:
        if check is not None and not check.is_statement:
            tests.append(check.test)
            continue
        if tests:
            source.add("    if not (", *[f"        {line}" for line in _joined(tests)], "    ):")
            source.add("        return MISS")
            tests = []
        if check is not None:
            source.add(f"    {check.test}")
    source.add("except GUARD_ERRORS:", "    return MISS")


def _joined(tests: list[str]) -> list[str]:
    return [tests[0], *[f"and {test}" for test in tests[1:]]]


@attrs.define(eq=False, repr=False)
class _Guards:
    """Collects the checks."""

    source: FunctionSource
    values: GuardedValues
    sized: Collection[str] = ()
    """The variables of inputs with symbols for sizes."""
    checks: list[GuardCheck] = attrs.field(factory=list)
    _variables: dict[object, str] = attrs.field(factory=dict)
    _places: dict[str, str] = attrs.field(factory=dict)
    """The access paths of hidden inputs, by variable."""

    def check(self, test: str, subject: str, shown: str | None, expected: str) -> None:
        self.checks.append(GuardCheck(test, subject, shown, expected))

    # --- arguments
    def arguments(self, *, marks: bool) -> None:
        """Checks facts of tensors, type and bits of plain values, and same objects (DUP-5)."""
        first: dict[int, int] = {}
        tensors: dict[str, Tensor] = {}
        modules: list[str] = []
        for i, leaf in enumerate(self.values.leaves):
            name, subject = f"a{i}", f"argument {i}"
            if type(leaf) in (int, float) and self._has_any_value(i):
                kind = type(leaf).__name__
                self.check(f"type({name}) is {kind}", subject, f"words({name})", f"one {kind}")
            elif not isinstance(leaf, (Tensor, TrackedObject)):
                self._plain(name, leaf, subject, snapshot_of(leaf))
            elif first.setdefault(id(leaf), i) != i:
                before = first[id(leaf)]
                what = f"the object that is argument {before}"
                self.check(f"{name} is a{before}", subject, None, what)
            elif isinstance(leaf, Tensor):
                tensors[name] = leaf
            else:
                modules.append(name)
                kind = self.source.constant(type(leaf), "T", type(leaf).__name__)
                what = f"a {type(leaf).__name__}"
                self.check(f"type({name}) is {kind}", subject, f"type({name})", what)
        hidden = {f"h{i}": tensor for i, tensor in enumerate(self.values.hidden)}
        if self.values.wrappers:
            self._refuse("wrappers")
            hidden |= {name_of(role): part for role, part in self.values.parts.items()}
        if marks and not self.sized and len(tensors) + len(hidden) > 3:
            for name, tensor in list(tensors.items())[:1] if hidden else ():
                self._meta(name, tensor)  # most calls that need another entry fail here
            self._hidden()
            self._marks(tensors | hidden)
        else:
            for name, tensor in tensors.items():
                self._facts(name, tensor, f"argument {name[1:]}")
            self._hidden()
            for name, tensor in hidden.items():
                self._facts(name, tensor, self._places[name])
            alike: dict[Any, list[str]] = {}
            for name, tensor in (tensors | hidden).items():
                alike.setdefault(self._like(tensor), []).append(name)
            for names in alike.values():  # of other facts, they are other objects
                self._different(names)
        self._different(modules, users=True)

    def _has_any_value(self, i: int) -> bool:
        """Whether argument i is a number whose value is a symbol or an input."""
        guards = self.values.guards
        is_input = any(isinstance(g, FloatArgumentGuard) and g.index == i for g in guards)
        return is_input or f"a{i}" in self.sized or Primal(i) in self.values.sized

    def _hidden(self) -> None:
        """Checks the hidden inputs: tensors that the function reached outside (CAP-3)."""
        for guard in self.values.guards:
            if isinstance(guard, HiddenInputGuard):
                name, place = f"h{guard.index}", str(guard.place)
                self._places[name] = place
                self._statement(f"{name} = {self._at(guard.place)}", place)
        self._unwrap()

    def _unwrap(self) -> None:
        """Checks class, names and spec of wrappers, and their parts (SUB-21)."""
        shared = []
        wrappers = sorted(self.values.wrappers.items(), key=lambda each: depth(each[0]))
        for role, wrapping in wrappers:
            name, kind = name_of(role), wrapping.kind
            place = self._places.get(name, f"argument {name[1:]}")
            expected = self.source.constant(kind, "T", kind.__name__)
            self.check(f"type({name}) is {expected}", place, f"type({name})", f"a {kind.__name__}")
            self._statement(f"{name}_n, {name}_s = {name}.__tensor_flatten__()", place)
            attrs = [attr for attr, _, _ in wrapping.parts]
            what = f"the names of the parts of {place}"
            self.check(f"[*{name}_n] == {attrs}", what, f"{name}_n", str(attrs))
            if not self.sized or held_symbol(wrapping.spec) in (None, UNSEARCHED):
                test = spec_test(self.source, f"{name}_s", wrapping.spec)
                self.check(test, f"the spec of {place}", f"{name}_s", repr(wrapping.spec)[:80])
            for attr, of, _ in wrapping.parts:
                if of == Part(role, attr):
                    self._places[name_of(of)] = f"{place}.{attr}"
                    self._statement(f"{name_of(of)} = {name}.{attr}", f"{place}.{attr}")
                else:
                    shared.append((f"{name}.{attr} is {name_of(of)}", f"{place}.{attr}", of))
        for test, place, of in shared:
            self.check(test, place, None, f"the object that is {of}")

    def _refuse(self, what: str) -> None:
        """Raises Unproved if the text is one for many sizes."""
        if self.values.sized:
            raise Unproved(f"{what} at each size")

    def _of_tensor(
        self, kind: str, name: str, tensor: Tensor, make: Facts, note: str | None = None
    ) -> str:
        """The name of what is made of an input's tensor, whose variable is `name`."""
        of = self.source
        sized = of.of_tensor(kind, name, make) if isinstance(of, SizedSource) else None
        return sized or of.constant(make(tensor), kind, note)

    def _words(self, name: str, tensor: Tensor) -> str:
        """The facts of a tensor in words; those of an input with symbols are others elsewhere."""
        is_sized = isinstance(self.source, SizedSource) and name in self.source.roles
        return f"as {facts_of(tensor)}, but for sizes" if is_sized else str(facts_of(tensor))

    def _meta(self, name: str, tensor: Tensor) -> None:
        expected = self._of_tensor("M", name, tensor, _meta, str(tensor.meta))
        test = f"{name}.meta is {expected}"
        shown = f"words_unlike({name}.meta, {expected})"
        self.check(test, f"argument {name[1:]}", shown, str(tensor.meta))

    def _marks(self, tensors: dict[str, Tensor]) -> None:
        """Checks facts and identity of many tensors, with one test for each marked one."""
        source = self.source
        names = [self._of_tensor("K", *each, _mark) for each in tensors.items()]
        words = [self._words(*each) for each in tensors.items()]
        source.notes += [f"# K: marks of {each}" for each in dict.fromkeys(words)]
        known = [f"{name}.facts is {mark}" for name, mark in zip(tensors, names, strict=True)]
        if isinstance(source, SizedSource):
            many = source.all_of(names)
        else:
            marks = tuple([source.scope[name] for name in names])
            many = source.constant(marks, "V", "all these marks")
        unknown = f"are_recognized({listed(list(tensors))}, {many})"
        subjects = [self._places.get(name, f"argument {name[1:]}") for name in tensors]
        explain = partial(one_by_one, list(tensors), subjects, names, words)
        test = f"({' and '.join(known)} or {unknown})"
        self.checks.append(GuardCheck(test, "the arguments", explain=explain))

    def _different(self, names: list[str], *, users: bool = False) -> None:
        """Checks that different objects still are: a program can compare them (DUP-5)."""
        if len(names) > 1:
            pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
            test = " and ".join([f"{a} is not {b}" for a, b in pairs])
            if len(names) > 3:  # a class says what equals its objects; tensors are hashed quickly
                objects = [f"id({name})" for name in names] if users else names
                test = f"len({{{', '.join(objects)}}}) == {len(names)}"
            self.check(test, ONE_OBJECT, None, "none")

    def _like(self, tensor: Tensor) -> object:
        """The facts by which it is known that two tensors are different objects."""
        is_sized = self.sized or self.values.sized
        return facts_without_sizes(tensor) if is_sized else facts_of(tensor)

    def _facts(self, name: str, tensor: Tensor, subject: str) -> None:
        if name in self.sized:
            self.source.use(facts_without_sizes)
            unsized = facts_without_sizes(tensor)
            expected = self.source.constant(unsized, "F", "facts without sizes")
            what = f"as {facts_of(tensor)}, but for sizes"
            self.check(
                f"facts_without_sizes({name}) == {expected}", subject, f"words({name})", what
            )
            return
        facts = self._words(name, tensor)
        expected = self._of_tensor("F", name, tensor, facts_of, facts)
        test = f"({name}.facts is {expected} or facts_of({name}) is {expected})"
        self.check(test, subject, f"words_unlike({name}, {expected})", facts)

    def _plain(self, name: str, value: object, subject: str, snapshot: Snapshot) -> None:
        test = exact_test(name, value)
        if test is None:
            test = f"{self.source.constant(snapshot, 'V', in_few_words(value))}.holds({name})"
        self.check(test, subject, f"words({name})", in_few_words(value))

    def modes(self) -> None:
        """Checks first that no capture runs: its tensors have no facts. In anomaly mode
        and in a DispatchMode the function runs eagerly (JNT-8, DSP-6)."""
        self.check("STATE.recorder is None", "a capture", None, "none running")
        no_mode = "(STATE.watch is None or not STATE.watch.eager)"
        self.check(no_mode, "the mode", "STATE.watch.eager", "none that runs calls eagerly")
        mode = STATE.grad_mode
        self.check(f"STATE.grad_mode is {mode}", "grad mode", "STATE.grad_mode", str(mode))

    # --- the outside
    def outside(self) -> None:
        """Checks the objects that the function reached outside its arguments (CAP-3, CAP-12)."""
        for guard in self.values.guards:
            match guard:
                case SameTensorGuard(place, role):
                    what = f"the object that is {role}"
                    self.check(f"{self._at(place)} is {name_of(role)}", str(place), None, what)
                case ValueGuard(place, snapshot):
                    self._plain_at(place, snapshot)
                case GradAttributeGuard(place):
                    test = f"{self._at(place)} {guard.test}"
                    self.check(test, str(place), None, guard.expected)
                case NoHooksGuard(role):
                    self.check(f"not is_watched({name_of(role)})", str(role), None, "without hooks")
                case FloatFactGuard(fact):
                    test = f"{self.source.constant(fact.test, 'V', repr(fact))}(leaves)"
                    self.check(test, "what was asked about floats", None, repr(fact))
                case EnvironmentGuard():
                    self._environment(guard)

    def _plain_at(self, place: AccessPath, snapshot: Snapshot) -> None:
        value = place.resolve(list(self.values.leaves))
        if value is NOTHING:
            *_, (kind, key) = place.path
            owner = self._at(AccessPath(place.argument, place.function, place.path[:-1]))
            test = f"take({owner}, {kind!r}, {self._key(key)}) is NOTHING"
            self.check(test, str(place), None, "nothing there")
        elif not self._identity(place, value):
            self._plain(self._at(place), value, str(place), snapshot)

    def _environment(self, guard: EnvironmentGuard) -> None:
        """Checks containers, Modules and tensors by one snapshot of them all."""
        leaves, source = list(self.values.leaves), self.source
        what = _places_text(guard.places)
        known = listed([name_of(role) for role in guard.roles])
        values = listed([self._at(place) for place in guard.places])
        change = f"{source.constant(guard.snapshot, 'S', what)}.first_change({values}, {known})"
        paths = source.constant(guard.places, "P", f"the paths of {what}")
        before = [outlined(place.resolve(leaves)) for place in guard.places]
        words = source.constant(partial(changed_words, before), "V", "what changed, in words")
        test, shown = f"{change} is None", f"{words}({change}, {values})"
        self.checks.append(GuardCheck(test, what, shown, "as it was", culprit=f"{paths}[{change}]"))

    def _identity(self, place: AccessPath, value: object) -> bool:
        """Checks modules, functions and classes by identity."""
        if isinstance(value, (types.ModuleType, type)):
            name = self.source.constant(value, "O", in_few_words(value))
            test = f"{self._at(place)} is {name}"
        elif isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
            name = self.source.constant(weakref.ref(value), "W", in_few_words(value))
            test = f"{self._at(place)} is {name}() is not None"
        else:
            return False
        self.check(test, str(place), None, in_few_words(value))
        return True

    # --- places
    def _at(self, place: AccessPath) -> str:
        """The variable for the object at an access path; each step of a path is taken once."""
        if isinstance(place, FloatPath):
            return f"{self.source.constant(place, 'N', str(place))}.resolve(leaves)"
        at = self._root(place)
        for i, (kind, key) in enumerate(place.path):
            path = (id(place.function), place.argument, place.path[: i + 1])
            name = self._variables.get(path)
            if name is None:
                name = self._variables[path] = f"p{len(self._variables)}"
                here = AccessPath(place.argument, place.function, place.path[: i + 1])
                self._statement(f"{name} = {self._step(at, place, i, kind, key)}", str(here))
            at = name
        return at

    def _root(self, place: AccessPath) -> str:
        if place.argument is not None:
            return f"a{place.argument}"
        return self.source.constant(place.function, "O", "the compiled function")

    def _step(self, at: str, place: AccessPath, i: int, kind: str, key: Any) -> str:
        match kind:
            case "global" if i == 0 and place.argument is None:
                return f"{self.source.constant(place.function.__globals__, 'G')}[{key!r}]"
            case "cell" if i == 0 and place.argument is None:
                cell = place.function.__closure__[key]
                return f"{self.source.constant(cell, 'C')}.cell_contents"
            case "attr" | "module" if key in attributes_of(self._owner(place, i)):
                return f"{at}.__dict__[{key!r}]"
            case "item" if type(key) in (int, str):
                return f"{at}[{key!r}]"
            case "grad":
                return f"{at}._grad"
            case "part":
                return f"{at}.{key}"
            case "class":
                return class_step_text(at, self._owner(place, i), key)
        return f"take({at}, {kind!r}, {self._key(key)})"

    def _owner(self, place: AccessPath, i: int) -> object:
        """The variable from which a path's last step is taken."""
        before = AccessPath(place.argument, place.function, place.path[:i])
        return before.resolve(list(self.values.leaves))

    def _key(self, key: object) -> str:
        return repr(key) if type(key) in (int, str, type(None)) else self.source.constant(key, "K")

    def _statement(self, text: str, subject: str) -> None:
        self.checks.append(GuardCheck(text, subject, None, "something there", is_statement=True))

    # --- memory
    def memory(self) -> None:
        """Checks shared memory if any is written (GRD-2), and offsets that the function read."""
        tensors = self.values.tensors()
        if self.values.view_family_members or self.values.fixed_sizes or self.values.needed:
            self._refuse("memory that the function needs, and views of one base,")
        if self.values.written and len(tensors) > 1:
            if share_memory(list(tensors.values())):
                self._refuse("memory that inputs share,")
            named = {name_of(role): tensor for role, tensor in tensors.items()}
            written = [name_of(role) for role in tensors if role in self.values.written]
            sized = bool(self.sized)
            self.checks += sharing_check(self.source, named, written, sized=sized)
        if self.values.view_family_members:
            members = {name_of(role): tensors[role] for role in self.values.view_family_members}
            self.checks += view_family_checks(self.source, members)
        for role, is_view in self.values.fixed_views.items():
            test = f"({name_of(role)}._base is not None) is {is_view}"
            self.check(test, f"whether {role} is a view", None, str(is_view))
        for role, size in self.values.fixed_sizes.items():
            if name_of(role) in self.sized:
                continue
            storage = f"{name_of(role)}.storage"
            test = f"{storage}.nbytes() == {size} and not {storage}.exported"
            self.check(
                test, f"the memory of {role}", f"{storage}.nbytes()", f"{size} that may grow"
            )
        for role, tensor in tensors.items():
            needed = self.values.needed.get(role)
            if type(needed) is int and name_of(role) not in self.sized:  # else instances have it
                have = f"{name_of(role)}.storage.buffer.nbytes"
                what = f"at least {needed} bytes"
                self.check(f"{have} >= {needed}", f"the storage of {role}", have, what)
            if role in self.values.fixed_offsets:
                name = name_of(role)
                test = f"{name}.offset == {tensor.offset}"
                self.check(test, f"the offset of {role}", f"{name}.offset", str(tensor.offset))


def words_unlike(value: object, expected: object) -> str:
    """`in_few_words` of what differs from the expected: with the strides where these alone do. A
    tensor of few elements is contiguous whatever its strides are, which its text leaves out."""
    text = in_few_words(value) if isinstance(value, Tensor) else str(value)
    stride = getattr(value, "stride", None)
    if stride is None or text != str(expected):
        return text
    return f"{text} with the strides {stride() if callable(stride) else stride}"


def in_few_words(value: object) -> str:
    """A value in a few words: a tensor by its facts, a plain value itself, others by type."""
    if isinstance(value, Tensor):
        return str(facts_of(value))
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{value.__qualname__}"
    if type(value) is int and value.bit_length() > MOST_BITS:
        return f"an int of {value.bit_length()} bits"
    return repr(value)[:80] if isinstance(value, PLAIN) else f"a {type(value).__name__}"


def _mark(tensor: Tensor) -> Mark:
    return Mark(facts_of(tensor))


def _meta(tensor: Tensor) -> TensorMeta:
    return tensor.meta


def _places_text(places: Sequence[AccessPath]) -> str:
    text = ", ".join(map(str, places[:3]))
    return text if len(places) <= 3 else f"{text} and {len(places) - 3} more"
