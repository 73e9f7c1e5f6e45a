"""Samples of losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from aotlite.testing.laws.samples.sample import (
    FLOATS,
    Make,
    Sample,
    array,
    expanded,
    flipped,
    gapped,
    special,
)
from tests.samples import register


def share(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Different values between 0 and 1."""
    count = int(np.prod(shape))
    steps = np.random.default_rng(seed).permutation(count) + 1
    return np.asarray(steps.reshape(shape) / (count + 2), dtype)


def _pairs(make: Make = array) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs and targets in some layouts and dtypes."""
    for dtype in FLOATS:
        for a in (make((2, 3), dtype), flipped(make((2, 3), dtype)), gapped(make((2, 3), dtype))):
            yield a, make((2, 3), dtype, 1)
        yield expanded(make((3,), dtype), 2), make((2, 3), dtype, 1)
        yield make((), dtype), make((), dtype, 1)
        yield np.zeros((0, 3), dtype), np.zeros((0, 3), dtype)


@register("mse_loss", "smooth_l1_loss", "huber_loss")
def _distances(name: str) -> Iterable[Sample]:
    yield from (Sample(pair) for pair in _pairs())
    yield Sample((array((2, 3)), array((3,), seed=1)))
    yield Sample((special("float64"), special("float64")[::-1].copy()))
    if name != "huber_loss":
        yield Sample((array((2, 3), "float32"), array((2, 3), seed=1)))
        yield Sample((array((2, 3)), array((2, 3), "bool", 1)))
    yield Sample((array((2, 3), "float32"), array((2, 3), "int64", 1)))
    yield Sample((array((2, 3)), array((2, 3), seed=1)), smooth=True)
    yield Sample((array((2, 3)), array((3,), seed=1)), smooth=True)
    if name != "mse_loss":
        yield Sample((array((2, 3)), array((2, 3), seed=1), 0.3), smooth=True)
        yield Sample((array((2, 3), "float32"), array((2, 3), "float32", 1), 0.25))


@register("mse_loss()", "l1_loss", "huber_loss()", "smooth_l1_loss()")
def _reduced(name: str) -> Iterable[Sample]:
    a, b = array((2, 3)), array((2, 3), seed=1)
    for reduction in ("mean", "sum", "none"):
        yield Sample((a, b), {"reduction": reduction}, smooth=True)
        if name != "smooth_l1_loss()":
            weighted = {"reduction": reduction, "weight": array((2, 3), seed=2)}
            yield Sample((a, b), weighted, smooth=True)
    yield Sample((a, array((3,), seed=1)))
    yield Sample((np.zeros((0, 3)), np.zeros((0, 3))))
    if name == "smooth_l1_loss()":
        yield Sample((a, b), {"beta": 0.0}, smooth=True)
        yield Sample((a, b), {"beta": 0.5, "reduction": "sum"}, smooth=True)
    if name == "huber_loss()":
        yield Sample((a, b, "sum", 0.5), smooth=True)
    if name == "l1_loss":
        yield Sample((a + 1j * b, b + 1j * a))
        yield Sample((array((2, 3), "int64"), array((2, 3), "int64", 1)), {"reduction": "none"})


@register("binary_cross_entropy")
def _bce(name: str) -> Iterable[Sample]:
    yield from (Sample(pair) for pair in _pairs(share))
    yield Sample((np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])))
    yield Sample((share((2, 3)), share((2, 3), seed=1)), smooth=True)


@register("binary_cross_entropy()")
def _bce_face(name: str) -> Iterable[Sample]:
    a, b = share((2, 3)), share((2, 3), seed=1)
    for reduction in ("mean", "sum", "none"):
        yield Sample((a, b), {"reduction": reduction}, smooth=True)
    # Not smooth: PyTorch's has no derivative by the weight.
    yield Sample((a, b, array((3,))))


@register("binary_cross_entropy_with_logits")
def _logits(name: str) -> Iterable[Sample]:
    yield from (Sample(pair) for pair in _pairs())
    for dtype in FLOATS:
        yield Sample((array((2, 3), dtype), array((2, 3), dtype, 1), array((3,), dtype, 2)))
    yield Sample((special("float64"), np.ones(12)))
    yield Sample((np.array([800.0, -800.0, 1e-9], "float32"), np.array([0.5, 0.5, 0.5], "float32")))
    yield Sample((array((2, 3)), share((2, 3), seed=1)), smooth=True)
    yield Sample((array((2, 3)), share((2, 3), seed=1), array((3,), seed=2)), smooth=True)


@register("binary_cross_entropy_with_logits()")
def _logits_face(name: str) -> Iterable[Sample]:
    a, b = array((2, 3)), share((2, 3), seed=1)
    for reduction in ("mean", "sum", "none"):
        yield Sample((a, b), {"reduction": reduction}, smooth=True)
    # Not smooth: PyTorch's has no derivative by the weight.
    yield Sample((a, b, array((3,))))
    yield Sample((a, b), {"pos_weight": array((2, 3), seed=2)})


@register("kl_div")
def _kl_div(name: str) -> Iterable[Sample]:
    a, b = array((2, 3)), share((2, 3), seed=1)
    for reduction in ("mean", "sum", "none", "batchmean"):
        yield Sample((a, b), {"reduction": reduction}, smooth=True)
        yield Sample((a, a), {"reduction": reduction, "log_target": True}, smooth=True)
    yield Sample((a, np.array([0.0, -0.0, 0.5])), {"reduction": "none"})
    yield Sample((array(()), share(())), {"reduction": "batchmean"})
    yield Sample((a, array((2, 3), seed=1)), {"reduction": "none"})
    yield Sample((np.zeros((0, 3)), np.zeros((0, 3))))


# ---------------------------------------------------------------------------------------- labels
def labels(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def _labeled(dtype: str = "float64") -> Iterator[tuple[np.ndarray, ...]]:
    """Scores (n, c, *) and labels, some of them ignored."""
    yield array((3, 4), dtype), labels(2, 0, -100)
    yield array((4,), dtype), labels(1)[0, ...]
    yield array((2, 3, 2, 2), dtype), labels(2, 0, 1, 1, 0, -100, 2, 2).reshape(2, 2, 2)


@register("nll_loss")
def _nll(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        for scores, target in _labeled(dtype):
            yield Sample((scores, target))
            classes = scores.shape[scores.ndim > 1]
            yield Sample((flipped(scores), target, array((classes,), dtype, 3)))
        yield Sample((array((3, 4), dtype), labels(2, 0, 1), None, 0))
    yield Sample((array((3, 4)), labels(2, 0, 1).astype("uint8")))
    yield Sample((np.zeros((0, 4)), labels()))
    yield Sample((np.zeros((1, 0)), labels(-100)))
    for scores, target in _labeled():
        classes = scores.shape[scores.ndim > 1]
        yield Sample((scores, target, array((classes,), seed=3)), smooth=True)
        yield Sample((scores, target), smooth=True)


@register("nll_loss()", "cross_entropy")
def _cross_entropy(name: str) -> Iterable[Sample]:
    for scores, target in _labeled():
        classes = scores.shape[scores.ndim > 1]
        for reduction in ("mean", "sum", "none"):
            yield Sample((scores, target), {"reduction": reduction}, smooth=True)
        # Not smooth: PyTorch's has no derivative by the weight.
        yield Sample((scores, target, share((classes,))), {"ignore_index": -100})
    yield Sample((array((2, 4)), labels(1, 2)), {"ignore_index": 1})
    yield Sample((array((2, 4)), labels(-100, -100)))
    yield Sample((np.zeros((0, 4)), labels()))
    if name == "cross_entropy":
        yield from _more_cross_entropy()


def _more_cross_entropy() -> Iterator[Sample]:
    for scores, target in _labeled():
        for reduction in ("mean", "sum", "none"):
            smoothed = {"reduction": reduction, "label_smoothing": 0.2}
            yield Sample((scores, target), smoothed, smooth=True)
            yield Sample((scores, share(scores.shape)), smoothed, smooth=True)
        classes = scores.shape[scores.ndim > 1]
        yield Sample((scores, target, share((classes,))), {"label_smoothing": 0.2})
        yield Sample((scores, share(scores.shape), share((classes,))))
    yield Sample((np.zeros((0, 4)), np.zeros((0, 4))))


@register("one_hot")
def _one_hot(name: str) -> Iterable[Sample]:
    for a in (labels(0, 2, 1), labels(1)[0, ...], labels(), np.array([[0, 1], [2, 1]]).T):
        yield Sample((a, 3))


@register("one_hot()")
def _one_hot_face(name: str) -> Iterable[Sample]:
    yield Sample((labels(0, 2, 1), 4))
    yield Sample((labels(), 3))
