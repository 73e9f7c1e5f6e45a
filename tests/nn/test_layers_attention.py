"""Attention: its definition, its symmetries, PyTorch's values and gradients, compiled form."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from tests.nn.helpers.compare import both, same, share_state

F = nn.functional
FEW = settings(max_examples=40)
L, S, E, BATCH, HEADS = 3, 4, 6, 2, 2

seeds = st.integers(0, 1000)


def numbers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def triple(seed, length=S):
    """Query, key and value as tensors."""
    return [al.tensor(numbers(n, E, seed=seed + i)) for i, n in enumerate((L, length, length))]


# ------------------------------------------------------------------- scaled dot product attention
@FEW
@given(seeds, st.sampled_from([None, 0.5]))
def test_attention_is_the_weighted_mean_of_values(seed, scale):
    q, k, v = triple(seed)
    got = F.scaled_dot_product_attention(q, k, v, scale=scale).numpy()
    for row, query in enumerate(q.numpy()):
        weights = np.exp(k.numpy() @ query * (scale or E**-0.5))
        np.testing.assert_allclose(got[row], weights / weights.sum() @ v.numpy(), rtol=1e-12)


@FEW
@given(seeds, st.permutations(range(S)))
def test_the_order_of_keys_does_not_matter(seed, order):
    q, k, v = triple(seed)
    mask = al.tensor(numbers(L, S, seed=seed))
    moved = [al.tensor(t.numpy()[order]) for t in (k, v)]
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    got = F.scaled_dot_product_attention(q, *moved, al.tensor(mask.numpy()[:, order]))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-11, atol=1e-13)


@FEW
@given(seeds, st.integers(0, L - 1))
def test_causal_attention_does_not_see_later_keys(seed, place):
    q, k, v = triple(seed)
    before = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    k[place + 1 :].mul_(7), v[place + 1 :].add_(7)
    after = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert before[: place + 1].tolist() == after[: place + 1].tolist()


@FEW
@given(seeds, st.lists(st.booleans(), min_size=L * S, max_size=L * S))
def test_masks_of_both_kinds_leave_out_the_same_keys(seed, kept):
    """A row that sees no key gives zeros and gets no gradient, and nothing is nan."""
    kept = np.array(kept).reshape(L, S)
    found = []
    for mask in (al.tensor(kept), al.tensor(np.where(kept, 0.0, -np.inf))):
        operands = [t.requires_grad_() for t in triple(seed)]
        result = F.scaled_dot_product_attention(*operands, mask)
        (result * result).sum().backward()
        found.append([result.tolist(), *[t.grad.tolist() for t in operands]])
    assert found[0] == found[1]
    blind = ~kept.any(1)
    assert np.isfinite(np.concatenate([np.ravel(x) for x in found[0]])).all()
    assert (np.array(found[0][0])[blind] == 0).all()
    assert (np.array(found[0][1])[blind] == 0).all()


MASKS = [None, "causal", "bool", "float", "head", "row"]


def mask_of(kind, seed):
    rng = np.random.default_rng(seed)
    match kind:
        case "bool":
            kept = rng.random((BATCH, 1, L, S)) < 0.6
            kept[0, 0, 1] = False  # a row that sees nothing
            return kept
        case "float":
            return rng.standard_normal((L, S))
        case "head":
            return rng.standard_normal((BATCH, HEADS, L, S))
        case "row":
            return rng.random((1, S)) < 0.8
    return None


@pytest.mark.torch
@FEW
@given(seeds, st.sampled_from(MASKS), st.sampled_from([None, 0.25]), st.sampled_from([1, 2]))
def test_attention_is_pytorchs(torch, seed, kind, scale, shared):
    shapes = [(BATCH, HEADS * shared, L, E), (BATCH, HEADS, S, E), (BATCH, HEADS, S, 5)]
    operands = [both(torch, *shape, seed=seed) for shape in shapes]
    mask = mask_of(kind, seed) if shared == 1 or kind != "head" else None
    options = {"scale": scale, "is_causal": kind == "causal", "enable_gqa": shared > 1}
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *[t for t, _ in operands], None if mask is None else torch.tensor(mask), **options
    )
    ours = F.scaled_dot_product_attention(
        *[a for _, a in operands], None if mask is None else al.tensor(mask), **options
    )
    same(theirs, ours)
    (theirs**2).sum().backward(), (ours**2).sum().backward()
    for t, a in operands:
        same(t.grad, a.grad)


def test_attention_drops_weights():
    q, k, v = triple(0)
    assert F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).tolist() == [[0.0] * E] * L
    al.manual_seed(0)
    dropped = F.scaled_dot_product_attention(q, k, al.tensor(np.eye(S)), dropout_p=0.5).numpy()
    full = F.scaled_dot_product_attention(q, k, al.tensor(np.eye(S))).numpy()
    np.testing.assert_allclose(dropped, np.where(dropped == 0, 0, full * 2), rtol=1e-15)
    assert 0 < (dropped == 0).sum() < L * S


def test_attention_refuses_what_does_not_fit():
    q, k, v = triple(0)
    attention = F.scaled_dot_product_attention
    with pytest.raises(ArgumentError, match="attn_mask is given and is_causal is True, expected o"):
        attention(q, k, v, al.ones(L, S, dtype=al.float64), is_causal=True)
    with pytest.raises(DTypeError, match="attn_mask has dtype int64, expected bool or float64, th"):
        attention(q, k, v, al.ones(L, S, dtype=al.int64))
    with pytest.raises(ShapeError, match=r"attn_mask has shape \(2, 3, 4\), expected one that bro"):
        attention(q, k, v, al.ones(2, L, S, dtype=al.float64))
    with pytest.raises(ShapeError, match=r"the value has shape \(6,\), expected at least 2 dimens"):
        attention(q, k, v[0])
    with pytest.raises(ShapeError, match=r"the key has shape \(3, 6\), expected sizes 4 and 6 at"):
        attention(q, k[:3], v)
    with pytest.raises(ShapeError, match=r"shared heads has shape \(4, 6\), expected a divisor of"):
        attention(q, k, v, enable_gqa=True)
    with pytest.raises(ShapeError, match=r"shared heads has shape \(2, 3, 6\), expected a divisor"):
        attention(al.ones(3, 3, 6), al.ones(2, 3, 6), al.ones(2, 3, 6), enable_gqa=True)
    with pytest.raises(ArgumentError, match="dropout: p is 2, expected 0 <= p <= 1"):
        attention(q, k, v, dropout_p=2)


# ------------------------------------------------------------------------------- several heads
layers = st.fixed_dictionaries(
    {},
    optional={
        "bias": st.booleans(),
        "add_bias_kv": st.booleans(),
        "add_zero_attn": st.booleans(),
        "batch_first": st.booleans(),
        "kdim": st.sampled_from([E, 5]),
        "vdim": st.sampled_from([E, 4]),
    },
)
calls = st.fixed_dictionaries(
    {"inputs": st.sampled_from(["self", "memory", "three"]), "batched": st.booleans()},
    optional={
        "attn_mask": st.sampled_from(["bool", "float", "heads", "causal"]),
        "key_padding_mask": st.sampled_from(["bool", "float"]),
        "need_weights": st.booleans(),
        "average_attn_weights": st.booleans(),
    },
)


def layer_of(options, seed=0):
    """A layer with values everywhere, biases too."""
    layer = nn.MultiheadAttention(E, HEADS, dtype=al.float64, **options)
    for i, parameter in enumerate(layer.parameters()):
        parameter.detach().copy_(al.tensor(numbers(*parameter.shape, seed=seed + i)))
    return layer


def arguments(layer, call, seed):
    """(query, key, value) as arrays, one object where they are one, and masks by name."""
    call = dict(call)
    kind, batched = call.pop("inputs"), call.pop("batched")
    if layer.kdim != E or layer.vdim != E:
        kind = "three"
    lengths = (S, S, S) if kind == "self" else (L, S, S)
    widths = (E, layer.kdim, layer.vdim)
    made = [
        numbers(*_sizes(layer, n, batched), width, seed=seed + i)
        for i, (n, width) in enumerate(zip(lengths, widths, strict=True))
    ]
    made = {"self": made[:1] * 3, "memory": [made[0], made[1], made[1]], "three": made}[kind]
    masks = _masks(call, lengths, batched, np.random.default_rng(seed))
    return made, {**call, **masks}


def _sizes(layer, length, batched):
    if not batched:
        return (length,)
    return (BATCH, length) if layer.batch_first else (length, BATCH)


def _masks(call, lengths, batched, rng):
    count, found = BATCH if batched else 1, {}
    shape = lengths[:2]
    match call.get("attn_mask"):
        case "bool":
            found["attn_mask"] = rng.random(shape) < 0.3
            found["attn_mask"][:, 0] = False
        case "float":
            found["attn_mask"] = rng.standard_normal(shape)
        case "heads":
            found["attn_mask"] = rng.standard_normal((count * HEADS, *shape))
        case "causal":
            found["attn_mask"] = np.triu(np.ones(shape, bool), 1)
            found["is_causal"] = True
    padded = (count, lengths[1]) if batched else lengths[1:2]
    match call.get("key_padding_mask"):
        case "bool":
            found["key_padding_mask"] = rng.random(padded) < 0.4
            found["key_padding_mask"][..., 0] = False
        case "float":
            found["key_padding_mask"] = rng.standard_normal(padded)
    return found


def attended(layer, make, arrays, options):
    """The call's results and the input's and parameters' gradients, as a list of tensors."""
    leaves = {id(a): make(a) for a in arrays}
    for leaf in leaves.values():
        leaf.requires_grad_()
    given_ = {n: make(o) if isinstance(o, np.ndarray) else o for n, o in options.items()}
    result, weights = layer(*[leaves[id(a)] for a in arrays], **given_)
    loss = (result**2).sum()
    (loss if weights is None else loss + (weights**3).sum()).backward()
    inputs = [leaf.grad for leaf in leaves.values()]
    return [result, weights, *inputs, *[p.grad for p in layer.parameters()]]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
@settings(max_examples=80)
@given(layers, calls, seeds)
def test_multihead_attention_is_pytorchs(torch, options, call, seed):
    ours = layer_of(options)
    theirs = torch.nn.MultiheadAttention(E, HEADS, dtype=torch.float64, **options)
    share_state(ours, theirs)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    arrays, masks = arguments(ours, call, seed)
    expected = attended(theirs, torch.tensor, arrays, masks)
    got = attended(ours, al.tensor, arrays, masks)
    for e, g in _matched(theirs, ours, expected, got):
        assert (e is None) == (g is None)
        if e is not None:
            same(e, g)
    assert expected[0].stride() == got[0].stride()


def _matched(theirs, ours, expected, got):
    """Pairs of results, with parameters' gradients by name: the orders of names may differ."""
    names = [[n for n, _ in layer.named_parameters()] for layer in (theirs, ours)]
    count = len(names[0])
    heads = zip(expected[:-count], got[:-count], strict=True)
    mine = dict(zip(names[1], got[-count:], strict=True))
    return [*heads, *[(e, mine[n]) for n, e in zip(names[0], expected[-count:], strict=True)]]


@FEW
@given(layers, calls, seeds)
def test_compiled_multihead_attention_is_eagers(options, call, seed):
    def run(layer, *inputs, **masks):
        return layer(*inputs, **masks)

    def world(function):
        layer = layer_of(options)
        arrays, masks = arguments(layer, call, seed)
        bound = Bound(layer, function)
        return [t if t is None else t.tolist() for t in attended(bound, al.tensor, arrays, masks)]

    assert world(run) == world(al.compile(run))


class Bound:
    """A layer that is called through a function."""

    def __init__(self, layer, function):
        self.layer, self.function = layer, function
        self.parameters = layer.parameters

    def __call__(self, *args, **kwargs):
        return self.function(self.layer, *args, **kwargs)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_of_attention_draws_in_training_alone_and_alike_when_compiled(need_weights):
    layer, x = nn.MultiheadAttention(E, HEADS, dropout=0.5), al.rand(S, BATCH, E)
    run = lambda layer, x: layer(x, x, x, need_weights=need_weights)[0]

    def world(function):
        al.manual_seed(3)
        return function(layer, x).tolist(), al.get_rng_state()

    assert world(run) == world(al.compile(run))
    trained = world(run)
    layer.eval()
    state = al.get_rng_state()
    assert run(layer, x).tolist() != trained[0]
    assert al.get_rng_state() == state


def test_weights_are_means_over_heads_and_sum_to_one():
    layer = layer_of({"batch_first": True})
    x = al.tensor(numbers(BATCH, S, E))
    _, mean = layer(x, x, x)
    _, each = layer(x, x, x, average_attn_weights=False)
    assert each.shape == (BATCH, HEADS, S, S)
    np.testing.assert_allclose(each.detach().numpy().mean(1), mean.detach().numpy(), rtol=1e-15)
    np.testing.assert_allclose(each.detach().numpy().sum(-1), 1, rtol=1e-14)


@pytest.mark.parametrize("separate", [False, True])
def test_projections_start_as_pytorchs_do(separate):
    al.manual_seed(0)
    size, kdim = 60, 90 if separate else 60
    layer = nn.MultiheadAttention(size, 4, add_bias_kv=True, kdim=kdim)
    bounds = {
        "in_proj_weight": math.sqrt(6 / (4 * size)),
        "q_proj_weight": math.sqrt(6 / (2 * size)),
        "k_proj_weight": math.sqrt(6 / (size + kdim)),
        "out_proj.weight": 1 / math.sqrt(size),
    }
    state = layer.state_dict()
    for name, bound in bounds.items():
        assert (name in state) == (name == "out_proj.weight" or separate == (name[0] != "i"))
        if name in state:
            values = abs(state[name].numpy())
            assert 0.97 * bound < values.max() <= bound * (1 + 1e-6)
    for name in ("in_proj_bias", "out_proj.bias"):
        assert set(state[name].tolist()) == {0.0}
    assert state["bias_k"].numpy().std() == pytest.approx(math.sqrt(2 / (2 * size)), rel=0.3)


def test_layers_of_attention_refuse_what_they_cannot_be():
    with pytest.raises(ArgumentError, match="embed_dim is 6 with 4 heads, expected a positive mul"):
        nn.MultiheadAttention(6, 4)
    with pytest.raises(ArgumentError, match="embed_dim is 6 with 0 heads, expected a positive mul"):
        nn.MultiheadAttention(6, 0)
    with pytest.raises(ArgumentError, match="MultiheadAttention: dropout is 1.5, expected 0 <= p"):
        nn.MultiheadAttention(6, 2, dropout=1.5)


BAD_CALLS = [
    (((S, E),), {"is_causal": True}, "attn_mask is None and is_causal is True, expected the mask"),
    (((S, BATCH, E, 1),), {}, "expected 3 dimensions each, or 2 without batch"),
    (((S, BATCH, 5),), {}, "the query has size 5 with 2 heads, expected the embed_dim 6, a"),
    (((L, BATCH, E), (S, 3, E), (S, 3, E)), {}, "expected one length of key and value, and one"),
    (((L, BATCH, E), (S, BATCH, E), (L, BATCH, E)), {}, "expected one length of key and value"),
    (((S, E),), {"attn_mask": (S, L)}, r"attn_mask has shape \(4, 3\), expected \(4, 4\) or \(2"),
    (((S, E),), {"key_padding_mask": (1, S)}, r"key_padding_mask has shape \(1, 1, 4\), expected"),
]


@pytest.mark.parametrize(("shapes", "options", "message"), BAD_CALLS)
def test_calls_of_attention_that_do_not_fit_are_refused(shapes, options, message):
    inputs = [al.ones(shape) for shape in shapes] * (1 if len(shapes) > 1 else 3)
    masks = {n: al.ones(o) if isinstance(o, tuple) else o for n, o in options.items()}
    message = "multi_head_attention_forward: .*" + message
    with pytest.raises((ArgumentError, ShapeError), match=message):
        nn.MultiheadAttention(E, HEADS)(*inputs, **masks)


def test_attention_refuses_masks_of_integers_and_lone_parts():
    x, layer = al.ones(S, BATCH, E), nn.MultiheadAttention(E, HEADS, add_bias_kv=True)
    with pytest.raises(DTypeError, match="key_padding_mask has dtype int64, expected bool or floa"):
        layer(x, x, x, al.zeros(BATCH, S, dtype=al.int64))
    layer.bias_v = None
    with pytest.raises(ArgumentError, match="one of bias_k and bias_v is None, expected both or n"):
        layer(x, x, x)
    layer.in_proj_weight = layer.bias_k = None
    with pytest.raises(ArgumentError, match="a projection's weight is None, expected a tensor"):
        layer(x, x, x)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "unit"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_of_16_bits_is_rounded_once(torch, name, unit, is_causal):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((2, 3, 5, 8)).astype("f4") * 2 for _ in range(3)]
    heads = [al.tensor(v).to(getattr(al, name)) for v in values]
    result = F.scaled_dot_product_attention(*heads, is_causal=is_causal)
    exact = torch.nn.functional.scaled_dot_product_attention(
        *[torch.tensor(x.double().numpy()) for x in heads], is_causal=is_causal
    ).numpy()
    assert result.dtype is getattr(al, name)
    np.testing.assert_allclose(result.double().numpy(), exact, unit * 0.51, 1e-5)
