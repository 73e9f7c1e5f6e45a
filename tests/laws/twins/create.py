"""PyTorch's forms of factories; random ops are compared by their laws alone (RNG-12)."""

from typing import Any

from aotlite.ir import dtypes
from tests.laws.twins.torch_twins import WITHOUT_TWIN, Difference, differences, twins


def _spaced(name: str) -> Any:
    def call(torch: Any, *args: Any) -> Any:
        *given, dtype, _ = args
        return getattr(torch, name)(*given, dtype=dtype)

    return call


def _eye(torch: Any, n: int, m: int | None, dtype: Any, device: Any) -> Any:
    return torch.eye(n, n if m is None else m, dtype=dtype)


def _zeroed(name: str) -> Any:
    """Ours holds zeros, PyTorch's anything."""
    return lambda torch, x, *args, **kwargs: getattr(x, name)(*args, **kwargs).detach().zero_()


twins(
    linspace=_spaced("linspace"),
    logspace=_spaced("logspace"),
    eye=_eye,
    new_empty=_zeroed("new_empty"),
    new_empty_strided=_zeroed("new_empty_strided"),
    empty_like=lambda torch, x, **kwargs: torch.zeros_like(x, **kwargs),
)

_FOR_NO_STEPS = [d for d in dtypes.DTYPES if d.name.startswith(("bool", "uint", "float8"))]

differences(
    Difference(
        ("linspace", "logspace"),
        "call",
        "PyTorch takes any dtype for no steps, and some of them for none only",
        lambda sample: sample.args[2] == 0 and sample.kwargs.get("dtype") in _FOR_NO_STEPS,
    )
)

_STREAM = "its own stream of numbers (RNG-12)"
WITHOUT_TWIN.update(
    dict.fromkeys(
        """
        advance_offset
        bernoulli bernoulli_at bernoulli() bernoulli_ exponential_ geometric_ log_normal_
        multinomial multinomial() multinomial_at normal_
        normal_at normal_of rand rand_like randint randint_like randn randn_like random_
        random_integers random_permutation randperm standard_normal uniform uniform_
        """.split(),
        _STREAM,
    )
)
