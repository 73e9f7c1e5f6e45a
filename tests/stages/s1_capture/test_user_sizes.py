"""DYN-23 for tensors: what a user's function does with the sizes of an argument.

Each program is captured with symbols for both sizes of `x`. The graph that was recorded, with
numbers put in, gives what the function gives, wherever the log of assumptions holds.
"""

# ruff: noqa: F401  (the programs use the modules)

import functools
import io
import itertools
import math

import numpy as np
import optree
import pytest

import aotlite as al
import aotlite.nn.functional as F
from aotlite import nn
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.s1_capture import capture
from tests.ir.helpers.concrete_sizes import at, form

HINTS = ((6, 3), (2, 2), (1, 4), (0, 3))
OTHERS = tuple(itertools.product((0, 1, 2, 3, 6), repeat=2))


# ------------------------------------------------------------------------------------ the programs
def printed(x):
    stream = io.StringIO()
    print(x.shape, x.size(), x.numel(), *x.stride(), f"{x.shape}", file=stream)
    return stream.getvalue()


def cached(x):
    cache = {(6, 3): "first", (2, 2): "second"}
    return cache.setdefault(x.shape, "new"), cache.get(x.size(), None), len(cache)


def memoized(x):
    @functools.lru_cache
    def positions(n, m):
        return al.arange(n) * m

    return positions(*x.shape) + positions(x.shape[0], x.shape[1])


def unpacked(x):
    n, m = x.shape
    first, *rest = x.shape
    return n * m, first, rest, x.shape[::-1], x.shape[-1], x.shape[:1], (*x.shape, 2)


def matched(x):
    match x.shape:
        case (0, _) | (_, 0):
            return "none"
        case (n, m) if n == m:
            return "square"
        case (1, int(m)):
            return "a row", m
        case [n, m]:
            return "rows", n


def set_item(x):
    y = x.clone()
    y[0] = x.shape[0]
    y[:, x.shape[1] // 2] = x.shape[1]
    y[1:] *= x.shape[0]
    y += x.shape[1]
    return y


def gradient(x):
    leaf = x.detach().requires_grad_()
    (found,) = al.autograd.grad((leaf ** x.shape[1] + x.shape[1] ** leaf * x.shape[0]).sum(), leaf)
    return found


def rows(x):
    total = x.sum()
    for row in x:
        total = total + row.sum()
    for i in range(len(x)):
        total = total + x[i].sum() * i
    return total


def blocks(x):
    size = max(1, x.shape[0] // 2)
    return [x[i : i + size] for i in range(0, x.shape[0], size)]


def normalized(x):
    mean = x.sum(1, keepdim=True) / x.shape[1]
    return (x - mean) / math.sqrt(x.shape[1])


def checked(x):
    if x.shape[0] % 2:
        raise ValueError(f"{x.shape[0]} rows: expected an even number")
    assert isinstance(x.shape[1], int)
    return x.view(x.shape[0] // 2, -1) if x.numel() else x


def attention(x):
    weights = (x @ x.T) / x.shape[-1] ** 0.5
    mask = al.ones(x.shape[0], x.shape[0]).tril() == 0
    return weights.masked_fill(mask, -math.inf).softmax(-1) @ x


def position_encoding(x):
    n, m = x.shape
    place = al.arange(n).unsqueeze(1) * al.exp(al.arange(0, m) * (-math.log(10000.0) / m))
    return x + al.sin(place)


def padded(x):
    n = x.shape[0]
    rest = (-n) % 4
    return F.pad(x, (0, 0, 0, rest)) if rest else x


def one_hot_of_argmax(x):
    return F.one_hot(x.argmax(1), x.shape[1])


def layers(x):
    flat = x.reshape(1, 1, *x.shape)
    return F.adaptive_avg_pool2d(flat, x.shape[1] // 2 + 1), F.max_pool2d(flat, x.shape[0])


PROGRAMS = {
    "sizes": """
        x.shape
        x.size()
        x.size(0)
        x.size(-1)
        x.stride()
        x.stride(0)
        x.stride(-1)
        x.numel()
        x.nelement()
        x.nbytes
        x.itemsize
        x.ndim
        x.dim()
        len(x)
        len(x.shape)
        x.is_contiguous()
        x.T.is_contiguous()
        x.shape == (6, 3)
        x.shape == (6,)
        x.shape == [6, 3]
        x.shape != (2, 2)
        x.shape < (3, 3)
        x.shape == x.T.shape
        x.shape == al.zeros(6, 3).shape
        x.shape == x.clone().shape
        x.shape[0] == x.shape[1]
        x.shape[0] in x.shape[1:]
        x.shape in [(6, 3), (2, 2)]
        x.shape in {(6, 3), (2, 2)}
        {x.shape, x.T.shape, (6, 3)}
        x.shape.count(2)
        x.shape.index(x.shape[0])
        x.shape + (1,)
        x.shape * 2
        sum(x.shape)
        max(x.shape)
        math.prod(x.shape)
        np.prod(x.shape)
        sorted(x.shape)
        tuple(reversed(x.shape))
        list(x.shape)
        list(enumerate(x.shape))
        isinstance(x.shape, tuple)
        isinstance(x.numel(), int)
        [isinstance(k, int) for k in x.stride()]
        hash(x.shape) == hash((6, 3))
        str(x.shape)
        repr(x.size())
        f"{x.shape[0]}x{x.shape[1]}"
        "%d rows" % len(x)
        x.view(-1).shape
        x.flatten().numel()
        x[1:].shape
        x.T.stride()
        x.unsqueeze(0).shape
        x.expand(2, *x.shape).stride()
        x.split(2)[-1].shape if len(x) else 0
        printed(x)
        cached(x)
        unpacked(x)
        matched(x)
        """,
    "numbers in a tensor's place": """
        x + x.shape[0]
        x.shape[0] + x
        x.shape[0] - x
        x * x.shape[1]
        x.shape[1] * x
        x / x.shape[0]
        x.shape[0] / (x + 1)
        x // x.shape[0]
        x % x.shape[0]
        x ** x.shape[1]
        x.shape[0] ** x
        x == x.shape[0]
        x.shape[0] == x
        x > x.shape[0]
        x.shape[0] > x
        x != x.shape[0]
        x.int() & x.shape[0]
        x.int() | x.shape[0]
        x.shape[0] & x.int()
        x.int() << x.shape[1]
        x.int() + x.shape[0]
        x.int() / x.shape[0]
        x.int() * (x.shape[0] / 2)
        x + (x.shape[0] > 3)
        x * (x.shape[0] == 6)
        x.sum() / x.numel()
        x.clamp(max=x.shape[0])
        x.clamp(x.shape[1], x.shape[0])
        al.where(x > 1, x.shape[0], 0.5)
        al.where(x > 1, x, x.shape[0])
        x.masked_fill(x > 1, x.shape[0])
        al.maximum(x, al.tensor(x.shape[0]))
        al.add(x, x, alpha=x.shape[0])
        al.lerp(x, x + 1, x.shape[0])
        x.pow(x.shape[0])
        x.clone().fill_(x.shape[0])
        x.clone().mul_(x.shape[0])
        al.remainder(x.shape[0], x + 1)
        normalized(x)
        """,
    "shapes": """
        x.view(-1)
        x.view(x.shape[1], x.shape[0])
        x.view(x.numel())
        x.reshape(1, *x.shape)
        x.reshape(x.shape[::-1])
        x.reshape(x.shape[0] // 2, -1)
        x.flatten()
        x.T.reshape(x.numel())
        x.expand(x.shape[0], *x.shape)
        x.repeat(x.shape[0], 1)
        x.repeat(1, x.shape[1])
        x.tile((x.shape[1],))
        x.repeat_interleave(x.shape[1])
        x.unsqueeze(x.shape[0] - 6)
        x.sum(x.shape[1] - 3)
        x.sum((x.shape[1] - 3,))
        x.transpose(0, x.shape[1] - 2)
        x.permute(x.shape[1] - 2, 0)
        x.squeeze()
        x.squeeze(0)
        x.unflatten(0, (2, x.shape[0] // 2))
        x.broadcast_to((2, *x.shape))
        x.narrow(0, 0, x.shape[0] // 2)
        x.split(x.shape[0] // 2 + 1)
        x.split([1, x.shape[0] - 1])
        x.chunk(x.shape[1])
        x.unbind()
        list(x)
        x.unfold(0, x.shape[1], 1)
        x.diagonal(x.shape[0] - 6)
        x.as_strided((x.shape[1], x.shape[0]), (1, x.shape[1]))
        x.select(0, x.shape[0] - 1)
        al.cat([x, x.T.reshape(x.shape)])
        al.stack([x] * x.shape[1])
        al.cat([x, al.zeros(1, x.shape[1])])
        x.roll(x.shape[0], 0)
        x.flip(x.shape[1] - 3)
        x.new_zeros(x.shape[0])
        x.new_full((2, x.shape[1]), x.shape[0])
        x.new_tensor(x.shape)
        al.zeros_like(x) + x.shape[0]
        rows(x)
        blocks(x)
        padded(x)
        checked(x)
        """,
    "indices": """
        x[0]
        x[-1]
        x[x.shape[0] - 1]
        x[-x.shape[0]]
        x[: x.shape[0] // 2]
        x[x.shape[0] // 2 :]
        x[:: x.shape[1]]
        x[:, x.shape[1] // 2]
        x[..., : x.shape[1] - 1]
        x[None, : x.shape[0]]
        x[[0, x.shape[0] - 1]]
        x[al.arange(x.shape[0])]
        x[al.tensor([x.shape[0] - 1])]
        x[x.shape[0] > 3]
        x[(x.shape[0] // 2, 0)]
        x[slice(1, x.shape[0])]
        set_item(x)
        x.index_select(0, al.arange(x.shape[0] // 2))
        x.gather(1, al.zeros(x.shape[0], 1, dtype=al.int64))
        x.take(al.tensor([x.numel() - 1]))
        x.topk(x.shape[1] // 2 + 1)
        x.kthvalue(x.shape[1])
        x.cumsum(x.shape[1] - 3)
        x.sort(x.shape[1] - 3)
        x.tril(x.shape[0] - 6)
        x.triu(x.shape[0] // 2)
        x.select_scatter(al.ones(x.shape[1]), 0, x.shape[0] - 1)
        x.slice_scatter(al.ones(x.shape[0] // 2, x.shape[1]), 0, 0, x.shape[0] // 2)
        """,
    "new tensors": """
        al.zeros(x.shape)
        al.zeros(x.shape[0])
        al.zeros(*x.shape, 2)
        al.ones(size=x.shape)
        al.zeros([x.shape[0], 2])
        al.full((2,), x.shape[0])
        al.full((x.shape[0],), 1.5)
        al.full((2,), x.shape[0] > 3)
        al.full((2,), x.shape[0], dtype=al.float32)
        al.arange(x.shape[0])
        al.arange(0, x.shape[0], 2)
        al.arange(x.shape[0], 9)
        al.arange(x.shape[0], 0, -1)
        al.arange(0, 1, 1 / x.shape[0])
        al.linspace(0, 1, x.shape[0])
        al.linspace(0, x.shape[0], 3)
        al.eye(x.shape[0])
        al.eye(*x.shape)
        al.empty(x.shape).shape
        al.tensor(x.shape[0])
        al.tensor(x.shape)
        al.tensor([x.shape[0], 2.5])
        al.tensor([[x.shape[0], 1], [2, x.shape[1]]])
        al.tensor(x.shape[0], dtype=al.float64)
        al.tensor(x.shape[0] > 3)
        al.tensor(x.shape[0] / 2)
        al.as_tensor(x.shape[0])
        al.scalar_tensor(x.shape[0])
        al.tril_indices(*x.shape)
        al.randn(x.shape).shape
        al.rand(x.shape[0]).shape
        al.randint(0, x.shape[0] + 1, (2,)).shape
        al.randint(x.shape[0] + 1, x.shape).shape
        al.randperm(x.shape[0]).shape
        al.meshgrid(al.arange(x.shape[0]), al.arange(2))
        memoized(x)
        """,
    "layers": """
        F.pad(x, (0, x.shape[0]))
        F.pad(x, (1, 1), value=x.shape[0])
        F.layer_norm(x, (x.shape[1],))
        F.layer_norm(x, x.shape[1:])
        F.layer_norm(x, [x.shape[1]])
        F.softmax(x, x.shape[1] - 3)
        F.one_hot(al.arange(x.shape[0]), x.shape[0])
        F.linear(x, al.ones(2, x.shape[1]))
        F.embedding(al.arange(x.shape[0]), al.ones(x.shape[0], 2))
        F.interpolate(x[None], size=x.shape[0])
        F.interpolate(x[None, None], size=x.shape)
        F.interpolate(x[None], scale_factor=x.shape[1])
        F.avg_pool1d(x, x.shape[1])
        F.avg_pool2d(x[None], (x.shape[0], x.shape[1]))
        F.max_pool1d(x, x.shape[1])
        F.conv1d(x[None], al.ones(2, x.shape[0], 1))
        F.conv1d(x[:, None], al.ones(1, 1, 1), padding=x.shape[0])
        F.conv1d(x[None], al.ones(x.shape[0], 1, 1), groups=x.shape[0])
        F.unfold(x[None, None], x.shape[1])
        F.cross_entropy(x, al.zeros(x.shape[0], dtype=al.int64))
        F.mse_loss(x, al.zeros(x.shape))
        F.normalize(x, p=x.shape[1])
        F.gelu(x) * x.shape[0]
        F.glu(x, x.shape[1] - 3)
        F.adaptive_avg_pool1d(x, x.shape[0])
        F.adaptive_max_pool1d(x, x.shape[1] // 2 + 1)
        x.norm(p=x.shape[1])
        x.std(correction=x.shape[1] - 2)
        x.var(0, correction=x.shape[0] // 2)
        al.einsum("ij,kj->ik", x, x)
        al.tensordot(x, x.T, x.shape[1] - 2)
        al.matmul(x, al.ones(x.shape[1], x.shape[0]))
        al.linalg.matrix_power(x @ x.T, x.shape[1])
        nn.Flatten()(x)
        nn.LayerNorm(x.shape[1])(x).detach()
        nn.Linear(x.shape[1], 2)(x).shape
        nn.Embedding(x.shape[0] + 1, 2)(al.arange(x.shape[0])).shape
        gradient(x)
        attention(x)
        position_encoding(x)
        one_hot_of_argmax(x)
        layers(x)
        """,
}
CASES = [
    (group, line.strip())
    for group, lines in PROGRAMS.items()
    for line in lines.splitlines()
    if line.strip()
]


# -------------------------------------------------------------------------------------- the law
def compiled(text):
    """The function of `x` that a text is, as code of a user's module."""
    return eval(f"lambda x: {text}", {**globals(), "__name__": "a_users_module"})


def values(n, m):
    """A tensor of this shape."""
    found = al.zeros(n, m)
    return found.copy_(al.arange(n * m, dtype=al.float32).view(n, m) - 2.0)


class Ops:
    """The ops that a recorded graph calls, with its constants."""

    def __init__(self, constants):
        self.constant = lambda name, *described: constants[name]

    def __getattr__(self, name):
        return getattr(al.ops, name)


def leaves_of(result):
    """(tensors, the rest with None for each tensor)."""
    leaves, tree = optree.tree_flatten(result, none_is_leaf=True)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return tensors, optree.tree_unflatten(tree, rest)


def outcome(function, x):
    """("gives", tensors, the rest) or ("raises", class, None)."""
    try:
        return "gives", *leaves_of(function(x))
    except NameError:  # of the program, not of Python
        raise
    except Exception as error:
        return "raises", type(error), None


def symbolic(n, m):
    """A table of sizes that users see as ints, and a tensor of two of them."""
    table = SymbolTable()
    table.show_as_ints()
    shape = [table.symbol(n, lower=0), table.symbol(m, lower=0)]
    return table, Tensor(values(n, m).storage, tensor_meta(shape))


def traced(function, n, m):
    """(outcome for symbols, log): of tensors, a function of sizes and `x` that gives them."""
    table, x = symbolic(n, m)
    kept = []

    def call(leaves):
        tensors, rest = leaves_of(function(*leaves))
        kept.append(rest)
        return tensors

    try:
        captured = capture(function, call, [x], [(0, x)], lambda flat: (flat, None))
    except NameError:
        raise
    except Exception as error:
        return ("raises", type(error), None), tuple(table.log), error
    code = captured.graph.code
    constants = captured.graph.constants

    def replayed(x, **names):
        ops = Ops({key: al.tensor(array) for key, array in constants.items()})
        scope = {"ops": ops, "max": max, "min": min, **names}
        exec(code, scope)
        return list(scope[captured.graph.name](x))

    return ("gives", replayed, kept[0]), tuple(table.log), code


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.thinned(10)
@pytest.mark.parametrize(("group", "text"), CASES, ids=[f"{g}-{t}" for g, t in CASES])
def test_function_of_symbolic_sizes_gives_what_eager_gives(group, text):
    """At the hints, and wherever the log holds: the same tensors and numbers, or the same error."""
    function = compiled(text)
    for hints in HINTS:
        (what, tensors, rest), log, more = traced(function, *hints)
        for n, m in (hints, *OTHERS):
            sizes = {"s0": n, "s1": m}
            if not all(assumption.holds(sizes) for assumption in log):
                assert (n, m) != hints
                continue
            wanted, expected, beside = outcome(function, values(n, m))
            if wanted == "raises" and what == "gives":  # for the values
                with pytest.raises(expected):
                    tensors(values(n, m), **sizes)
                continue
            assert wanted == what, (hints, (n, m), log, more, expected)
            if what == "raises":
                assert expected is tensors
                continue
            assert form(beside) == form(at(rest, sizes)), (hints, (n, m), log)
            found = tensors(values(n, m), **sizes)
            assert [t.meta for t in expected] == [t.meta for t in found], (hints, n, m, log, more)
            for a, b in zip(expected, found, strict=True):
                np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


UNUSUAL = ("{x.shape, x.T.shape, (6, 3)}", "np.prod(x.shape)")
"""Programs whose results a compiled function refuses: a set, a number of NumPy."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.thinned(10)
@pytest.mark.parametrize("text", [text for _, text in CASES if text not in UNUSUAL])
def test_compiled_function_gives_what_eager_gives_at_each_size(text):
    """One compiled function, called with one size after the other."""
    function = compiled(text)
    many = al.compile(function, dynamic=True, backend="reference")
    for shape in ((6, 3), (4, 3), (2, 2), (6, 3), (1, 4), (0, 3)):
        wanted, expected, beside = outcome(function, values(*shape))
        what, found, rest = outcome(many, values(*shape))
        assert (wanted, form(beside)) == (what, form(rest)), (shape, found)
        if what == "raises":
            assert expected is found
            continue
        assert [t.meta for t in expected] == [t.meta for t in found], shape
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


# ---------------------------------------------------------------------- what the function stores
class Record:
    __slots__ = ("rows",)


class Plain:
    """An object with a `__dict__`."""


def made_storing():
    """A function that stores sizes in all places that it names, and a function that looks there."""
    record, plain, seen, shapes, count = Record(), Plain(), [], {}, 0

    def store(x):
        nonlocal count
        global STORED
        STORED = count = x.shape[0]
        record.rows = x.shape[0] * 2
        plain.sizes = {"both": [x.shape[1]]}
        seen.append(x.numel())
        shapes["x"] = x.shape
        return x * 2

    def look():
        return STORED, count, record.rows, plain.sizes, seen, shapes

    return store, look


def test_size_that_is_stored_is_a_number_afterwards():
    """Writes to Python objects happen once, in the call that is traced: with its numbers."""
    store, look = made_storing()
    table, x = symbolic(6, 3)
    capture(store, lambda leaves: [store(*leaves)], [x], [(0, x)], lambda flat: (flat, None))
    assert not any(assumption.specializes for assumption in table.log)
    assert form((6, 6, 12, {"both": [3]}, [18], {"x": (6, 3)})) == form(look())


def test_error_of_the_function_has_numbers_and_leaves_numbers():
    seen = []

    def refusing(x):
        seen.append(x.shape[0])
        raise KeyError(x.shape[1], x.shape)

    with pytest.raises(KeyError) as raised:
        al.compile(refusing, dynamic=True)(values(6, 3))
    assert form((3, (6, 3))) == form(raised.value.args)
    assert form([6]) == form(seen)


@functools.lru_cache
def rounded_up(size, multiple):
    """A size, as a whole number of blocks."""
    return [-(-size // multiple) * multiple]


@functools.cache
def doubled(size):
    """Twice a size."""
    return size * 2


def test_cache_of_a_function_of_sizes_has_no_symbols_afterwards():
    """It serves eager calls, and captures with other symbols, too."""

    def program(x):
        return x.reshape(x.shape[0], -1)[:, : rounded_up(x.shape[1], 2)[0] + doubled(3)]

    doubled.cache_clear()
    rounded_up.cache_clear()
    for _ in range(2):
        _, x = symbolic(6, 3)
        capture(program, lambda leaves: [program(*leaves)], [x], [(0, x)], lambda r: (r, None))
        assert form([4]) == form(rounded_up(3, 2))
    assert doubled.cache_info().currsize == 1  # a cache without symbols is left alone


def test_stored_size_that_is_read_is_refused_as_a_number_is():
    """CAP-14: unless it is the number that is there already."""
    state = {"rows": 0}

    def store(x):
        state["rows"] = x.shape[0]
        return x * state["rows"]

    def captured():
        table, x = symbolic(6, 3)
        capture(store, lambda leaves: [store(*leaves)], [x], [(0, x)], lambda flat: (flat, None))
        assert not any(assumption.specializes for assumption in table.log)

    with pytest.raises(UnsupportedError, match=r"a read of state\['rows'\].* from 0 to 6"):
        captured()
    assert {"rows": 0} == state
    state["rows"] = 6
    captured()
    assert form({"rows": 6}) == form(state)
