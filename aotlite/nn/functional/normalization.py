"""Normalization as functions; those of batches write to the running statistics in place."""

from __future__ import annotations

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.dtypes import float32, float64
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry.sizes import is_symbolic, numel
from aotlite.nn.functional.products import Ints


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias for each channel: (n, c, *) -> (n, c, *).

    In training, mean and (biased) variance are the batch's, and the running ones move to its mean
    and unbiased variance by the fraction `momentum`, in place and without history.
    Raises ArgumentError in training with one value a channel, or otherwise without running ones.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: running statistics are None, expected them in eval")
        return call("batch_norm_eval", input, running_mean, running_var, weight, bias, eps)
    count = input.numel() // max(input.size(1), 1) if input.ndim > 1 else 2
    if count == 1:
        raise ArgumentError(
            f"batch_norm: the input has shape {input.shape}, expected more than 1 value a channel "
            "in training"
        )
    check_running("batch_norm", input, running_mean, running_var)
    result: Tensor
    result, mean, var = call("batch_norm_train", input, weight, bias, eps)
    with no_grad():
        follow(running_mean, mean, momentum)
        follow(running_var, _unbiased(var, count), momentum)
    return result


def _unbiased(var: Tensor, count: int) -> Tensor:
    """The biased variance of so many values as an unbiased one. A symbolic number is divided by a
    tensor, which has a value for each size."""
    if not count > 1:
        return var
    if is_symbolic((count,)) and var.dtype in (float32, float64):
        above, below = (var.new_full((), n, dtype=float64) for n in (count, count - 1))
        return var * (above / below)
    return var * (count / (count - 1))


def check_running(
    name: str, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None
) -> None:
    """Raises ShapeError unless the running statistics, if given, have one value a channel."""
    for argument, running in (("running_mean", running_mean), ("running_var", running_var)):
        if running is not None and running.shape != input.shape[1:2]:
            raise ShapeError(
                f"{name}: argument '{argument}' has shape {running.shape}, expected "
                f"{input.shape[1:2]}"
            )


def follow(running: Tensor | None, batch: Tensor, momentum: float | Tensor) -> None:
    """Updates running statistics in place: running += momentum * (batch - running)."""
    if running is not None:
        running.mul_(1 - momentum).add_(batch * momentum)


def layer_norm(
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias over the last dimensions, of these sizes."""
    return call("layer_norm", input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """layer_norm of the channels in groups: (n, c, *) with weight and bias (c,)."""
    if input.ndim > 1 and 0 < num_groups == numel(input.shape[1:]) and input.size(0):
        raise ArgumentError(
            f"group_norm: the input has shape {input.shape}, expected more than 1 value in each of "
            f"{num_groups} groups"
        )
    return call("group_norm", input, num_groups, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """input / sqrt(mean square + eps) * weight over the last dimensions, of these sizes.

    `eps` is the dtype's machine epsilon by default.
    """
    return call("rms_norm", input, normalized_shape, weight, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`batch_norm` of each sample on its own: (n, c, *) -> (n, c, *).

    Running statistics, if given, are updated by the mean of the samples' ones, in place.
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ArgumentError("instance_norm: running statistics are None, expected them in eval")
        return call("batch_norm_eval", input, running_mean, running_var, weight, bias, eps)
    if input.ndim < 3 or input.numel() == input.size(0) * input.size(1):
        raise ShapeError(
            f"instance_norm: the input has shape {input.shape}, expected more than 1 value in each "
            "channel of a sample"
        )
    batch, channels, *rest = input.shape
    check_running("instance_norm", input, running_mean, running_var)
    rows = input.reshape(1, batch * channels, *rest)  # saved: a view where eager has one
    repeated = [None if values is None else values.repeat(batch) for values in (weight, bias)]
    result, mean, var = call("batch_norm_train", rows, *repeated, eps)
    count = rows.numel() // max(rows.size(1), 1)
    with no_grad():
        follow(running_mean, mean.view(batch, channels).mean(0), momentum)
        follow(running_var, _unbiased(var, count).view(batch, channels).mean(0), momentum)
    normalized: Tensor = result.view(input.shape)
    return normalized
