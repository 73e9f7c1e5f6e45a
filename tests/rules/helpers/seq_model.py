"""The model whose sequence numbers are a golden: an op or two of each kind, a value used twice."""

from __future__ import annotations

from typing import Any

import aotlite as al
from aotlite import nn


class Model(nn.Module):
    """conv -> batch norm -> relu -> add -> flatten -> linear on a vector -> L1 loss."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(2, 2, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(2)
        self.relu1 = nn.ReLU()
        self.fc1 = nn.Linear(32, 4)
        self.loss_fn = nn.L1Loss()

    def forward(self, x: Any, target: Any) -> Any:
        y = self.relu1(self.bn1(self.conv1(x)))
        y = y + x
        y = y.flatten()
        return self.loss_fn(self.fc1(y), target)


def arguments() -> tuple[Any, Any]:
    return al.ones(1, 2, 4, 4, requires_grad=True), al.ones(4)
