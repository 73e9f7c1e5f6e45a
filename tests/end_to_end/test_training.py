"""The main job: a network trained by two compiled functions gives eager's losses, bit for bit."""

import pytest

import aotlite as al
from aotlite import nn, optim
from aotlite.data import load_digits
from aotlite.nn import functional as F

BATCH = 16


class Network(nn.Module):
    """Convolution, batch norm, pooling, dropout, and a view that is written in place."""

    def __init__(self):
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        y = self.features(x).flatten(1)
        y.t()[:8].mul_(0.5)
        return self.head(self.drop(y))


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y)


def update(optimizer):
    optimizer.step()


def train(loss_function, update_function, steps):
    """Losses and final parameters; the learning rate changes at step 5, eval mode at 10 to 12."""
    digits = load_digits()
    images, labels = al.from_numpy(digits.train_images), al.from_numpy(digits.train_labels)
    al.manual_seed(7)
    model = Network()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        if step == 5:
            optimizer.lr = 0.02
        if step in (10, 13):
            model.train(step == 13)
        start = step * BATCH
        loss = loss_function(model, images[start : start + BATCH], labels[start : start + BATCH])
        loss.backward()
        update_function(optimizer)
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: t.tolist() for name, t in model.state_dict().items()}


@pytest.mark.rules("GEN-1")
@pytest.mark.parametrize("verify", [1, 2])
def test_twenty_steps_are_bit_equal_to_eagers(verify):
    """Another learning rate compiles nothing; eval mode compiles the loss once more."""
    compiled_loss = al.compile(loss_of, verify=verify)
    compiled_update = al.compile(update, verify=verify)
    assert train(loss_of, update, 20) == train(compiled_loss, compiled_update, 20)
    assert (2, 1) == (len(compiled_loss.entries), len(compiled_update.entries))


def test_losses_depend_on_the_learning_rate_and_on_the_mode():
    """Without which the test above could not fail."""
    losses, _ = train(loss_of, update, 20)
    assert len(set(losses)) == 20

    def frozen(optimizer):
        return None

    assert losses[:1] == train(loss_of, frozen, 1)[0]
    assert losses[1:3] != train(loss_of, frozen, 3)[0][1:]


@pytest.mark.rules("META-2")
def test_what_each_function_writes_is_in_its_metadata():
    compiled_loss, compiled_update = al.compile(loss_of), al.compile(update)
    train(compiled_loss, compiled_update, 1)
    places = "num_batches_tracked running_mean running_var".split()
    assert [f"argument 0.features.1.{name}" for name in places] == [
        each.place for each in compiled_loss.meta.updated
    ]
    assert 12 == len(compiled_update.meta.updated)
    assert all(each.under_no_grad for each in compiled_update.meta.updated)
