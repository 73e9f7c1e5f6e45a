"""`AdamW`: Adam with decoupled weight decay.

Source: Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import tensor, zeros_like
from aotlite.ir.dtypes import float64
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.optim.groups import members_of
from aotlite.optim.optimizer import Optimizer, ParamGroup, not_negative

_OPTIONS = ("betas", "eps", "weight_decay", "amsgrad", "maximize")


class AdamWGroup(ParamGroup):
    """A parameter group with options. Assigning one compiles another variant of the step."""

    def __init__(self, places: range, lr: float | Tensor, options: Mapping[str, Any]) -> None:
        super().__init__("AdamW", places, lr)
        self.betas = _checked_betas(options["betas"])
        self.eps = not_negative("AdamW", "eps", options["eps"])
        self.weight_decay = not_negative("AdamW", "weight_decay", options["weight_decay"])
        self.amsgrad = _checked_flag("amsgrad", options["amsgrad"])
        self.maximize = _checked_flag("maximize", options["maximize"])

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={getattr(self, name)}" for name in _OPTIONS)
        return f"lr={self.lr.item()}, {options}"


class AdamW(Optimizer):
    """param -= lr * (mean / (sqrt(square) + eps) + weight_decay * param).

    `mean` and `square` are running means of the gradient and of its square, moved by 1 - beta at
    each step and corrected for their start at 0. With `amsgrad` the largest square so far counts;
    `maximize` goes up. The count of steps is a tensor, so one compiled step serves all of them.
    `params` may be groups: mappings with "params" and their own options.

    >>> import aotlite as al
    >>> w = al.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = AdamW([w], lr=0.5, weight_decay=0.0)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.5, -1.5], requires_grad=True)
    """

    param_groups: tuple[AdamWGroup, ...]
    steps: tuple[Tensor, ...]
    exp_avgs: tuple[Tensor, ...]
    exp_avg_sqs: tuple[Tensor, ...]
    max_exp_avg_sqs: tuple[Tensor | None, ...]

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        given = (betas, eps, weight_decay, amsgrad, maximize)
        defaults = {"lr": lr, **dict(zip(_OPTIONS, given, strict=True))}
        every: list[Tensor] = []
        groups = []
        for members in members_of("AdamW", params, defaults):
            places = range(len(every), len(every) + len(members.params))
            every += members.params
            groups.append(AdamWGroup(places, members.options["lr"], members.options))
        super().__init__(every, lr, groups)
        for i, param in enumerate(self.params):
            if not param.is_floating_point():
                raise DTypeError(
                    f"AdamW: params[{i}] has dtype {param.dtype}, expected a floating one"
                )
        self._make_state()

    def _make_state(self) -> None:
        with no_grad():
            # In float64, as what they correct: 1 - 0.999 has three digits less than a float32.
            self.steps = tuple([tensor(0.0, dtype=float64) for _ in self.params])
            self.exp_avgs = tuple([zeros_like(param) for param in self.params])
            self.exp_avg_sqs = tuple([zeros_like(param) for param in self.params])
            self.max_exp_avg_sqs = tuple(
                [
                    zeros_like(self.params[i]) if group.amsgrad else None
                    for group in self.param_groups
                    for i in group.places
                ]
            )

    def step(self) -> None:
        """Updates every parameter that has a gradient, in place and without history."""
        self._check_largest()
        with no_grad():
            for group in self.param_groups:
                for i in group.places:
                    gradient = self.params[i].grad
                    if gradient is not None:
                        self._update(group, i, -gradient if group.maximize else gradient)

    def _update(self, group: AdamWGroup, i: int, gradient: Tensor) -> None:
        param, count, mean, square = (
            self.params[i],
            self.steps[i],
            self.exp_avgs[i],
            self.exp_avg_sqs[i],
        )
        (beta1, beta2), lr = group.betas, group.lr
        count.add_(1)
        if group.weight_decay:
            param.mul_(1 - lr * group.weight_decay)
        mean.add_((gradient - mean) * (1 - beta1))
        square.mul_(beta2).add_(gradient * gradient * (1 - beta2))
        largest = self.max_exp_avg_sqs[i] if group.amsgrad else None
        if largest is not None:
            square = largest.copy_(largest.maximum(square))
        root = square.sqrt() / (1 - beta2**count).sqrt()
        param.sub_(mean / (root + group.eps) * (lr / (1 - beta1**count)))

    def _check_largest(self) -> None:
        """Raises ArgumentError, before any write, if amsgrad was switched on after construction."""
        for group in self.param_groups:
            if group.amsgrad and any(self.max_exp_avg_sqs[i] is None for i in group.places):
                raise ArgumentError(
                    "AdamW: amsgrad is True and there are no largest squares, expected amsgrad at "
                    "construction already"
                )

    def state(self) -> dict[str, Tensor]:
        """Learning rates, counts of steps, running means, and with amsgrad the largest squares."""
        return {**super().state(), **dict(self._named())}

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for name in ("steps", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"):
            for i, value in enumerate(getattr(self, name)):
                if value is not None:
                    yield f"{name}.{i}", value

    def __repr__(self) -> str:
        if len(self.param_groups) == 1:
            return f"AdamW({self.param_groups[0]})"
        lines = [f"  ({i}): {group}\n" for i, group in enumerate(self.param_groups)]
        return f"AdamW(\n{''.join(lines)})"


def _checked_betas(betas: object) -> tuple[float, float]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ArgumentError(f"AdamW: betas is {betas!r}, expected two numbers")
    first, second = (not_negative("AdamW", "a beta", beta) for beta in betas)
    if not max(first, second) < 1:
        raise ArgumentError(f"AdamW: betas is {betas!r}, expected numbers below 1")
    return first, second


def _checked_flag(name: str, value: object) -> bool:
    if type(value) is not bool:
        raise ArgumentError(f"AdamW: {name} is {value!r}, expected True or False")
    return value
