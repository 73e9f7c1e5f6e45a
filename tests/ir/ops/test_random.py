"""The generator is Philox 4x32-10, its stream does not depend on shapes, and draws use it up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.ops.random.philox import philox, words

ONES = 0xFFFFFFFF


# From the file `kat_vectors` of Random123 1.14, lines `philox 4x32 10`.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    lanes = philox(tuple(np.array([word], np.uint64) for word in counter), key)
    assert expected == tuple(int(lane[0]) for lane in lanes)


def reference(seed, position):
    """One word of the stream in Python's integers."""
    block = (position // 4) % (1 << 64)
    c = [block & ONES, block >> 32, 0, 0]
    k = [seed & ONES, (seed >> 32) & ONES]
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [second >> 32 ^ c[1] ^ k[0], second & ONES, first >> 32 ^ c[3] ^ k[1], first & ONES]
        k = [(k[0] + 0x9E3779B9) & ONES, (k[1] + 0xBB67AE85) & ONES]
    return c[position % 4]


@given(seed=st.integers(0, (1 << 64) - 1), block=st.integers(0, (1 << 62) - 4))
def test_words_follow_the_definition(seed, block):
    """Blocks from 2**32 on too, where the counter's second word comes in."""
    found = words(np, seed, 4 * block, 9)
    assert [reference(seed, 4 * block + i) for i in range(9)] == found.tolist()


@given(seed=st.integers(0, (1 << 64) - 1), block=st.integers(0, 1 << 40), n=st.integers(0, 9))
def test_numbers_are_made_of_words(seed, block, n):
    stream = [reference(seed, 4 * block + i) for i in range(2 * n)]
    single = call("uniform", seed, 4 * block, 0, (n,))
    assert [(word >> 8) * 2.0**-24 for word in stream[:n]] == single.tolist()
    double = call("uniform", seed, 4 * block, 0, (n,), dtype=al.float64)
    pairs = [(stream[2 * i], stream[2 * i + 1]) for i in range(n)]
    assert [((a >> 5) * (1 << 26) + (b >> 6)) * 2.0**-53 for a, b in pairs] == double.tolist()


@pytest.mark.parametrize("dtype", [al.float16, al.bfloat16, al.float32, al.float64])
def test_numbers_lie_in_the_unit_interval_and_are_spread_over_it(dtype):
    """The mean of n uniform numbers is off by 0.29 / sqrt(n): 0.01 is more than five of that."""
    found = call("uniform", 7, 0, 0, (40_000,), dtype=dtype).array.astype("f8")
    assert found.min() >= 0.0
    assert found.max() < 1.0
    assert math.isclose(0.5, found.mean(), abs_tol=0.01)
    assert math.isclose(1 / 12, found.var(), abs_tol=0.01)


@given(shape=st.lists(st.integers(0, 4), max_size=4).map(tuple))
def test_values_depend_on_the_row_major_position_alone(shape):
    flat = call("uniform", 3, 8, 0, (math.prod(shape),))
    assert flat.view(shape).tolist() == call("uniform", 3, 8, 0, shape).tolist()


@given(first=st.integers(0, 9), second=st.integers(0, 9))
def test_two_draws_are_one_stream_without_overlap(first, second):
    al.manual_seed(5)
    a, b = al.rand(first), al.rand(second)
    start = OPS["rand"].consumes(a.meta)
    whole = call("uniform", 5, 0, 0, (start + second,)).tolist()
    assert whole[:first] == a.tolist()
    assert whole[start:] == b.tolist()
    assert (5, start + OPS["rand"].consumes(b.meta)) == al.get_rng_state()


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [((), "f32", 4), ((0,), "f32", 0), ((4,), "f32", 4), ((5,), "f32", 8), ((5,), "f64", 16)],
)
def test_a_draw_uses_up_whole_blocks(shape, dtype, expected):
    dtype = {"f32": al.float32, "f64": al.float64}[dtype]
    assert expected == OPS["rand"].consumes(tensor_meta(shape, None, dtype))


def test_the_seed_and_the_offset_may_be_tensors():
    """As they are in a compiled graph; `advance` is what earlier draws of the graph used up."""
    seed, offset = al.tensor(11), al.tensor(4)
    assert (
        call("uniform", 11, 12, 0, (3,)).tolist() == call("uniform", seed, offset, 8, (3,)).tolist()
    )


def test_a_negative_seed_is_its_64_bits():
    """A uint64 seed that travels as an int64 tensor."""
    assert words(np, -1, 0, 4).tolist() == words(np, (1 << 64) - 1, 0, 4).tolist()


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda: call("uniform", 0, 2, 0, (3,)),
            ArgumentError,
            "uniform: the offset is 2, expected a multiple of 4",
        ),
        (
            lambda: call("rand", (3,), dtype=al.int64),
            DTypeError,
            "rand: dtype is int64, expected a floating one of 16 bits or more",
        ),
        (
            lambda: call("rand", (3, -1)),
            ShapeError,
            "rand: size is (3, -1), expected no negative number",
        ),
    ],
)
def test_bad_arguments_say_what_is_expected(function, error, message):
    with pytest.raises(error) as caught:
        function()
    assert str(caught.value) == message
