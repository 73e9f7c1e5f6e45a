"""`SGD`: stochastic gradient descent with momentum.

Source: Sutskever et al., "On the importance of initialization and momentum in deep learning" (ICML
2013), in PyTorch's form, where the learning rate multiplies the whole buffer.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import tensor, zeros_like
from aotlite.ir.dtypes import float64
from aotlite.ir.errors import ArgumentError
from aotlite.optim.optimizer import Optimizer, finite, not_negative


class SGD(Optimizer):
    """param -= lr * buffer, where buffer = momentum * buffer + (1 - dampening) * gradient.

    `weight_decay` adds weight_decay * param to the gradient. `nesterov` steps by gradient +
    momentum * buffer. As in PyTorch, the first gradient of a parameter is not dampened.

    >>> import aotlite as al
    >>> w = al.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.0, 0.0]
    """

    momentum_buffers: tuple[Tensor, ...]
    gradient_scales: tuple[Tensor, ...]

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.momentum = not_negative("SGD", "momentum", momentum)
        self.dampening = finite("SGD", "dampening", dampening)
        self.weight_decay = not_negative("SGD", "weight_decay", weight_decay)
        if type(nesterov) is not bool:
            raise ArgumentError(f"SGD: nesterov is {nesterov!r}, expected True or False")
        self.nesterov = nesterov
        if nesterov and (momentum == 0 or dampening != 0):
            raise ArgumentError(
                f"SGD: nesterov with momentum {momentum} and dampening {dampening}, expected "
                "momentum and no dampening"
            )
        with no_grad():
            self.momentum_buffers = tuple([zeros_like(p) for p in self.params] if momentum else ())
        # The factor of the gradient in the buffer: 1 in the first step, then 1 - dampening.
        self.gradient_scales = tuple(
            [tensor(1.0, dtype=float64) for _ in self.params] if momentum and dampening else ()
        )

    def step(self) -> None:
        """Updates every parameter that has a gradient, in place and without history."""
        with no_grad():
            lr = self.lr
            for i, param in enumerate(self.params):
                gradient = param.grad
                if gradient is not None:
                    param.sub_(self._direction(i, param, gradient) * lr)

    def _direction(self, i: int, param: Tensor, gradient: Tensor) -> Tensor:
        if self.weight_decay:
            gradient = gradient + param * self.weight_decay
        momentum = self.momentum
        if not momentum:
            return gradient
        buffer = self._buffer(i).mul_(momentum).add_(self._scaled(i, gradient))
        return gradient + buffer * momentum if self.nesterov else buffer

    def _buffer(self, i: int) -> Tensor:
        if not self.momentum_buffers:
            raise ArgumentError(
                f"SGD: momentum is {self.momentum} and there are no buffers, expected momentum "
                "other than 0 at construction already"
            )
        return self.momentum_buffers[i]

    def _scaled(self, i: int, gradient: Tensor) -> Tensor:
        if not self.gradient_scales:
            return gradient
        scale = self.gradient_scales[i]
        gradient = gradient * scale
        scale.fill_(1.0 - self.dampening)
        return gradient

    def state(self) -> dict[str, Tensor]:
        """The learning rate, the momentum buffers, and with dampening the gradients' scales."""
        return {
            **super().state(),
            **{f"momentum_buffers.{i}": b for i, b in enumerate(self.momentum_buffers)},
            **{f"gradient_scales.{i}": s for i, s in enumerate(self.gradient_scales)},
        }

    def __repr__(self) -> str:
        return (
            f"SGD(lr={self.lr.item()}, momentum={self.momentum}, dampening={self.dampening}, "
            f"weight_decay={self.weight_decay}, nesterov={self.nesterov})"
        )
