"""Functions of JAX as graphs, and their gradients (JXP-3).

    python -m tests.interchange.jax_functions

prints the functions whose graphs give other numbers, and the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from aotlite.interchange import from_jaxpr
from aotlite.ir.errors import AotliteError
from aotlite.ir.run.interpreter import run_graph

Functions = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]


def numbers(*shape: int, start: float = -1.0) -> np.ndarray:
    """Numbers of both signs, none of them near another or near a kink."""
    count = int(np.prod(shape))
    steps = np.arange(count) * 7 % max(count, 1)
    return (start + 0.13 + 2.5 * steps / max(count, 1)).reshape(shape).astype(np.float32)


def functions(jax: Any) -> Functions:
    """The functions, with arguments; the first argument is differentiated if it is a float."""
    return _pointwise(jax) | _shapes(jax) | _reductions(jax) | _indices(jax) | _networks(jax)


def _pointwise(jax: Any) -> Functions:
    np_, nn, lax = jax.numpy, jax.nn, jax.lax
    x, p = numbers(3, 4), numbers(3, 4, start=0.5)
    return {
        "trigonometry": (
            lambda x: np_.sin(x) * np_.cos(x) + np_.tan(x) + np_.arctan2(x, x + 3),
            (x,),
        ),
        "hyperbolic": (lambda x: np_.tanh(x) + np_.sinh(x) + np_.cosh(x) + np_.arcsinh(x), (x,)),
        "logarithms": (lambda x: np_.log(x) + np_.log1p(x) + np_.exp(x) + np_.expm1(x), (p,)),
        "powers": (lambda x: x**2 + x**-1 + x**0.5 + 2.0**x + np_.cbrt(x), (p,)),
        "roots": (lambda x: np_.sqrt(x) + lax.rsqrt(x) + np_.square(x), (p,)),
        "activations": (lambda x: nn.relu(x) + nn.gelu(x) + nn.silu(x) + nn.elu(x), (x,)),
        "sigmoids": (lambda x: nn.sigmoid(x) + nn.softplus(x) + nn.log_sigmoid(x), (x,)),
        "error_functions": (lambda x: lax.erf(x) + lax.erfc(x) + lax.erf_inv(x / 4), (x,)),
        "gamma": (lambda x: lax.lgamma(x) + lax.digamma(x), (p,)),
        "chosen": (
            lambda x: np_.where(x > 0, x, -x * 2) + np_.maximum(x, 0.5) + np_.clip(x, -0.5, 1),
            (x,),
        ),
        "signs": (
            lambda x: np_.abs(x) + np_.sign(x) + np_.floor(x) + np_.ceil(x) + np_.round(x),
            (x,),
        ),
        "remainders": (lambda x: x % 0.7 + lax.rem(x, np_.float32(0.4)) + np_.divide(x, 3), (x,)),
        "integers": (
            lambda i: i // 3 + i % 3 + lax.div(i, 2) + (i << 1) + (i & 3) + (i ^ 5),
            (np.arange(-4, 8, dtype=np.int32),),
        ),
        "bools": (lambda x: ((x > 0) & ~(x > 1)) | np_.isnan(x) | np_.isfinite(x), (x,)),
        "dtypes": (lambda x: x.astype(np.int32) + (x > 0).astype(np.int32), (x,)),
        "broadcast": (lambda x, y: x[:, None] * y[None] + 1, (numbers(3), numbers(4))),
        "complex": (
            lambda x: np_.abs(lax.complex(x, x * 2)) + np_.real(lax.conj(lax.complex(x, x))),
            (x,),
        ),
        "selected": (lambda x: lax.select_n(np_.arange(4) % 3, x[0], x[1], x[2]), (x,)),
        "stopped": (lambda x: x * lax.stop_gradient(x), (x,)),
    }


def _shapes(jax: Any) -> Functions:
    np_, lax = jax.numpy, jax.lax
    x = numbers(3, 4)
    zero = np.float32(0)
    return {
        "reshaped": (lambda x: x.T.reshape(2, 6)[:, ::-1] * np_.arange(6), (x,)),
        "joined": (lambda x: np_.concatenate([x, x * 2], 1) + np_.tile(x, (1, 2)), (x,)),
        "stacked": (lambda x: np_.stack([x, x + 1]).sum(0) + np_.squeeze(x[None]), (x,)),
        "padded": (lambda x: np_.pad(x, ((1, 2), (0, 1))), (x,)),
        "padded_between": (lambda x: lax.pad(x, zero, [(1, -1, 1), (0, 2, 2)]), (x,)),
        "sliced": (lambda x: x[1:, ::2] + x[:2, 1:4:2], (x,)),
        "split": (lambda x: sum(np_.split(x, 2, 1)), (x,)),
        "rolled": (lambda x: np_.roll(x, 1, 1) + np_.flip(x, 0), (x,)),
        "triangles": (lambda x: np_.tril(x) + np_.triu(x, 1) * 2 + np_.eye(3, 4), (x,)),
        "repeated": (lambda x: np_.repeat(x, 2, 0), (x,)),
        "swapped": (lambda x: np_.moveaxis(x[None], 0, 2) + np_.expand_dims(x, 2), (x,)),
        "grid": (lambda x: x + np_.linspace(0, 1, 4) + np_.ones((3, 1)), (x,)),
    }


def _reductions(jax: Any) -> Functions:
    np_, nn, lax = jax.numpy, jax.nn, jax.lax
    x = numbers(3, 4)
    return {
        "sums": (lambda x: x.sum() + x.sum(0).mean() + np_.prod(x, 1).sum(), (x,)),
        "extremes": (lambda x: x.max() + x.min(1).sum() + np_.ptp(x, 0).sum(), (x,)),
        "moments": (lambda x: np_.var(x) + np_.std(x, 1).sum() + np_.linalg.norm(x), (x,)),
        "places": (lambda x: np_.argmax(x, 1) + np_.argmin(x, 1), (x,)),
        "tests": (lambda x: np_.any(x > 1, 0) | np_.all(x > -1, 0), (x,)),
        "softmax": (lambda x: nn.softmax(x) + nn.log_softmax(x, 0), (x,)),
        "logsumexp": (lambda x: nn.logsumexp(x, axis=1), (x,)),
        "scans": (lambda x: np_.cumsum(x, 1) + np_.cumprod(x, 0), (x,)),
        "scanned_back": (lambda x: lax.cumsum(x, 1, reverse=True) + lax.cummax(x, 1), (x,)),
        "sorted": (lambda x: np_.sort(x, 1) * np_.arange(4), (x,)),
        "order": (lambda x: np_.argsort(x, 1), (x,)),
        "largest": (lambda x: lax.top_k(x, 2)[0], (x,)),
        "median": (lambda x: np_.median(x, 1), (x,)),
    }


def _indices(jax: Any) -> Functions:
    np_, lax = jax.numpy, jax.lax
    x, i = numbers(3, 4), np.array([2, 0, 1, 2], np.int32)
    return {
        "row": (lambda x: x[1] + x[-1] * x[0, 2], (x,)),
        "taken": (lambda x, i: x[i] + x[i].sum(0), (x, i)),
        "taken_pairs": (lambda x, i: x[i, i[::-1]], (x, i)),
        "taken_along": (lambda x, i: np_.take_along_axis(x, i[None, :].repeat(3, 0), 1), (x, i)),
        "taken_outside": (lambda x, i: np_.take(x, i + 1, axis=0, mode="fill"), (x, i)),
        "clipped": (lambda x, i: np_.take(x, i + 1, axis=0, mode="clip"), (x, i)),
        "window": (lambda x, k: lax.dynamic_slice(x, (k, k), (2, 2)), (x, np.int32(2))),
        "window_put": (
            lambda x, k: lax.dynamic_update_slice(x, x[:2, :2] * 5, (k, 0)),
            (x, np.int32(1)),
        ),
        "put": (lambda x, i: x.at[i].set(7.0), (x, i[:3])),
        "added": (lambda x, i: x.at[i].add(x[0]), (x, i)),
        "multiplied": (lambda x, i: x.at[i].multiply(2.0), (x, i[:3])),
        "raised": (lambda x, i: x.at[:, i].max(0.25), (x, i)),
        "one_hot": (lambda i: jax.nn.one_hot(i, 5), (i,)),
        "segments": (lambda x, i: jax.ops.segment_sum(x.T, i, 4), (x, i)),
    }


def _networks(jax: Any) -> Functions:
    np_, nn, lax = jax.numpy, jax.nn, jax.lax
    x, w = numbers(3, 4), numbers(4, 5)
    image, kernel = numbers(2, 3, 6, 5), numbers(4, 3, 3, 2)

    def attention(q: Any) -> Any:
        scores = np_.einsum("bqd,bkd->bqk", q, q) / 2
        return np_.einsum("bqk,bkd->bqd", nn.softmax(scores), q)

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "SAME")

    return {
        "matmul": (lambda x, w: np_.tanh(x @ w) @ w.T, (x, w)),
        "dots": (
            lambda x, w: np_.dot(x[0], x[1]) + np_.vdot(w, w) + np_.outer(x[0], w[:, 0]),
            (x, w),
        ),
        "einsum": (lambda x, w: np_.einsum("ij,jk->ki", x, w), (x, w)),
        "attention": (attention, (numbers(2, 3, 4),)),
        "loss": (lambda w, x: np_.mean((nn.relu(x @ w) - 1) ** 2), (w, x)),
        "entropy": (lambda w, x: -(nn.log_softmax(x @ w) * np_.eye(3, 5)).sum(), (w, x)),
        "normalized": (lambda x: nn.standardize(x, axis=1) * 2 + 1, (x,)),
        "convolution": (lambda k, x: lax.conv(x, k, (1, 2), "SAME"), (kernel, image)),
        "convolution_last": (
            _channels_last(lax),
            (kernel.transpose(2, 3, 1, 0), image.transpose(0, 2, 3, 1)),
        ),
        "dilated": (
            lambda k, x: lax.conv_general_dilated(x, k, (1, 1), [(2, 1), (0, 2)], (2, 1), (1, 2)),
            (kernel, image),
        ),
        "row_convolution": (
            lambda k, x: lax.conv(x, k, (1,), "VALID"),
            (kernel[:, :, :, 0], image[:, :, :, 0]),
        ),
        "pooled": (pooled, (image,)),
        "jitted": (jax.jit(lambda x: jax.jit(np_.sin)(x) * 2), (x,)),
        "checkpointed": (jax.checkpoint(lambda x: np_.sin(x) ** 2), (x,)),
        "mapped": (jax.vmap(lambda row: row @ row * np_.sin(row)), (x,)),
        "constant": (lambda x: x * np_.asarray(numbers(3, 4)), (x,)),
    }


def _channels_last(lax: Any) -> Callable[..., Any]:
    order = ("NHWC", "HWIO", "NHWC")
    return lambda k, x: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=order)


def gradient_of(jax: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a sum of what a function gives, each element with a weight of its own."""

    def total(*args: Any) -> Any:
        found = function(*args)
        return (found * (1 + jax.numpy.arange(found.size).reshape(found.shape) % 3)).sum()

    return jax.grad(total)


def difference(jax: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """How the graph's numbers differ from JAX's; empty where they do not."""
    graph = from_jaxpr(function, *args)
    expected = jax.tree_util.tree_leaves(function(*map(jax.numpy.asarray, args)))
    got = run_graph(graph, *map(np.array, args))
    for one, other in zip(expected, got, strict=True):
        wanted = np.asarray(one)
        if (wanted.shape, wanted.dtype) != (other.shape, other.dtype):
            return f"{other.dtype}{other.shape}, expected {wanted.dtype}{wanted.shape}"
        if not np.allclose(wanted, other, 2e-5, 2e-5, equal_nan=True):
            return f"{other.tolist()}, expected {wanted.tolist()}"
    return ""


def main() -> int:
    """Prints what differs, and the counts; the status is 1 if a function differs."""
    import jax

    total: Counter[str] = Counter()
    for name, (function, args) in functions(jax).items():
        forms = {name: function}
        if np.asarray(args[0]).dtype.kind == "f":
            forms[f"gradient of {name}"] = gradient_of(jax, function)
        for each, form in forms.items():
            try:
                found = difference(jax, form, args)
            except AotliteError as error:
                found = f"{type(error).__name__}: {error}"
                total["refused"] += 1
            except TypeError as error:
                if "grad requires" not in str(error):
                    raise
                total["without a gradient"] += 1
                continue
            else:
                total["differ" if found else "equal"] += 1
            if found:
                print(f"{each}: {found[:300]}", flush=True)
    print(f"jaxprs: {dict(total)}")
    return int(total["differ"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
