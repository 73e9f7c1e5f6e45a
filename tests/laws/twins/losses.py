"""PyTorch's counterparts of losses, and where ours differ."""

from __future__ import annotations

from typing import Any

from tests.laws.twins.torch_twins import Difference, differences, twins


def _elements(name: str, option: str | None = None) -> Any:
    """PyTorch's loss without a reduction, which is what our op is."""

    def call(torch: Any, x: Any, target: Any, *rest: Any) -> Any:
        options = {option: rest[0]} if option is not None else {}
        return getattr(torch.nn.functional, name)(x, target, reduction="none", **options)

    return call


def _nll_loss(torch: Any, x: Any, target: Any, weight: Any, ignore_index: int) -> Any:
    call = torch.nn.functional.nll_loss
    return call(x, target, weight, ignore_index=ignore_index, reduction="none")


twins(
    nll_loss=_nll_loss,
    mse_loss=_elements("mse_loss"),
    smooth_l1_loss=_elements("smooth_l1_loss", "beta"),
    huber_loss=_elements("huber_loss", "delta"),
    binary_cross_entropy=_elements("binary_cross_entropy"),
    binary_cross_entropy_with_logits=_elements("binary_cross_entropy_with_logits", "pos_weight"),
    l1_loss=lambda torch, *args, **kwargs: torch.nn.functional.l1_loss(*args, **kwargs),
    kl_div=lambda torch, *args, **kwargs: torch.nn.functional.kl_div(*args, **kwargs),
)
twins(
    **{
        "nll_loss()": lambda torch, *args, **kwargs: torch.nn.functional.nll_loss(*args, **kwargs),
        "cross_entropy": lambda torch, *args, **kwargs: torch.nn.functional.cross_entropy(
            *args, **kwargs
        ),
        "one_hot": lambda torch, *args: torch.nn.functional.one_hot(*args),
        "one_hot()": lambda torch, *args: torch.nn.functional.one_hot(*args),
        "binary_cross_entropy_with_logits()": lambda torch, *args, **kwargs: (
            torch.nn.functional.binary_cross_entropy_with_logits(*args, **kwargs)
        ),
    }
)

differences(
    Difference(
        (
            "huber_loss",
            "binary_cross_entropy",
            "binary_cross_entropy()",
            "binary_cross_entropy_with_logits",
            "binary_cross_entropy_with_logits()",
        ),
        "strides",
        "PyTorch keeps the strides of an empty operand, whatever they are",
        lambda sample: sample.args[0].size == 0,
    ),
    Difference(
        ("binary_cross_entropy_with_logits",),
        "gradient",
        "PyTorch's has no derivative by pos_weight",
        lambda sample: len(sample.args) > 2,
    ),
    Difference(
        ("binary_cross_entropy",),
        "gradient",
        "PyTorch's by the target forgets that the logarithms are limited",
        lambda sample: 0.0 in sample.args[0],
    ),
    Difference(
        ("huber_loss",),
        "gradient",
        "PyTorch's backward fails for a target of integers",
        lambda sample: sample.args[1].dtype.kind == "i",
    ),
    Difference(
        ("nll_loss",),
        "gradient",
        "PyTorch's has no derivative by the weight",
        lambda sample: len(sample.args) > 2,
    ),
    Difference(
        ("binary_cross_entropy_with_logits",),
        "values",
        "PyTorch rounds 16-bit floats at each step, we once",
        lambda sample: sample.args[0].dtype.itemsize == 2,
    ),
)
