"""Every layer against PyTorch's with the same state: printing, values, gradients; and compiled."""

import inspect
import warnings

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from tests.nn.helpers.compare import both, same, same_states, share_state

F64 = "dtype"


def case(name, *args, shapes, **options):
    """A layer, its arguments, and the shapes of what it is called with."""
    return pytest.param(name, args, options, shapes, id=f"{name}{args}{options}")


CASES = [
    case("Linear", 3, 4, shapes=[(2, 3)], dtype=F64),
    case("Conv1d", 4, 6, 3, shapes=[(2, 4, 7)], dtype=F64),
    case("Conv1d", 4, 6, 2, 2, 1, 2, 2, False, shapes=[(4, 7)], dtype=F64),
    case("Conv2d", 4, 6, (3, 2), padding="same", shapes=[(2, 4, 5, 6)], dtype=F64),
    case("Conv2d", 4, 6, 3, (2, 1), 1, 1, 2, shapes=[(4, 5, 6)], dtype=F64),
    case("Conv2d", 4, 6, (3, 2), padding="same", padding_mode="reflect", shapes=[(2, 4, 5, 6)],
         dtype=F64),
    case("Conv1d", 4, 6, 3, padding=2, padding_mode="circular", shapes=[(4, 7)], dtype=F64),
    case("Conv2d", 4, 6, 3, 1, (1, 2), padding_mode="replicate", shapes=[(2, 4, 5, 6)], dtype=F64),
    case("ConvTranspose1d", 4, 6, 3, 2, output_padding=1, shapes=[(2, 4, 5)], dtype=F64),
    case("ConvTranspose2d", 4, 6, 3, 2, 1, 1, 2, False, shapes=[(2, 4, 3, 4)], dtype=F64),
    case("ConvTranspose2d", 4, 6, (2, 3), 1, 1, 0, 1, True, 2, shapes=[(4, 3, 4)], dtype=F64),
    case("MaxPool1d", 2, shapes=[(2, 3, 7)]),
    case("MaxPool2d", 3, 2, 1, ceil_mode=True, shapes=[(2, 3, 7, 6)]),
    case("AvgPool1d", 3, 2, 1, shapes=[(2, 3, 7)]),
    case("AvgPool2d", (2, 3), count_include_pad=False, padding=1, shapes=[(2, 3, 7, 6)]),
    case("AdaptiveAvgPool1d", 3, shapes=[(2, 3, 7)]),
    case("AdaptiveAvgPool2d", (3, None), shapes=[(2, 3, 7, 6)]),
    case("AdaptiveAvgPool2d", 1, shapes=[(2, 3, 7, 6)]),
    case("AdaptiveMaxPool2d", (3, None), shapes=[(2, 3, 7, 6)]),
    case("BatchNorm1d", 3, shapes=[(4, 3)], dtype=F64),
    case("BatchNorm1d", 3, momentum=None, shapes=[(4, 3, 2)], dtype=F64),
    case("BatchNorm2d", 3, 1e-2, 0.3, shapes=[(4, 3, 2, 2)], dtype=F64),
    case("InstanceNorm1d", 3, shapes=[(4, 3, 5)]),
    case("InstanceNorm1d", 3, affine=True, shapes=[(3, 5)], dtype=F64),
    case("InstanceNorm2d", 3, 1e-2, 0.3, True, True, shapes=[(4, 3, 2, 5)], dtype=F64),
    case("LayerNorm", (3, 2), shapes=[(4, 3, 2)], dtype=F64),
    case("GroupNorm", 2, 4, shapes=[(3, 4, 2)], dtype=F64),
    case("GroupNorm", 4, 4, affine=False, shapes=[(3, 4, 2, 3)], dtype=F64),
    case("RMSNorm", 4, shapes=[(3, 4)], dtype=F64),
    case("RMSNorm", (3, 4), eps=0.1, elementwise_affine=False, shapes=[(2, 3, 4)], dtype=F64),
    case("Dropout", 0.0, shapes=[(2, 3)]),
    case("Dropout1d", 1.0, shapes=[(2, 3, 4)]),
    case("Dropout2d", 0.0, True, shapes=[(2, 3, 4, 2)]),
    case("AlphaDropout", 0.0, shapes=[(2, 3)]),
    case("Flatten", shapes=[(2, 3, 4)]),
    case("Identity", 1, a=2, shapes=[(2, 3)]),
    case("ReLU", shapes=[(2, 3)]),
    case("GELU", "tanh", shapes=[(2, 3)]),
    case("ReLU6", shapes=[(2, 3)]),
    case("ReLU", True, shapes=[(2, 3)]),
    case("SiLU", shapes=[(2, 3)]),
    case("Mish", inplace=True, shapes=[(2, 3)]),
    case("SELU", shapes=[(2, 3)]),
    case("Hardsigmoid", shapes=[(2, 3)]),
    case("Hardswish", shapes=[(2, 3)]),
    case("ELU", 0.7, shapes=[(2, 3)]),
    case("ELU", 0.7, True, shapes=[(2, 3)]),
    case("CELU", 0.5, shapes=[(2, 3)]),
    case("LeakyReLU", 0.2, inplace=True, shapes=[(2, 3)]),
    case("Hardtanh", -0.5, 0.7, shapes=[(2, 3)]),
    case("Threshold", 0.1, 20.0, shapes=[(2, 3)]),
    case("Softplus", 2.0, 1.0, shapes=[(2, 3)]),
    case("PReLU", shapes=[(2, 3)], dtype=F64),
    case("PReLU", 3, 0.5, shapes=[(2, 3, 2)], dtype=F64),
    case("Softshrink", 0.3, shapes=[(2, 3)]),
    case("Hardshrink", shapes=[(2, 3)]),
    case("Sigmoid", shapes=[(2, 3)]),
    case("Tanh", shapes=[(2, 3)]),
    case("LogSigmoid", shapes=[(2, 3)]),
    case("Softsign", shapes=[(2, 3)]),
    case("Tanhshrink", shapes=[(2, 3)]),
    case("GLU", 1, shapes=[(2, 4, 3)]),
    case("Softmax", 1, shapes=[(2, 4, 3)]),
    case("Softmin", -1, shapes=[(2, 4, 3)]),
    case("LogSoftmax", 0, shapes=[(2, 4, 3)]),
    case("MSELoss", shapes=[(2, 3), (2, 3)]),
    case("L1Loss", reduction="sum", shapes=[(2, 3), (2, 3)]),
    case("SmoothL1Loss", beta=0.3, shapes=[(2, 3), (2, 3)]),
    case("HuberLoss", "none", 0.7, shapes=[(2, 3), (2, 3)]),
    case("KLDivLoss", reduction="batchmean", log_target=True, shapes=[(2, 3), (2, 3)]),
    case("LSTM", 3, 4, shapes=[(5, 2, 3)], dtype=F64),
    case("LSTM", 3, 4, 2, bidirectional=True, shapes=[(5, 2, 3)], dtype=F64),
    case("LSTM", 3, 4, 2, False, True, shapes=[(2, 5, 3)], dtype=F64),
    case("LSTM", 3, 4, shapes=[(5, 3)], dtype=F64),
    case("GRU", 3, 4, 2, bidirectional=True, batch_first=True, shapes=[(2, 5, 3)], dtype=F64),
    case("GRU", 3, 4, shapes=[(5, 2, 3), (1, 2, 4)], dtype=F64),
    case("RNN", 3, 4, nonlinearity="relu", shapes=[(5, 2, 3)], dtype=F64),
    case("RNN", 3, 4, 2, shapes=[(5, 3), (2, 4)], dtype=F64),
    case("LSTMCell", 3, 4, shapes=[(2, 3)], dtype=F64),
    case("GRUCell", 3, 4, False, shapes=[(2, 3), (2, 4)], dtype=F64),
    case("MultiheadAttention", 4, 2, shapes=[(3, 2, 4)] * 3, dtype=F64),
    case("TransformerEncoderLayer", 4, 2, 8, 0.0, shapes=[(3, 2, 4)], dtype=F64),
    case(
        "TransformerEncoderLayer", 4, 2, 8, 0.0, "gelu", 1e-3, True, True, False,
        shapes=[(2, 3, 4), (3, 3)], dtype=F64,
    ),
]  # fmt: skip


LOOSE = {"Hardsigmoid": 1e-7}
"""In PyTorch the slope 1 / 6 is rounded to float32."""


def made(torch, name, args, options):
    """The layer of either library, in one state, with parameters that differ from one another."""
    mine = {k: al.float64 if v is F64 else v for k, v in options.items()}
    yours = {k: torch.float64 if v is F64 else v for k, v in options.items()}
    al.manual_seed(0)
    ours, theirs = getattr(nn, name)(*args, **mine), getattr(torch.nn, name)(*args, **yours)
    with al.no_grad():
        for k, parameter in enumerate(ours.parameters()):
            if parameter.ndim == 1:  # else ones and zeros
                parameter.copy_(parameter + al.arange(parameter.numel()) * 0.1 + k * 0.05)
    share_state(ours, theirs)
    return ours, theirs


def tensors(value):
    """The tensors of a result, in order."""
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors(item)]
    return [] if value is None else [value]


def cotangent(result):
    """Fixed weights for a result, in its own library."""
    library = al if isinstance(result, al.Tensor) else __import__("torch")
    values = np.cos(np.arange(result.numel()) * 1.3 + 0.5).reshape(tuple(result.shape))
    return library.tensor(values)


def called(layer, inputs):
    """Results, and gradients of inputs and parameters for one sum of powers."""
    results = [t for t in tensors(layer(*inputs)) if t.requires_grad]
    # Weighed: sums of squares of what is normalized do not depend on the input.
    sum((r * r * cotangent(r)).sum() for r in results).backward()
    return results, [x.grad for x in inputs], [p.grad for p in layer.parameters()]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "args", "options", "shapes"), CASES)
def test_a_layer_is_pytorchs(torch, name, args, options, shapes):
    ours, theirs = made(torch, name, args, options)
    printed = repr(theirs).replace("NonDynamicallyQuantizable", "")
    assert printed == repr(ours)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    pairs = [both(torch, *shape, seed=i) for i, shape in enumerate(shapes)]
    if "inplace" in repr(ours) and getattr(ours, "inplace", False):
        pairs = [(a.detach(), b.detach()) for a, b in pairs]
        same(theirs(*[t for t, _ in pairs]), ours(*[a for _, a in pairs]))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = called(theirs, [t for t, _ in pairs])
    got = called(ours, [a for _, a in pairs])
    for wanted, found in zip(expected, got, strict=True):
        for a, b in zip(wanted, found, strict=True):
            same(a, b, LOOSE.get(name, 1e-12))
    for a, b in zip(expected[0], got[0], strict=True):
        assert tuple(a.stride()) == b.stride()
    same_states(theirs, ours)
    theirs.eval(), ours.eval()
    for a, b in zip(tensors(theirs(*[t.detach() for t, _ in pairs])),
                    tensors(ours(*[a.detach() for _, a in pairs])), strict=True):  # fmt: skip
        same(a, b)


DRAWN = [
    case("Dropout", 0.3, shapes=[(2, 3)]),
    case("Dropout", 0.3, True, shapes=[(2, 3)]),
    case("Dropout1d", 0.3, shapes=[(2, 3, 4)]),
    case("Dropout2d", 0.3, True, shapes=[(2, 3, 4, 2)]),
    case("AlphaDropout", 0.4, shapes=[(2, 3)]),
    case("AlphaDropout", 0.4, True, shapes=[(2, 3)]),
    case("LSTM", 3, 4, 2, dropout=0.5, shapes=[(5, 2, 3)], dtype=F64),
    case("TransformerEncoderLayer", 4, 2, 8, shapes=[(3, 2, 4)], dtype=F64),
]
"""Layers that draw numbers, which are not PyTorch's."""


@pytest.mark.parametrize(("name", "args", "options", "shapes"), CASES + DRAWN)
def test_a_compiled_layer_is_eagers(name, args, options, shapes):
    options = {k: al.float64 if v is F64 else v for k, v in options.items()}

    def world(compiled):
        al.manual_seed(0)
        layer = getattr(nn, name)(*args, **options)
        inputs = [al.rand(*shape, dtype=al.float64) * 2 - 1 for shape in shapes]
        function = al.compile(lambda layer, *inputs: layer(*inputs)) if compiled else None
        if getattr(layer, "inplace", False):
            result = function(layer, *inputs) if compiled else layer(*inputs)
            return result is inputs[0], result.tolist()
        inputs = [x.requires_grad_() for x in inputs]
        results = tensors(function(layer, *inputs) if compiled else layer(*inputs))
        sum((r**2).sum() for r in results if r.requires_grad).backward()
        versions = [t.version for t in (*inputs, *layer.state_dict().values())]
        values = [*results, *[x.grad for x in inputs], *layer.state_dict().values()]
        values += [p.grad for p in layer.parameters()]
        return [(t.stride(), t.tolist()) for t in values], versions

    assert world(False) == world(True)


NAMED = {parameters.values[0] for parameters in CASES} | {"TransformerEncoder"}


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(NAMED - {"GRU", "LSTM", "RNN"}))
def test_constructors_have_pytorchs_arguments_and_defaults(torch, name):
    theirs = inspect.signature(getattr(torch.nn, name)).parameters.values()
    ours = inspect.signature(getattr(nn, name)).parameters.values()
    needed = lambda those: [p.name for p in those if p.default is inspect.Parameter.empty]
    assert needed(theirs) == needed(ours)
    facts = lambda p: (p.name, None if p.name in ("device", "activation") else p.default)
    seen = [facts(p) for p in theirs if p.default is not inspect.Parameter.empty]
    for fact in [facts(p) for p in ours if p.default is not inspect.Parameter.empty]:
        assert fact in seen or fact[0] in ("dropout", "bias"), (name, fact)


LABELS = np.array([1, 0, -100, 2])


@pytest.mark.torch
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["NLLLoss", "CrossEntropyLoss"])
def test_losses_of_labels_are_pytorchs(torch, name, weighted):
    weight = np.array([0.5, 1.0, 2.0])
    theirs = getattr(torch.nn, name)(torch.tensor(weight) if weighted else None)
    ours = getattr(nn, name)(al.tensor(weight) if weighted else None)
    assert (repr(theirs), list(theirs.state_dict())) == (repr(ours), list(ours.state_dict()))
    x, y = both(torch, 4, 3)
    expected, got = theirs(x, torch.tensor(LABELS)), ours(y, al.tensor(LABELS))
    same(expected, got)
    expected.backward(), got.backward()
    same(x.grad, y.grad)


@pytest.mark.torch
def test_losses_of_probabilities_are_pytorchs(torch):
    weight = np.array([0.5, 1.0, 2.0])
    x, y = both(torch, 4, 3)
    for name in ("BCELoss", "BCEWithLogitsLoss"):
        theirs, ours = getattr(torch.nn, name), getattr(nn, name)
        expected = theirs(torch.tensor(weight))(x.sigmoid(), x.sigmoid())
        same(expected, ours(al.tensor(weight))(y.sigmoid(), y.sigmoid()))
    expected = theirs(pos_weight=torch.tensor(weight))(x, x.sigmoid())
    same(expected, ours(pos_weight=al.tensor(weight))(y, y.sigmoid()))


@pytest.mark.torch
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_with_masks_is_pytorchs(torch, norm_first):
    def encoder(layers, dtype):
        layer = layers.TransformerEncoderLayer(
            4, 2, 8, 0.0, norm_first=norm_first, batch_first=True, dtype=dtype
        )
        norm = layers.LayerNorm(4, dtype=dtype)
        return layers.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)

    ours, theirs = encoder(nn, al.float64), encoder(torch.nn, torch.float64)
    share_state(ours, theirs)
    padding = np.array([[False, False, True], [False, False, False]])
    later = np.triu(np.ones((3, 3), bool), 1)
    x, y = both(torch, 2, 3, 4)
    expected = theirs(x, torch.tensor(later), torch.tensor(padding))
    got = ours(y, al.tensor(later), al.tensor(padding))
    same(expected, got)
    (expected**3).sum().backward(), (got**3).sum().backward()
    same(x.grad, y.grad)
    first, second = (ours.layers[i].linear1.weight for i in (0, 1))
    assert first is not second and first.tolist() == second.tolist()


@pytest.mark.torch
def test_a_transposed_convolution_takes_the_size_of_its_result(torch):
    ours, theirs = made(torch, "ConvTranspose2d", (2, 3, 3, 2), {"dtype": F64})
    x, y = both(torch, 1, 2, 3, 3)
    same(theirs(x, output_size=(8, 7)), ours(y, output_size=(8, 7)))
    with pytest.raises(al.ArgumentError, match=r"output_size is \(9, 7\), expected \(7, 7\) to"):
        ours(y, output_size=(9, 7))


def test_recurrent_layers_start_as_pytorchs_do():
    al.manual_seed(0)
    layer = nn.LSTM(64, 25, 2)
    for parameter in layer.parameters():
        values = parameter.detach().numpy()
        assert 0.18 < abs(values).max() <= 0.2
        assert abs(values.mean()) < 0.03


def test_dropout_of_channels_keeps_or_drops_them_whole():
    al.manual_seed(0)
    for layer, x in ((nn.Dropout1d(), al.ones(8, 9, 3)), (nn.Dropout2d(), al.ones(8, 9, 2, 3))):
        y = layer(x).flatten(2)
        assert {0.0, 2.0} == set(y.flatten().tolist())
        assert y.amax((2,)).tolist() == y.amin((2,)).tolist()
    assert nn.Dropout1d()(al.ones(4, 3)).shape == (4, 3)


def test_alpha_dropout_keeps_mean_and_variance():
    al.manual_seed(0)
    x = nn.init.normal_(al.zeros(200, 200, dtype=al.float64))
    y = nn.AlphaDropout(0.3)(x).numpy()
    assert (y.mean(), y.std()) == pytest.approx((0.0, 1.0), abs=0.02)
    lowest = -1.7580993408473766
    scale = 1 / np.sqrt((lowest**2 * 0.3 + 1) * 0.7)
    lost = lowest * scale - lowest * scale * 0.3
    assert (abs(y - lost) < 1e-12).mean() == pytest.approx(0.3, abs=0.02)


def test_dropout_between_layers_is_for_training():
    al.manual_seed(0)
    layer, x = nn.LSTM(3, 4, 2, dropout=0.5), al.rand(5, 2, 3)
    first, second = layer(x)[0].tolist(), layer(x)[0].tolist()
    assert first != second
    layer.eval()
    assert layer(x)[0].tolist() == layer(x)[0].tolist()


# ------------------------------------------------------------------------------------ containers
class Held(nn.Module):
    def __init__(self):
        self.many = nn.ModuleList([nn.Linear(2, 2)]).append(nn.ReLU())
        self.named = nn.ModuleDict({"first": nn.Linear(2, 2)})
        self.loose = nn.ParameterList([al.ones(2), al.zeros(3)])

    def forward(self, x):
        for module in self.many:
            x = module(x)
        for name in self.named:
            x = self.named[name](x)
        return x * self.loose[0] + sum(p.sum() for p in self.loose)


def test_containers_hold_parameters_and_compile():
    held = Held()
    assert list(held.state_dict()) == [
        "many.0.weight", "many.0.bias", "named.first.weight", "named.first.bias", "loose.0",
        "loose.1",
    ]  # fmt: skip
    x = al.ones(3, 2)
    assert al.compile(lambda m, x: m(x))(held, x).tolist() == held(x).tolist()


def test_containers_are_lists_and_dicts():
    a, b, c = nn.ReLU(), nn.GELU(), nn.Flatten()
    many = nn.ModuleList([a]).extend([b])
    many.insert(1, c)
    assert (list(many), many[-1], c in many, [*many[1:]]) == ([a, c, b], b, True, [c, b])
    many[0] = b
    assert many[0] is b
    named = nn.ModuleDict({"a": a})
    named["b"] = b
    assert (named.keys(), named.values(), len(named)) == (["a", "b"], [a, b], 2)
    del named["a"]
    assert list(named) == ["b"] and named.items() == [("b", b)]
    with pytest.raises(al.IndexOutOfRangeError, match="ModuleDict: the key is 'a', expected one"):
        named["a"]
    with pytest.raises(al.ArgumentError, match="the key is 'keys', expected none that is an attr"):
        named["keys"] = a
    with pytest.raises(al.ArgumentError, match="ModuleList: '0' is 3, expected a Module"):
        nn.ModuleList([3])
    with pytest.raises(al.IndexOutOfRangeError, match="ParameterList: the index is 2, expected"):
        nn.ParameterList([al.ones(1)])[2]


# ---------------------------------------------------------------------------------------- errors
REFUSED = [
    (lambda: nn.GroupNorm(3, 4), al.ArgumentError, "GroupNorm: num_groups is 3, expected a div"),
    (lambda: nn.Conv1d(3, 4, 3, groups=2), al.ArgumentError, "Conv1d: groups is 2, expected"),
    (lambda: nn.LSTM(3, 0), al.ArgumentError, "LSTM: hidden_size is 0, expected at least 1"),
    (lambda: nn.RNN(3, 2, nonlinearity="sin"), al.ArgumentError, "RNN: nonlinearity is 'sin'"),
    (lambda: nn.LSTM(3, 2)(al.ones(4, 4)), al.ShapeError, r"LSTM: the input has shape \(4, 4\)"),
    (
        lambda: nn.GRU(3, 2)(al.ones(5, 4, 3), al.ones(1, 2)),
        al.ShapeError,
        r"GRU: a state has shape \(1, 2\), expected \(1, 4, 2\)",
    ),
    (lambda: nn.LSTMCell(3, 2)(al.ones(1, 2, 3)), al.ShapeError, "LSTMCell: the input has shape"),
    (lambda: nn.BatchNorm1d(3)(al.ones(3)), al.ShapeError, "BatchNorm1d: the input has shape"),
    (lambda: nn.InstanceNorm1d(3)(al.ones(3)), al.ShapeError, "InstanceNorm1d: the input has"),
    (
        lambda: nn.InstanceNorm1d(3)(al.ones(2, 3, 1)),
        al.ShapeError,
        r"instance_norm: the input has shape \(2, 3, 1\), expected more than 1 value",
    ),
    (lambda: nn.Dropout2d()(al.ones(2, 3)), al.ShapeError, "dropout2d: the input has shape"),
    (
        lambda: nn.functional.group_norm(al.ones(1, 2), 2),
        al.ArgumentError,
        r"group_norm: the input has shape \(1, 2\), expected more than 1 value in each",
    ),
    (lambda: nn.Softmax()(al.ones(2)), al.ArgumentError, "Softmax: dim is None, expected a dim"),
    (lambda: nn.Hardtanh(1.0, 1.0), al.ArgumentError, "Hardtanh: min_val is 1.0, expected less"),
    (lambda: nn.GLU()(al.ones(2, 3)), al.ShapeError, r"glu: the input has shape \(2, 3\), exp"),
    (
        lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh"),
        al.ArgumentError,
        "TransformerEncoderLayer: activation is 'tanh', expected 'relu', 'gelu' or a function",
    ),
    (
        lambda: nn.TransformerEncoderLayer(4, 2)(al.ones(3, 4), al.ones(3, 3, dtype=al.int64)),
        al.DTypeError,
        "TransformerEncoder: argument 'src_mask' has dtype int64, expected bool or float32",
    ),
]


@pytest.mark.parametrize(("function", "error", "message"), REFUSED)
def test_layers_say_what_they_expect(function, error, message):
    with pytest.raises(error, match=message):
        function()
