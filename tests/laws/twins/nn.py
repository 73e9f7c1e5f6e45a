"""PyTorch's counterparts of the ops of layers, and where ours differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.laws.twins.torch_twins import Difference, differences, neither_is_finite, twins


def _batch_norm_train(torch: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    result = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    dims = (0, *range(2, x.ndim))
    wide = x.float() if x.dtype.itemsize == 2 else x
    return result, wide.mean(dims), wide.var(dims, correction=0)


def _batch_norm_eval(
    torch: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    return torch.nn.functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)


def _beyond(array: np.ndarray, limit: float) -> bool:
    """Whether an element is larger than this, infinite or nan."""
    return not bool((np.abs(array) <= limit).all())


twins(
    conv2d=lambda torch, *args, **kwargs: torch.nn.functional.conv2d(*args, **kwargs),
    conv1d=lambda torch, *args, **kwargs: torch.nn.functional.conv1d(*args, **kwargs),
    max_pool2d=lambda torch, *args, **kwargs: torch.nn.functional.max_pool2d(*args, **kwargs),
    max_pool1d=lambda torch, *args, **kwargs: torch.nn.functional.max_pool1d(*args, **kwargs),
    adaptive_max_pool2d=lambda torch, x, size: torch.ops.aten.adaptive_max_pool2d(
        x, size * 2 if len(size) == 1 else size
    ),
    adaptive_avg_pool2d=lambda torch, x, size: torch.ops.aten._adaptive_avg_pool2d(
        x, size * 2 if len(size) == 1 else size
    ),
    adaptive_avg_pool2d_backward=lambda torch, *args: torch.ops.aten._adaptive_avg_pool2d_backward(
        *args
    ),
    upsample_nearest_exact2d=lambda torch, *args: torch.ops.aten._upsample_nearest_exact2d(*args),
    upsample_nearest_exact2d_backward=lambda torch, *args: (
        torch.ops.aten._upsample_nearest_exact2d_backward(*args)
    ),
    group_norm=lambda torch, *args: torch.group_norm(*args),
    rms_norm=lambda torch, *args: torch.rms_norm(*args),
    batch_norm_train=_batch_norm_train,
    batch_norm_eval=_batch_norm_eval,
)

differences(
    Difference(
        ("group_norm",),
        "gradient",
        "PyTorch's fails where there is a bias and no weight",
        lambda sample: len(sample.args) > 3 and sample.args[2] is None,
    ),
    Difference(
        ("batch_norm_eval",),
        "gradient",
        "PyTorch gives statistics no gradient; tests/nn/test_torch.py compares the others'",
    ),
    Difference(
        ("adaptive_avg_pool2d",),
        "gradient",
        "PyTorch's fails where the result is empty",
        lambda sample: 0 in (*sample.args[1], sample.args[0].shape[1]),
    ),
    Difference(
        ("upsample_bilinear2d", "interpolate"),
        "call",
        "between bytes PyTorch has numbers of its own, with fixed points; ours takes floats",
        lambda sample: sample.args[0].dtype == np.uint8,
    ),
    Difference(
        ("layer_norm",),
        "values",
        "where squares overflow, PyTorch's variance is nan and ours is infinite",
        lambda sample: _beyond(sample.args[0], 1e18),
    ),
    Difference(
        ("conv1d", "conv2d", "conv_transpose2d"),
        "values",
        "a product that overflows is infinite, and nan in the sum with another infinity, but not "
        "where product and sum are rounded once: that depends on the order, and on the CPU",
        lambda sample: any(_beyond(a, 1e18) for a in sample.args if hasattr(a, "dtype")),
        at=neither_is_finite,
        everywhere=False,
    ),
    Difference(
        ("batch_norm_train", "batch_norm_eval"),
        "strides",
        "PyTorch keeps the strides of an empty operand, whatever they are",
        lambda sample: sample.args[0].size == 0,
    ),
    Difference(
        ("batch_norm_eval",),
        "call",
        "PyTorch does not look at the statistics of an empty operand",
        lambda sample: sample.args[1].shape != sample.args[0].shape[1:2],
    ),
)
differences(
    *(
        Difference(
            ("pixel_unshuffle",),
            aspect,
            "PyTorch gives an empty tensor in the shape and strides that it had",
            lambda sample: sample.args[0].size == 0,
        )
        for aspect in ("shape", "strides")
    )
)
