"""`check_op`: runs an op through every law that applies to it.

`table` lists the laws. Without samples, `generated` makes them from the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.effects import EffectOp
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.op import OPS, Op
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.errors import Checked, LawError, require_assertions
from aotlite.testing.laws.ops.runs import has_gradient
from aotlite.testing.laws.ops.table import LAWS, WITHOUT_SAMPLES, Law, laws_of
from aotlite.testing.laws.samples.generated import samples_for
from aotlite.testing.laws.samples.sample import Sample, size_of

__all__ = ["check_op", "of", "op_of"]


def of(op: Op | str | Callable[..., object]) -> tuple[Law, ...]:
    """The laws that apply to an op, its name, or its function.

    >>> from aotlite.testing import laws
    >>> [law.name for law in laws.of("transpose")]
    ['L1', 'L2', 'L3', 'L4', 'L7', 'L8', 'L9', 'L12']
    """
    return laws_of(op_of(op))


def check_op(
    op: Op | str | Callable[..., object],
    samples: Iterable[Sample | tuple[object, ...]] | None = None,
    laws: Iterable[Law | str] | None = None,
) -> Checked:
    """Checks an op, and returns the laws that it keeps. Raises LawError for the first broken law.

    `op` is an op, its name, or the function that `register_op` gave. A sample is a `Sample`, or a
    tuple of arguments, with arrays for tensors; without samples they are made from the schema.
    `laws` are the laws to check, by name too; those that apply to the op if none are given.

    Raises ArgumentError where there is nothing to check: no sample, or none that is smooth where
    there are gradients.

    >>> import numpy as np
    >>> from aotlite.testing import laws
    >>> print(laws.check_op("tanh", laws=["L1", "L3", "L6"]))
    tanh obeys L1, L3, L6 on 69 cases
    >>> print(laws.check_op("flip", samples=[(np.ones((2, 3)), (0,))], laws=["L1"]))
    flip obeys L1 on 1 cases
    """
    require_assertions()
    found = op_of(op)
    chosen = _chosen(found, laws)
    cases = samples_for(found) if samples is None else sorted(map(_sample, samples), key=size_of)
    _check_enough(found, chosen, cases)
    for law in chosen:
        _check(law, found, cases)
    return Checked(found.name, tuple(law.name for law in chosen), len(cases))


def _check(law: Law, op: Op, cases: Sequence[Sample]) -> None:
    """Runs the law on each sample alone, smallest first, so that it fails on the smallest."""
    if law.together:
        _together(law, op, cases)
        return
    for sample in cases:
        try:
            law(op, [sample])
        except LawError as error:
            raise _shown(error, sample) from error.__cause__


def _together(law: Law, op: Op, cases: Sequence[Sample]) -> None:
    try:
        law(op, cases)
    except LawError as error:
        alone = next((s for s in cases if str(s) in str(error)), None)
        raise (error if alone is None else _shown(error, alone)) from error.__cause__


def _shown(error: LawError, sample: Sample) -> LawError:
    """Adds the sample to an error: to the first line and, with values, as a note."""
    if str(sample) not in str(error):
        first, _, rest = str(error.args[0]).partition(" raises: ")
        error.args = (f"{first}{sample} raises: {rest}" if rest else f"{first}, on {sample}",)
    error.case = sample
    return noted(error, f"the sample: {sample.source}")


# ------------------------------------------------------------------------------------- arguments
def op_of(given: object) -> Op:
    """Returns the op of a name or a function. Raises ArgumentError if there is none."""
    name = given if isinstance(given, str) else getattr(given, "__name__", None)
    if isinstance(given, Op):
        found: Op | None = given
    else:
        found = OPS.get(name) if isinstance(name, str) else None
    if found is None:
        composite = isinstance(name, str) and name in COMPOSITES
        hint = f"{name!r} is a composite: check the ops that it is made of" if composite else None
        raise noted(
            ArgumentError(f"laws: the op is {given!r}, expected an op, or the name of one"), hint
        )
    if isinstance(found, EffectOp):
        raise ArgumentError(
            f"laws: {found.name} has the effect {found.effect!r}, expected an op without: its "
            "effect is no value"
        )
    if found.name in WITHOUT_SAMPLES:
        raise ArgumentError(
            f"laws: {found.name} has no laws of its own, expected another op: "
            f"{WITHOUT_SAMPLES[found.name]}"
        )
    return found


def _sample(given: object) -> Sample:
    if isinstance(given, Sample):
        return given
    if isinstance(given, tuple):
        return Sample(given)
    hint = "an array stands for one argument" if isinstance(given, np.ndarray) else None
    raise noted(
        ArgumentError(f"laws: a sample is {given!r}, expected a Sample or a tuple of arguments"),
        hint,
    )


def _chosen(op: Op, laws: Iterable[Law | str] | None) -> tuple[Law, ...]:
    if laws is None:
        return laws_of(op)
    known = {law.name: law for law in LAWS}
    found = []
    for each in laws:
        law = known.get(each) if isinstance(each, str) else each
        if not isinstance(law, Law) or not law.applies(op):
            names = ", ".join(law.name for law in laws_of(op))
            raise ArgumentError(f"laws: {each!r} is no law for {op.name}, expected {names}")
        found.append(law)
    return tuple(found)


def _check_enough(op: Op, laws: Sequence[Law], cases: Sequence[Sample]) -> None:
    """Raises ArgumentError if a law would hold only because it has nothing to check."""
    if not laws:
        raise ArgumentError(f"laws: there are no laws for {op.name}, expected at least one")
    if not cases:
        raise ArgumentError(f"laws: there are no samples for {op.name}, expected at least one")
    differentiates = any(law.name in ("L2", "L7", "L8") for law in laws) and has_gradient(op)
    if differentiates and not any(sample.smooth for sample in cases):
        raise noted(
            ArgumentError(
                f"laws: none of {len(cases)} samples of {op.name} is smooth, expected one: it has "
                "a gradient"
            ),
            "Sample(args, smooth=True) says that all floats are float64 and away from kinks",
        )
