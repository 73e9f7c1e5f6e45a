"""`subclass_laws`: the laws of a wrapper subclass, which any class can be tested by.

S1  taken apart and put together again it is the same
S2  an op on wrappers is the op on what they mean
S3  gradients mean the gradients of what they mean
S4  an in-place op gives what it writes, whose meaning follows, and is counted once
S5  a view is one of what is meant, and writes go through it both ways
S6  random programs do to wrappers what they do to what these mean
S7  compiled, random programs do what they do in eager
S8  nested with a pair, either way, it means the same

Spec: `specs/testing.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper, unflatten
from aotlite.ir.errors import AotliteError, ArgumentError, ProtocolError, SubclassError
from aotlite.ir.op import OPS, DataOp, InplaceOp, MultiViewOp, Op, PureOp, ViewOp
from aotlite.testing.laws.errors import LawError, broken, running
from aotlite.testing.laws.ops.runs import tensor_of
from aotlite.testing.laws.samples.generated import samples_for
from aotlite.testing.laws.samples.sample import FLOATS, Sample, arrays_in, layouts
from aotlite.testing.subclasses.kinds import Meanings, SubclassKind, in_world
from aotlite.testing.subclasses.masked_model import MaskedModel, NotSaid
from aotlite.testing.subclasses.reference import (
    check_same,
    expected,
    flat,
    gradients,
    is_refused,
    leaf_in,
    modeled_gradients,
    tried,
)

Samples = Callable[[str], Sequence[Sample]]


@attrs.frozen
class SubclassLaw:
    """A named law: `check(subject, ...)` raises if it is broken."""

    name: str
    claim: str
    check: Callable[..., None]
    kinds: tuple[type[Op], ...] = ()
    """The kinds of op that it applies to; empty for a law of the class alone."""


@attrs.frozen(eq=False)
class TriedWrapper:
    """A class under test, with its meaning and that of all other classes."""

    kind: SubclassKind
    meanings: Meanings

    @property
    def name(self) -> str:
        return f"subclass {self.kind.name!r}"


# ------------------------------------------------------------------------------ the class (S1)
def _round_trip(subject: TriedWrapper, dense: Tensor) -> None:
    made = subject.kind.make(dense)
    if not is_wrapper(made):
        raise broken(f"made of a tensor it is a {type(made).__name__}, expected a wrapper")
    check_rebuilt(made, subject)


def check_rebuilt(made: Tensor, subject: TriedWrapper) -> None:
    names, spec = flatten(made)
    if flatten(made) != (names, spec):
        raise broken(f"taken apart twice it gives {(names, spec)}, then {flatten(made)}")
    hash(spec)
    again = unflatten(type(made), inner_tensors(made), spec, made.shape, made.stride())
    if flatten(again) != (names, spec):
        raise broken(f"rebuilt it has {flatten(again)}, expected {(names, spec)}")
    for name in names:
        if getattr(again, name) is not getattr(made, name):
            raise broken(f"rebuilt its {name!r} is another tensor, expected the one given")
        if is_wrapper(getattr(made, name)):
            check_rebuilt(getattr(made, name), subject)
    if again.meta is not made.meta:
        raise broken(f"rebuilt it is {again.meta}, expected {made.meta}")
    if subject.kind.cls is type(made):
        check_same("rebuilt it", again, subject.meanings.worlds(made), subject.meanings)


# --------------------------------------------------------------------------------------- of ops
@attrs.frozen
class Arguments:
    """A sample whose arguments are made with wrappers for all possible tensors, or for one."""

    sample: Sample
    only: int | None = None

    def fresh(self, subject: TriedWrapper, *, grad: bool = False) -> tuple[Any, ...]:
        """The arguments, on fresh memory."""
        count = [0]

        def made(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple([made(each) for each in value])
            if not isinstance(value, np.ndarray):
                return value
            tensor, number = tensor_of(value), count[0]
            count[0] += 1
            if self.only in (None, number):
                tensor = _wrapped(subject.kind, tensor)
            return tensor.requires_grad_() if grad and value.dtype.kind in "fc" else tensor

        return tuple([made(each) for each in self.sample.args])

    def __str__(self) -> str:
        return f"{self.sample}" + ("" if self.only is None else f" with array {self.only} wrapped")


def _wrapped(kind: SubclassKind, tensor: Tensor) -> Tensor:
    try:
        return kind.make(tensor)
    except AotliteError:
        return tensor


def _variants(subject: TriedWrapper, sample: Sample) -> Iterator[Arguments]:
    """The sample with all arrays wrapped, then with each one alone."""
    yield Arguments(sample)
    count = len(list(arrays_in(sample.args)))
    if count > 1:
        yield from [Arguments(sample, k) for k in range(min(count, 3))]


def _grown(sample: Sample, times: int) -> Sample:
    def grown(value: object) -> Any:
        if isinstance(value, tuple):
            return tuple([grown(each) for each in value])
        return np.tile(value, [times] * value.ndim) if isinstance(value, np.ndarray) else value

    return sample if times == 1 else attrs.evolve(sample, args=grown(sample.args))


def _has_wrapper(args: object) -> bool:
    return any(is_wrapper(each) for each in flat(args))


def _worlds_of_args(subject: TriedWrapper, args: object) -> int:
    return subject.meanings.count([each for each in flat(args) if is_wrapper(each)])


def _wanted(subject: TriedWrapper, name: str, args: object, kwargs: object) -> list[Any]:
    """The op's results in each world, or errors."""
    with no_grad():
        return [
            tried(expected, name, in_world(args, k, subject.meanings), kwargs)
            for k in range(_worlds_of_args(subject, args))
        ]


def _gives_the_meaning(subject: TriedWrapper, op: Op, given: Arguments) -> None:
    """S2."""
    kwargs, args = given.sample.kwargs, given.fresh(subject)
    wanted = _wanted(subject, op.name, given.fresh(subject), kwargs)
    before = [(each, each.version) for each in flat(args) if isinstance(each, Tensor)]
    found = tried(lambda: flat(call(op.name, *args, **kwargs)))
    if isinstance(found, SubclassError):
        raise found
    if is_refused(wanted):
        return
    if isinstance(found, AotliteError):
        raise found
    for k, each in enumerate(found):
        _check_result(subject, f"result {k}", each, [flat(world)[k] for world in wanted])
    if any(each.version != version for each, version in before):
        raise broken("it writes an operand, expected new results alone")


def _check_result(subject: TriedWrapper, what: str, found: Any, wanted: list[Any]) -> None:
    check_same(what, found, wanted, subject.meanings, subject.kind.tolerance)
    dense = wanted[0].data if isinstance(wanted[0], MaskedModel) else wanted[0]
    if isinstance(found, Tensor) and (found.shape, found.dtype) != (dense.shape, dense.dtype):
        raise broken(f"{what} is {found.meta}, expected {dense.meta}")


def _differentiates_the_meaning(subject: TriedWrapper, op: Op, given: Arguments) -> None:
    """S3."""
    if not given.sample.smooth:
        return
    kwargs = given.sample.kwargs
    args = given.fresh(subject, grad=True)
    count = _worlds_of_args(subject, args)
    each = [
        tried(modeled_gradients, op.name, leaf_in(args, k, subject.meanings), kwargs)
        for k in range(count)
    ]
    if any(isinstance(world, (AotliteError, NotSaid)) for world in each):
        return
    leaves = [leaf for leaf in flat(args) if isinstance(leaf, Tensor) and leaf.requires_grad]
    found = gradients(lambda: call(op.name, *args, **kwargs), leaves)
    for k, grad in enumerate(found):
        _check_gradient(subject, f"the gradient of leaf {k}", grad, [world[k] for world in each])


def _check_gradient(subject: TriedWrapper, what: str, found: Any, wanted: list[object]) -> None:
    """Compares a gradient with the wanted ones; None equals zeros."""
    if found is None or any(each is None for each in wanted):
        for each in [found, *wanted]:
            if each is not None and any(_numbers(subject, each)):
                raise broken(f"{what} is {found}, expected {wanted}")
        return
    worlds = subject.meanings.worlds(found)
    dense = [each.filled(0.0) if isinstance(each, MaskedModel) else each for each in worlds]
    for k, each in enumerate(wanted):
        got = dense[k if len(dense) > 1 else 0]
        check_same(what, got, [each], subject.meanings, max(subject.kind.tolerance, 1e-12))


def _numbers(subject: TriedWrapper, grad: object) -> Iterator[object]:
    for world in subject.meanings.worlds(grad):
        dense = world.filled(0.0) if isinstance(world, MaskedModel) else world
        yield dense.detach().array.any()


# ------------------------------------------------------------------------------------- writes (S4)
def _writes_the_meaning(subject: TriedWrapper, op: InplaceOp, given: Arguments) -> None:
    """S4."""
    kwargs, args = given.sample.kwargs, given.fresh(subject)
    target, others = args[0], [each for each in flat(args[1:]) if isinstance(each, Tensor)]
    if not is_wrapper(target):
        return
    wanted = _wanted_writes(subject, op, args, kwargs)
    if not any(isinstance(each, NotSaid) for each in wanted) and is_refused(wanted):
        return
    before = [(each, subject.meanings.worlds(each), each.version) for each in others]
    before = [(each, _copies(worlds), version) for each, worlds, version in before]
    parts = {name: part.storage for name, part in inner_tensors(target).items()}
    found = call(op.name, *args, **kwargs)
    is_refused(wanted)  # raises if no rule defines the value
    if found is not target:
        raise broken(f"it gives a {type(found).__name__}, expected the wrapper that it writes")
    check_same("the wrapper", target, wanted, subject.meanings, subject.kind.tolerance)
    if target.version != 1:
        raise broken(f"its version is {target.version}, expected 1")
    if parts != {name: part.storage for name, part in inner_tensors(target).items()}:
        raise broken("a part lies in other memory than before, expected a write where it lay")
    for each, worlds, version in before:
        if each.version != version:
            raise broken(f"another operand has version {each.version}, expected {version}")
        check_same("another operand", each, worlds, subject.meanings)


def _wanted_writes(subject: TriedWrapper, op: InplaceOp, args: Any, kwargs: object) -> list[object]:
    """The meaning of the target after the write, in each world."""
    found = []
    for k in range(_worlds_of_args(subject, args)):
        dense = in_world(args, k, subject.meanings)
        value = tried(written, op, dense, kwargs)
        if not isinstance(value, (AotliteError, NotSaid)):
            value = subject.meanings.stored(args[0], value)
        found.append(value)
    return found


def written(op: InplaceOp, args: Any, kwargs: Any) -> Any:
    """The meaning of the first argument after an in-place op.

    In a masked tensor, the elements that all operands keep are written.
    """
    target = args[0]
    if not isinstance(target, MaskedModel):
        dense = target.clone()
        return call(op.name, dense, *args[1:], **kwargs)
    if op.name == "fill_":
        return MaskedModel(call("fill", target.data, *args[1:], **kwargs), target.mask)
    probe = target.data.clone()  # raises if the write is not allowed
    call(op.name, probe, *[a.data if isinstance(a, MaskedModel) else a for a in args[1:]], **kwargs)
    value = expected(op.functional.name, args, kwargs)
    both = target.mask.logical_and(value.mask)
    kept = value.data.to(target.data.dtype)
    return MaskedModel(call("where", both, kept, target.data), target.mask)


def _copies(worlds: list[Any]) -> list[Any]:
    return [
        MaskedModel(each.data.clone(), each.mask) if isinstance(each, MaskedModel) else each.clone()
        for each in worlds
    ]


# -------------------------------------------------------------------------------------- views (S5)
def _views_the_meaning(subject: TriedWrapper, op: Op, given: Arguments) -> None:
    """S5."""
    kwargs = given.sample.kwargs
    for through_view in (True, False):
        args = given.fresh(subject)
        source = args[0]
        if not is_wrapper(source):
            return
        wanted = _wanted(subject, op.name, args, kwargs)
        if is_refused(wanted):
            return
        views = flat(call(op.name, *args, **kwargs))
        for k, view in enumerate(views):
            _check_result(subject, f"view {k}", view, [flat(world)[k] for world in wanted])
            _check_shared(source, view)
        if _is_writable(op.name, given.sample, source) and views:
            _check_writes_through(subject, op, args, kwargs, through_view=through_view)


def _check_shared(source: Tensor, view: Tensor) -> None:
    if type(view) is not type(source) or view.storage is not source.storage:
        raise broken(f"it gives a {type(view).__name__}, expected a view of the wrapper's class")
    mine, its = inner_tensors(source), inner_tensors(view)
    for name, part in its.items():
        if name not in mine or part.storage is not mine[name].storage:
            raise broken(f"part {name!r} of the view has memory of its own, expected a view")


def _is_writable(name: str, sample: Sample, source: Tensor) -> bool:
    """Whether the source can be written: finite numbers, no two elements at one address."""
    arrays = list(arrays_in(sample.args))
    finite = all(np.isfinite(each).all() for each in arrays if each.dtype.kind in "fc")
    wide = all(0 not in each.strides or each.size == 0 for each in arrays)
    window = name != "as_strided" or source.is_contiguous()  # a copy has no gaps
    return bool(finite and wide and window and source.dtype.is_floating_point)


def _check_writes_through(
    subject: TriedWrapper, op: Op, args: Any, kwargs: Any, *, through_view: bool
) -> None:
    """A number twice as large is held by each class that holds the number, or both are cut off."""
    source = args[0]
    pairs = [_owned(each) for each in subject.meanings.worlds(source)]
    view = flat(call(op.name, *args, **kwargs))[0]
    others = [flat(expected(op.name, (each, *args[1:]), kwargs))[0] for each in pairs]
    targets = others if through_view else pairs
    results = [tried(_doubled, each) for each in targets]
    if any(isinstance(each, AotliteError) for each in results):
        return  # places in it share an element
    (view if through_view else source).mul_(2.0)
    names = ("the wrapper after a write to its view", "the view after a write to the wrapper")
    seen, wanted = (source, pairs) if through_view else (view, others)
    check_same(names[not through_view], seen, wanted, subject.meanings, subject.kind.tolerance)
    if (source.version, view.version) != (1, 1):
        raise broken(f"versions are {source.version} and {view.version}, expected 1 and 1")


def _owned(world: Any) -> Any:
    if isinstance(world, MaskedModel):
        return MaskedModel(world.data.clone(), world.mask)
    return world.clone()


def _doubled(world: Any) -> Any:
    return (world.data if isinstance(world, MaskedModel) else world).mul_(2.0)


SUBCLASS_LAWS: tuple[SubclassLaw, ...] = (
    SubclassLaw("S1", "unflatten after flatten returns an equal wrapper", _round_trip),
    SubclassLaw("S2", "an op acts on the meaning", _gives_the_meaning, (PureOp, DataOp)),
    SubclassLaw(
        "S3", "gradients are those of the meaning", _differentiates_the_meaning, (PureOp, ViewOp)
    ),
    SubclassLaw("S4", "in-place ops write the meaning", _writes_the_meaning, (InplaceOp,)),
    SubclassLaw("S5", "views are views of the meaning", _views_the_meaning, (ViewOp, MultiViewOp)),
)
"""The laws that each op must keep."""


def check_ops(
    subject: TriedWrapper,
    laws: Iterable[SubclassLaw],
    names: Iterable[str],
    samples: Samples,
    most: int,
) -> tuple[int, set[str]]:
    """On how many calls the laws of ops hold, and the ops that the class does not know."""
    cases, refused = 0, set()
    for name in names:
        op = OPS[name]
        known = [
            _check_case(subject, law, op, given)
            for law in laws
            if isinstance(op, law.kinds)
            for given in _cases(subject, law, samples(name), most)
        ]
        cases += sum(known)
        refused |= {name} if known and not any(known) else set()
    return cases, refused


def _cases(
    subject: TriedWrapper, law: SubclassLaw, samples: Sequence[Sample], most: int
) -> Iterator[Arguments]:
    """At most so many calls, spread over the samples."""
    wanted = [each for each in samples if each.smooth] if law.name == "S3" else list(samples)
    step = max(1, len(wanted) // most)
    for sample in wanted[::step][:most]:
        for given in _variants(subject, _grown(sample, subject.kind.grow)):
            if _has_wrapper(given.fresh(subject)):
                yield given


def _check_case(subject: TriedWrapper, law: SubclassLaw, op: Op, given: Arguments) -> bool:
    """Whether the class knows the op for these arguments."""
    try:
        with np.errstate(all="ignore"):
            with running(law.name, law.claim, f"{subject.name}, {op.name}{given}", given.sample):
                law.check(subject, op, given)
    except LawError as error:
        why = error.__cause__
        if isinstance(why, SubclassError) and not isinstance(why, ProtocolError):
            return False
        raise
    return True


def op_samples(name: str) -> Sequence[Sample]:
    """The samples that an op's schema suggests; none where it suggests none."""
    try:
        return samples_for(OPS[name])
    except ArgumentError:
        return ()


def tensors() -> list[Tensor]:
    """Tensors of each layout, float32 and float64."""
    return [tensor_of(each) for dtype in FLOATS for each in layouts(dtype)]
