"""Every op and composite, in every dtype, against PyTorch.

`python -m tests.laws.pairs` prints how many pairs of op and dtype were compared and how many
differ, those on which PyTorch raises counted apart. A pair is compared in values, dtype, strides,
aliasing and, where the dtype has gradients, these. What differs and is known is a line of the table
in `torch_twins.py` or of the one here.

Values agree within `ULPS` units in the last place of the result's dtype: of each element for
pointwise ops, of the largest element where elements are summed, in whatever order.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import ml_dtypes
import numpy as np

import aotlite as al
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DTYPES, DType
from aotlite.ir.errors import AotliteError
from aotlite.ir.geometry import layout
from aotlite.ir.op import OPS, Cost, DataOp, PureOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.ops.gradient import weights_of
from aotlite.testing.laws.ops.runs import bound, kernel_op, run, tensors_in
from aotlite.testing.laws.ops.table import WITHOUT_SAMPLES
from aotlite.testing.laws.samples.sample import Sample, arrays_in
from aotlite.testing.laws.samples.variants import variants
from tests.laws.helpers.composites import (
    aliasing,
    arguments,
    entry,
    torch_arguments,
    torch_call_composite,
)
from tests.laws.helpers.composites import call as call_composite
from tests.laws.twins.torch_twins import (
    WITHOUT_TWIN,
    known,
    numpy_copy,
    torch_copy,
    torch_value,
    twin_of,
    without_known,
)
from tests.samples import samples_of

ULPS = {"pointwise": 4, "other": 16}
"""Units in the last place; 16-bit and 8-bit floats are rounded once, and agree within one."""
GRADIENT_ULPS = 32
"""Of the largest element of a gradient, which several roundings lead to."""


VARIED = (dtypes.float32, dtypes.int32, dtypes.complex64)
"""Dtypes in which each sample is also tried in other layouts and with extremes."""
REFUSED = "a gradient that PyTorch refuses"
ELEMENTS = "values of elements that are known to differ"


@attrs.frozen
class Pair:
    """An op, or a composite, and the dtype that its operands are given."""

    name: str
    is_composite: bool
    dtype: DType

    @property
    def entry(self) -> str:
        """What samples and known differences are listed under."""
        return entry(self.name) if self.is_composite else self.name

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}"


@attrs.frozen
class Verdict:
    """What came of a pair: the aspects that differ, each with a sentence, known or not."""

    torch_raises: bool
    """PyTorch takes none of the samples in this dtype."""
    we_raise: bool
    """We take none of them either."""
    calls: int = 0
    """Calls that were compared."""
    unknown: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    ulps: float = 0


# --------------------------------------------------------------------------------- which pairs
def names() -> list[tuple[str, bool]]:
    """Every op and composite that PyTorch has a counterpart of; the latter marked True."""
    ops = [(n, False) for n in OPS if n not in WITHOUT_TWIN and n not in WITHOUT_SAMPLES]
    return ops + [(n, True) for n in COMPOSITES if entry(n) not in WITHOUT_TWIN]


def samples_in(pair: Pair) -> list[Sample]:
    """A few samples of the op with its main operands in the pair's dtype."""
    every = samples_of(pair.entry)
    smooth = [sample for sample in every if sample.smooth] or every
    chosen = {id(s): s for s in (smooth[0], smooth[len(smooth) // 2], smooth[-1], every[-1])}
    return [converted(sample, pair.dtype) for sample in chosen.values()]


def converted(sample: Sample, dtype: DType) -> Sample:
    """The sample with the arrays of its main dtype, the first floating one's if any, in another."""
    arrays = list(arrays_in((sample.args, tuple(sample.kwargs.values()))))
    inexact = [a.dtype for a in arrays if a.dtype.kind in "fcV"] or [a.dtype for a in arrays]
    main = inexact[0] if inexact else None

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _as(value, dtype) if value.dtype == main else value
        if isinstance(value, (tuple, list)):
            return type(value)(map(one, value))
        return value

    kwargs = {key: one(value) for key, value in sample.kwargs.items()}
    if main is None:  # without operands, it is the result that has the dtype
        kwargs["dtype"] = dtype
    return Sample(tuple(map(one, sample.args)), kwargs, smooth=sample.smooth)


def _as(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The values, the same memory order and gaps, in a dtype; complex numbers get both parts."""
    stride = [step // array.itemsize for step in array.strides]
    memory = np.zeros(max(layout.span(array.shape, tuple(stride)), 1), dtype.numpy)
    steps = [step * dtype.itemsize for step in stride]
    made = np.ndarray(array.shape, dtype.numpy, memory, 0, steps)
    with np.errstate(all="ignore"):
        values = array.astype(np.complex128) * (1 + 0.5j) if dtype.is_complex else array
        if not dtype.is_complex and array.dtype.kind == "c":
            values = array.real
        if dtype.kind < dtypes.FLOATING and array.dtype.kind in "fV":
            values = array.astype(np.float64) * 8  # eighths become integers
        made[...] = (values if array.dtype.kind != "V" else values.astype(np.float32)).astype(
            dtype.numpy
        )
    return made


# ------------------------------------------------------------------------------------ comparing
def compare(torch: Any, pair: Pair) -> Verdict:
    """The verdict on a pair."""
    tally = _Tally(pair)
    for sample in samples_in(pair):
        if tally.add(torch, sample, ""):
            for name, variant in _named_variants(pair, sample):
                tally.add(torch, variant, f" {name}")
    return tally.verdict()


def _named_variants(pair: Pair, sample: Sample) -> Iterable[tuple[str, Sample]]:
    if pair.dtype not in VARIED:
        return ()
    return variants(sample, writes=pair.name.endswith("_"), counts=_counts(pair))


def variants_in(pair: Pair, sample: Sample) -> list[Sample]:
    """The sample in other layouts and with extremes, where the pair's dtype is tried so."""
    return [variant for _, variant in _named_variants(pair, sample)]


def _counts(pair: Pair) -> bool:
    """Whether integers among the operands may be numbers of elements of the result."""
    if pair.dtype.is_differentiable:
        return False
    return pair.is_composite or isinstance(OPS[pair.name], DataOp)


@attrs.define
class _Tally:
    """What the calls of a pair came to so far."""

    pair: Pair
    calls: int = 0
    refused: int = 0
    unknown: dict[str, None] = attrs.field(factory=dict)
    known: dict[str, None] = attrs.field(factory=dict)
    worst: float = 0.0

    def add(self, torch: Any, sample: Sample, variant: str) -> bool:
        """Makes both calls; whether PyTorch takes it."""
        try:
            theirs_in, theirs = _theirs(torch, self.pair, sample)
        except Exception:
            self._add_refused(sample, variant)
            return False
        self.calls += 1
        for aspect, sentence, ulps in _differences(torch, self.pair, sample, theirs_in, theirs):
            self.worst = max(self.worst, ulps)
            if sentence and aspect != REFUSED:
                is_known = aspect == ELEMENTS or known(self.pair.entry, aspect, sample)
                to = self.known if is_known else self.unknown
                to[f"{self.pair}{variant} {aspect}: {sentence}"] = None
        return True

    def _add_refused(self, sample: Sample, variant: str) -> None:
        error = _our_error(self.pair, sample)
        self.refused += error is not None
        if error is not None and not isinstance(error, AotliteError):
            text = f"{self.pair}{variant} error: {error!r} on {sample}, expected one of ours"
            self.unknown[text] = None

    def verdict(self) -> Verdict:
        return Verdict(
            not self.calls,
            bool(self.refused),
            self.calls,
            tuple(self.unknown),
            tuple(self.known),
            self.worst,
        )


def aspects_that_differ(torch: Any, name: str, sample: Sample) -> set[str]:
    """In what an op, or a composite by its entry, is not PyTorch's on this very sample."""
    own = name.removesuffix("()")
    pair = Pair(own, name not in OPS, dtypes.float64)
    try:
        theirs_in, theirs = _theirs(torch, pair, sample)
    except Exception:
        return {"call"}
    found = list(_differences(torch, pair, sample, theirs_in, theirs))
    if not sample.smooth:
        found += _gradient_differences(torch, pair, sample)
    differing = {aspect for aspect, sentence, _ in found if sentence}
    other_names = {REFUSED: "gradient", ELEMENTS: "values"}
    return {other_names.get(aspect, aspect) for aspect in differing}


def _theirs(torch: Any, pair: Pair, sample: Sample, grad: bool = False) -> tuple[list[Any], Any]:
    """PyTorch's operands and results."""
    args: Any
    if pair.is_composite:
        args, kwargs = torch_arguments(torch, sample)
        operands = _torch_tensors(torch, (args, tuple(kwargs.values())))
        _require_grad(operands, grad)
        return operands, torch_call_composite(torch, pair.name, args, kwargs)
    op = OPS[pair.name]
    canonical = [_held(a) for a in bound(op, sample, _Held)]
    args = [torch_value(torch, a) for a in canonical]
    operands = _torch_tensors(torch, args)
    _require_grad(operands, grad)
    if grad and pair.name.endswith("_"):
        args[0] = args[0].clone()
    return operands, twin_of(torch, op.name)(*args)


class _Held:
    """An array where a tensor is expected."""

    meta = None

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def _held(value: Any) -> Any:
    if isinstance(value, _Held):
        return value.array
    return tuple(map(_held, value)) if isinstance(value, tuple) else value


def _require_grad(tensors: Iterable[Any], grad: bool) -> None:
    for tensor in tensors if grad else ():
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.requires_grad_()


def _torch_tensors(torch: Any, value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in _torch_tensors(torch, item)]


def _ours(pair: Pair, sample: Sample, grad: bool = False) -> tuple[list[Any], Any]:
    """Our operands and results."""
    if pair.is_composite:
        args, kwargs = arguments(sample)
        operands = tensors_in((args, tuple(kwargs.values())))
    else:
        args, kwargs = bound(OPS[pair.name], sample), {}
        operands = tensors_in(args)
    for tensor in operands if grad else ():
        if tensor.dtype.is_differentiable:
            tensor.requires_grad_()
    if pair.is_composite:
        return operands, call_composite(pair.name, args, kwargs)
    if grad and pair.name.endswith("_"):
        args = (args[0].clone(), *args[1:])
    return operands, run(OPS[pair.name], args)


def _our_error(pair: Pair, sample: Sample) -> Exception | None:
    try:
        _ours(pair, sample)
    except Exception as error:
        return error
    return None


def _differences(
    torch: Any, pair: Pair, sample: Sample, theirs_in: list[Any], theirs: Any
) -> Iterator[tuple[str, str, float]]:
    """(aspect, a sentence or nothing, units in the last place) for each aspect looked at."""
    try:
        ours_in, ours = _ours(pair, sample)
    except Exception as error:
        yield "call", f"we raise {error!r} on {sample}", 0
        return
    expected, got = _torch_tensors(torch, theirs), tensors_in(ours)
    if len(expected) != len(got):
        yield "results", f"{len(got)} on {sample}, PyTorch has {len(expected)}", 0
        return
    for a, b in zip(expected, got, strict=True):
        yield from _result_differences(torch, pair, sample, a, b)
    mine = aliasing(ours_in, ours)
    its = aliasing(theirs_in, theirs, torch=torch)
    yield "aliasing", "" if mine == its else f"{mine} on {sample}, PyTorch has {its}", 0
    if pair.dtype.is_differentiable and sample.smooth and pair.dtype.itemsize > 1:
        yield from _gradient_differences(torch, pair, sample)


def _result_differences(
    torch: Any, pair: Pair, sample: Sample, their: Any, our: Any
) -> Iterator[tuple[str, str, float]]:
    facts = {
        "shape": (tuple(their.shape), our.shape),
        "dtype": (str(their.dtype).removeprefix("torch."), our.dtype.name),
        "strides": (their.stride(), our.stride()),
    }
    for aspect, (a, b) in facts.items():
        yield aspect, "" if a == b else f"{b} on {sample}, PyTorch has {a}", 0
    if their.dtype == getattr(torch, our.dtype.name) and tuple(their.shape) == our.shape:
        expected, got = numpy_copy(torch, their), our.detach().array
        each = _is_pointwise(pair)
        limit = _limit(our.dtype, ULPS["pointwise" if each else "other"])
        found = ulps_between(expected, got, our.dtype, each=each)
        if found <= limit:
            yield "values", "", found
        else:
            text = f"{our.tolist()} on {sample}, PyTorch has {their.tolist()}, {found:.3g} ulp"
            others = without_known(pair.entry, sample, expected, got)
            is_known = ulps_between(others, got, our.dtype, each=each) <= limit
            yield ELEMENTS if is_known else "values", text, 0


def _is_pointwise(pair: Pair) -> bool:
    op = None if pair.is_composite else kernel_op(OPS[pair.name])
    return isinstance(op, PureOp) and op.cost is Cost.POINTWISE


def _limit(dtype: DType, ulps: int) -> int:
    return ulps if dtype.itemsize > 2 else max(1, ulps // 4)


def ulps_between(expected: Any, got: Any, dtype: DType, *, each: bool) -> float:
    """The largest distance of two arrays in units in the last place; infinite for kinds apart.

    `each` counts units of each element, else of the largest element.
    """
    expected, got = np.asarray(expected), np.asarray(got)
    if expected.shape != got.shape:
        return np.inf
    if expected.dtype == got.dtype and expected.tobytes() == got.tobytes():
        return 0.0
    if not dtype.is_differentiable:
        return 0.0 if np.array_equal(expected, got) else np.inf
    wide = np.complex128 if dtype.is_complex else np.float64
    with np.errstate(all="ignore"):
        a, b = expected.astype(wide), got.astype(wide)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if np.any(~same & ~(np.isfinite(a) & np.isfinite(b))):
            return np.inf
        a, b = np.where(same, 0, a), np.where(same, 0, b)
        sizes = np.abs(np.where(np.isfinite(expected.astype(wide)), expected.astype(wide), 0))
        info = ml_dtypes.finfo(dtype.to_real().numpy)
        scale = np.maximum(sizes if each else np.max(sizes, initial=0), float(info.tiny))
        return float(np.max(np.abs(a - b) / (scale * float(info.eps)), initial=0))


def _gradient_differences(
    torch: Any, pair: Pair, sample: Sample
) -> Iterator[tuple[str, str, float]]:
    try:
        ours_in, ours = _ours(pair, sample, grad=True)
    except AotliteError as error:
        yield "gradient", f"we raise {error!r} on {sample}", 0
        return
    try:
        theirs_in, theirs = _theirs(torch, pair, sample, grad=True)
    except Exception as error:
        yield REFUSED, f"PyTorch raises {error!r} on {sample}", 0
        return
    outs = [t for t in _torch_tensors(torch, theirs) if t.requires_grad]
    mine = [t for t in tensors_in(ours) if t.requires_grad]
    if len(outs) != len(mine):
        yield "gradient", f"{len(mine)} results require grad, in PyTorch {len(outs)}", 0
        return
    if not outs:
        return
    weights = [w.to(t.dtype) for w, t in zip(weights_of(mine), mine, strict=True)]
    given = [torch_copy(torch, w.array) for w in weights]
    leaves = [t for t in theirs_in if t.requires_grad]
    try:
        expected = torch.autograd.grad(outs, leaves, given, allow_unused=True)
    except Exception as error:
        yield REFUSED, f"PyTorch raises {error!r} on {sample}", 0
        return
    own = [t for t in ours_in if t.requires_grad]
    try:
        got = al.autograd.grad(mine, own, weights, allow_unused=True)
    except Exception as error:
        yield "gradient", f"we raise {error!r} on {sample}", 0
        return
    for k, (a, b) in enumerate(zip(expected, got, strict=True)):
        yield "gradient", _gradient_sentence(torch, sample, k, a, b), 0


def _gradient_sentence(torch: Any, sample: Sample, k: int, a: Any, b: Any) -> str:
    if (a is None) != (b is None):
        return f"of operand {k} of {sample} is {b}, PyTorch has {a}"
    if a is None:
        return ""
    if str(a.dtype) != f"torch.{b.dtype.name}":
        return f"of operand {k} of {sample} has dtype {b.dtype}, PyTorch has {a.dtype}"
    found = ulps_between(numpy_copy(torch, a), b.array, b.dtype, each=False)
    if found <= _limit(b.dtype, GRADIENT_ULPS):
        return ""
    return f"of operand {k} of {sample}: {b.tolist()}, PyTorch has {a.tolist()}, {found:.3g} ulp"


# ------------------------------------------------------------------------------------ the command
def main() -> None:
    """Compares every pair and prints the counts, and what differs."""
    import torch
    from rich.progress import track

    wanted = set(sys.argv[1:])
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    calls = 0
    lines: list[str] = []
    worst = (0.0, "")
    for name, is_composite in track(names(), transient=True):
        if wanted and name not in wanted:
            continue
        for dtype in DTYPES:
            pair = Pair(name, is_composite, dtype)
            verdict = compare(torch, pair)
            counts[_kind(verdict)] += 1
            lines += verdict.unknown
            calls += verdict.calls
            worst = max(worst, (verdict.ulps, str(pair)))
    for line in lines:
        print(line[:400])
    compared = sum(counts[kind] for kind in ("agree", "known to differ", "differ"))
    print(
        f"{compared} (op, dtype) pairs compared with PyTorch {torch.__version__}: "
        f"{counts['agree']} agree, {counts['known to differ']} differ as the table says, "
        f"{counts['differ']} differ otherwise; {calls} calls, at most {worst[0]:.2f} ulp "
        f"({worst[1]})"
    )
    raising = counts["both raise"] + counts["PyTorch raises"]
    print(f"{raising} more on which PyTorch raises: on {counts['both raise']} of them we do too")


def _kind(verdict: Verdict) -> str:
    if verdict.unknown:
        return "differ"
    if verdict.torch_raises:
        return "both raise" if verdict.we_raise else "PyTorch raises"
    return "known to differ" if verdict.known else "agree"


if __name__ == "__main__":
    main()
