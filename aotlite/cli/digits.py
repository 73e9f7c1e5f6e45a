"""The model of `aotlite demo`: a network that reads digits, its loss, its update, its training."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator

import attrs
import numpy as np

import aotlite
from aotlite import nn, optim
from aotlite.data import Digits
from aotlite.eager.base.tensor import Tensor

LEARNING_RATE = 0.1
LATE_LEARNING_RATE = 0.01


class DigitsNet(nn.Module):
    """Two convolutions with batch normalization, then one linear layer: (n, 1, 8, 8) -> (n, 10)."""

    def __init__(self) -> None:
        self.features = nn.Sequential(*_block(1, 16), *_block(16, 32), nn.Flatten())
        self.classify = nn.Sequential(nn.Dropout(0.25), nn.Linear(32 * 2 * 2, 10))
        self.read_right = nn.Buffer(aotlite.tensor(0), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.features(images))


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    """(n, inputs, h, w) -> (n, outputs, h / 2, w / 2)."""
    return [
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def loss(model: DigitsNet, images: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean cross-entropy of a batch, in eager style: with views and writes.

    It counts the digits read right in a buffer. It shifts scores by their maximum, by a write
    through a transposed view: that changes no probability, and gradients flow through the write.
    """
    scores = model(images)
    model.read_right.add_((scores.argmax(1) == labels).sum())
    by_class = scores.t()
    by_class.sub_(by_class.detach().amax(0))
    return nn.functional.cross_entropy(scores, labels)


def update(optimizer: optim.SGD) -> None:
    """Updates parameters and momentum in place."""
    optimizer.step()


def step(model: DigitsNet, optimizer: optim.SGD, images: Tensor, labels: Tensor) -> Tensor:
    """Runs a whole step as one function: loss, backward, update."""
    value = loss(model, images, labels)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return value.detach()


def predict(model: DigitsNet, images: Tensor) -> Tensor:
    """Returns the digit of each image: (n, 1, 8, 8) -> (n,)."""
    return model(images).argmax(1)


@attrs.frozen(eq=False)
class Functions:
    """The functions of a training, compiled, or eager for comparison."""

    loss: Callable[[DigitsNet, Tensor, Tensor], Tensor]
    update: Callable[[optim.SGD], None]
    predict: Callable[[DigitsNet, Tensor], Tensor]


EAGER = Functions(loss, update, predict)


class Session:
    """One training: model, optimizer, order of the data, losses so far."""

    def __init__(self, functions: Functions, digits: Digits, seed: int, batch: int) -> None:
        aotlite.manual_seed(seed)
        self.functions = functions
        self.digits = digits
        self.seed = seed
        self.batch = batch
        self.model = DigitsNet()
        self.optimizer = optim.SGD(
            self.model.parameters(), lr=LEARNING_RATE, momentum=0.9, weight_decay=5e-4
        )
        self.losses: list[float] = []
        self.step_seconds: list[float] = []
        self.train_accuracies: list[float] = []
        self._order = np.random.default_rng(seed)

    @property
    def batches(self) -> int:
        """The steps of an epoch. An incomplete last batch is left out."""
        return len(self.digits.train_labels) // self.batch

    def train(self, epochs: int) -> Iterator[None]:
        """Trains, and yields after each step."""
        for epoch in range(epochs):
            if epoch == max(1, epochs * 2 // 3):
                self.optimizer.lr = LATE_LEARNING_RATE
            for images, labels in self.epoch():
                start = time.perf_counter()
                self.losses.append(self.step(images, labels))
                self.step_seconds.append(time.perf_counter() - start)
                yield
            seen = self.batches * self.batch
            self.train_accuracies.append(self.model.read_right.item() / seen)
            with aotlite.no_grad():
                self.model.read_right.zero_()

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the batches of an epoch in a new order: slices of one shuffled tensor."""
        order = self._order.permutation(len(self.digits.train_labels))
        images = aotlite.from_numpy(self.digits.train_images[order])
        labels = aotlite.from_numpy(self.digits.train_labels[order])
        for start in range(0, self.batches * self.batch, self.batch):
            yield images[start : start + self.batch], labels[start : start + self.batch]

    def step(self, images: Tensor, labels: Tensor) -> float:
        """Trains on one batch and returns its loss."""
        value = self.functions.loss(self.model, images, labels)
        self.optimizer.zero_grad()
        value.backward()
        self.functions.update(self.optimizer)
        return value.item()

    def accuracy(self) -> float:
        """Returns the share of test digits read right, in eval mode."""
        self.model.eval()
        with aotlite.no_grad():
            read = self.functions.predict(
                self.model, aotlite.from_numpy(self.digits.test_images)
            ).numpy()
        self.model.train()
        return float((read == self.digits.test_labels).mean())

    def twin(self, functions: Functions) -> Session:
        """Returns a copy of the session, which continues with these functions."""
        other = copy.copy(self)
        other.functions = functions
        other.model, other.optimizer = copy.deepcopy((self.model, self.optimizer))
        return other
