"""PyTorch's counterparts of the ops of layers, and where ours differ."""

from __future__ import annotations

from typing import Any

from tests.laws.torch_twins import Difference, differences, twins


def _batch_norm_train(torch: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    result = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    dims = (0, *range(2, x.ndim))
    wide = x.float() if x.dtype.itemsize == 2 else x
    return result, wide.mean(dims), wide.var(dims, correction=0)


def _batch_norm_eval(
    torch: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    return torch.nn.functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)


twins(
    conv2d=lambda torch, *args, **kwargs: torch.nn.functional.conv2d(*args, **kwargs),
    conv1d=lambda torch, *args, **kwargs: torch.nn.functional.conv1d(*args, **kwargs),
    max_pool2d=lambda torch, *args, **kwargs: torch.nn.functional.max_pool2d(*args, **kwargs),
    max_pool1d=lambda torch, *args, **kwargs: torch.nn.functional.max_pool1d(*args, **kwargs),
    adaptive_avg_pool2d=lambda torch, x, size: torch.ops.aten._adaptive_avg_pool2d(
        x, size * 2 if len(size) == 1 else size
    ),
    adaptive_avg_pool2d_backward=lambda torch, *args: (
        torch.ops.aten._adaptive_avg_pool2d_backward(*args)
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
)
