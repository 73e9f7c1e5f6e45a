"""What the ops and functions of layers and losses refuse, and in which words."""

import pytest

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import (
    AotliteError,
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
)

F = nn.functional
IMAGE, LINE = (2, 4, 5, 5), (2, 4, 5)


def x(*shape, dtype=al.float32):
    return al.ones(*shape, dtype=dtype)


REFUSED = [
    (
        lambda: F.conv2d(x(4, 4), x(3, 4, 2, 2)),
        ShapeError,
        "conv2d: argument 'input' has shape (4, 4), expected 3 or 4 dimensions",
    ),
    (
        lambda: F.conv1d(x(*LINE), x(3, 4, 2, 2)),
        ShapeError,
        "conv1d: argument 'weight' has shape (3, 4, 2, 2), expected 3 dimensions",
    ),
    (
        lambda: F.conv1d(x(*LINE), x(3, 4, 2), stride=(1, 2)),
        ArgumentError,
        "conv1d: argument 'stride' is (1, 2), expected one number",
    ),
    (
        lambda: F.conv_transpose2d(x(*IMAGE), x(4, 3, 2, 2), output_padding=1),
        ArgumentError,
        "conv_transpose2d: argument 'output_padding' is (1, 1), expected less than the stride "
        "(1, 1) or the dilation (1, 1)",
    ),
    (
        lambda: F.conv_transpose2d(x(*IMAGE), x(3, 3, 2, 2)),
        ShapeError,
        "conv_transpose2d: the input has 4 channels, expected 3, the weight's",
    ),
    (
        lambda: F.conv_transpose2d(x(*IMAGE), x(4, 3, 2, 2), x(4)),
        ShapeError,
        "conv_transpose2d: argument 'bias' has shape (4,), expected (3,)",
    ),
    (
        lambda: F.conv_transpose2d(x(*IMAGE), x(4, 3, 2, 2), groups=3),
        ArgumentError,
        "conv_transpose2d: argument 'groups' is 3, expected a divisor of 4, the number of input "
        "channels",
    ),
    (
        lambda: F.conv_transpose2d(x(*IMAGE), x(4, 3, 2, 2), padding=4),
        ShapeError,
        "conv_transpose2d: the result's size is (-2, -2), expected at least 1",
    ),
    (
        lambda: F.avg_pool2d(x(*IMAGE), 6),
        ShapeError,
        "avg_pool2d: the result's size is (0, 0), expected at least 1: the window (6, 6) is larger "
        "than shape (2, 4, 5, 5)",
    ),
    (
        lambda: F.avg_pool2d(x(*IMAGE), 2, divisor_override=0),
        ArgumentError,
        "avg_pool2d: argument 'divisor_override' is 0, expected another number",
    ),
    (
        lambda: F.avg_pool2d(x(*IMAGE, dtype=al.int32), 2),
        DTypeError,
        "avg_pool2d: dtype is int32, expected a floating one or int64",
    ),
    (
        lambda: F.max_pool1d(x(*LINE, dtype=al.int64), 2),
        DTypeError,
        "max_pool1d: dtype is int64, expected a floating one",
    ),
    (
        lambda: F.avg_pool1d(x(5), 2),
        ShapeError,
        "avg_pool1d: the tensor has shape (5,), expected 2 or 3 dimensions",
    ),
    (
        lambda: F.adaptive_avg_pool2d(x(*IMAGE), (1, 2, 3)),
        ShapeError,
        "adaptive_avg_pool2d: argument 'output_size' is (1, 2, 3), expected 1 or 2 sizes of at "
        "least 0",
    ),
    (
        lambda: F.adaptive_avg_pool2d(x(2, 4, 0, 5), 2),
        ShapeError,
        "adaptive_avg_pool2d: the tensor has shape (2, 4, 0, 5), expected 3 or 4 dimensions, "
        "height and width of at least 1",
    ),
    (
        lambda: F.group_norm(x(*IMAGE), 3),
        ArgumentError,
        "group_norm: argument 'num_groups' is 3, expected a divisor of 4, the number of channels",
    ),
    (
        lambda: F.group_norm(x(*IMAGE), 2, x(5)),
        ShapeError,
        "group_norm: argument 'weight' has shape (5,), expected (4,)",
    ),
    (
        lambda: F.rms_norm(x(*IMAGE), (4,)),
        ShapeError,
        "rms_norm: normalized_shape is (4,), expected one or more of the last sizes of the input's "
        "shape (2, 4, 5, 5)",
    ),
    (
        lambda: F.batch_norm(x(*IMAGE, dtype=al.int64), x(4), x(4)),
        DTypeError,
        "batch_norm: dtype is int64, expected a floating one",
    ),
    (
        lambda: F.batch_norm(x(*IMAGE), x(4), x(4), x(4, dtype=al.float64)),
        DTypeError,
        "batch_norm: argument 'weight' has dtype float64, expected float32",
    ),
    (
        lambda: F.mse_loss(x(2, 3), x(2, 4)),
        ShapeError,
        "mse_loss: shapes are (2, 3) and (2, 4), expected equal sizes, or 1, in dimension -1",
    ),
    (
        lambda: F.mse_loss(x(2, dtype=al.int64), x(2, dtype=al.int64)),
        DTypeError,
        "mse_loss: dtype is int64, expected a floating one",
    ),
    (
        lambda: F.l1_loss(x(2, 3), x(2, 3), weight=x(3)),
        ShapeError,
        "l1_loss: argument 'weight' has shape (3,), expected (2, 3)",
    ),
    (
        lambda: F.smooth_l1_loss(x(2), x(2), beta=-1.0),
        ArgumentError,
        "smooth_l1_loss: argument 'beta' is -1.0, expected at least 0",
    ),
    (
        lambda: F.huber_loss(x(2), x(2), delta=0.0),
        ArgumentError,
        "huber_loss: argument 'delta' is 0.0, expected above 0",
    ),
    (
        lambda: F.binary_cross_entropy(x(2) * 1.5, x(2)),
        ArgumentError,
        "binary_cross_entropy: an element of 'input' is 1.5, expected 0 to 1",
    ),
    (
        lambda: F.binary_cross_entropy(x(2), x(2) * float("nan")),
        ArgumentError,
        "binary_cross_entropy: an element of 'target' is nan, expected 0 to 1",
    ),
    (
        lambda: F.binary_cross_entropy(x(2), x(1)),
        ShapeError,
        "binary_cross_entropy: argument 'target' has shape (1,), expected (2,)",
    ),
    (
        lambda: F.binary_cross_entropy_with_logits(x(2, 3), x(2, 3), pos_weight=x(4, 2, 3)),
        ShapeError,
        "binary_cross_entropy_with_logits: argument 'pos_weight' has shape (4, 2, 3), expected one "
        "that broadcasts to (2, 3)",
    ),
    (
        lambda: F.kl_div(x(2), x(2), reduction="batch"),
        ArgumentError,
        "kl_div: reduction is 'batch', expected 'mean', 'batchmean', 'sum' or 'none'",
    ),
    (
        lambda: F.nll_loss(x(2, 3), al.tensor([0, 3])),
        IndexOutOfRangeError,
        "nll_loss: a label is 3, expected 0 <= label < 3, or -100, which is ignored",
    ),
    (
        lambda: F.nll_loss(x(2, 3), al.tensor([0, 1]), x(2)),
        ShapeError,
        "nll_loss: argument 'weight' has shape (2,), expected (3,), one for each class",
    ),
    (
        lambda: F.cross_entropy(x(2, 3), al.tensor([0, 1]), label_smoothing=1.5),
        ArgumentError,
        "cross_entropy: argument 'label_smoothing' is 1.5, expected 0 to 1",
    ),
    (
        lambda: F.cross_entropy(x(2, 3), x(2, 3, dtype=al.int64)),
        DTypeError,
        "cross_entropy: a target of the input's shape has dtype int64, expected floating "
        "probabilities",
    ),
    (
        lambda: F.cross_entropy(x(2, 3), x(2, 3), ignore_index=1),
        ArgumentError,
        "cross_entropy: argument 'ignore_index' is 1, expected none with probabilities",
    ),
    (
        lambda: F.one_hot(al.tensor([0, 2]), 2),
        IndexOutOfRangeError,
        "one_hot: a label is 2, expected 0 <= label < 2",
    ),
    (
        lambda: F.one_hot(al.zeros(0, dtype=al.int64)),
        ArgumentError,
        "one_hot: the labels have shape (0,), expected num_classes for none",
    ),
    (
        lambda: F.one_hot(al.tensor([0]), -2),
        ArgumentError,
        "one_hot: argument 'num_classes' is -2, expected -1 or more",
    ),
]


@pytest.mark.parametrize(("function", "error", "message"), REFUSED, ids=[m for *_, m in REFUSED])
def test_what_layers_refuse(function, error, message):
    with pytest.raises(AotliteError) as caught:
        function()
    assert (error, message) == (type(caught.value), str(caught.value))


def test_one_hot_finds_the_number_of_classes():
    labels = al.tensor([0, 2])
    assert F.one_hot(labels).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert al.compile(lambda x: F.one_hot(x, 3))(labels).tolist() == [[1, 0, 0], [0, 0, 1]]
    compiled = al.compile(F.one_hot)
    for found in ([0, 2], [1, 0], [3, 1]):
        assert compiled(al.tensor(found)).tolist() == F.one_hot(al.tensor(found)).tolist()


def test_a_label_out_of_range_is_found_before_the_statistics_are_written():
    """In a compiled function too: running statistics stay as they were."""
    layer = nn.BatchNorm1d(3)

    def loss(layer, x, labels):
        return F.cross_entropy(layer(x), labels)

    scores = al.rand(4, 3)
    with pytest.raises(IndexOutOfRangeError):
        al.compile(loss)(layer, scores, al.tensor([0, 1, 2, 3]))
    assert layer.running_mean.tolist() == [0.0] * 3
    assert layer.num_batches_tracked.item() == 0
