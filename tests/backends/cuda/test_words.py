"""Integers of 64 bits that fit in 32, as random bits do."""

from __future__ import annotations

import random

import aotlite as al
from aotlite.backends.c_family.integer_bounds import IntegerBounds
from aotlite.backends.cuda.emit.cuda_program import print_program
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.program import Kernel, LoopProgram
from aotlite.ir.dtypes import float32, uint32, uint64
from aotlite.ir.scalar.expression import Affine, Scalar, cast, const, load, make

BINARY = {
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "shr": lambda a, b: a >> b if b < 64 else 0,
}


def drawn(draw: random.Random, depth: int) -> tuple[Scalar, int]:
    """An expression of uint64, and its value for a word and a wide number in memory."""
    kind = draw.random()
    if depth == 0 or kind < 0.15:
        number = draw.choice((0, 1, 7, 32, 40, (1 << 32) - 1, 1 << 32, (1 << 64) - 1))
        return const(number, uint64), number
    if kind < 0.3:
        return load(0, Affine((1,)), uint64), 0xFEDCBA9876543210
    if kind < 0.4:
        return cast(load(1, Affine((1,)), uint32), uint64), 0xFFFFFFFE
    op = draw.choice(sorted(BINARY))
    (first, a), (second, b) = drawn(draw, depth - 1), drawn(draw, depth - 1)
    return make(op, first, second), BINARY[op](a, b) % (1 << 64)


def test_what_is_said_to_be_a_word_is_one() -> None:
    found = []
    for seed in range(3000):
        scalar, value = drawn(random.Random(seed), 4)
        fits = IntegerBounds().fits(scalar)
        assert value < 1 << 32 or not fits, scalar
        found.append(fits and scalar.op != "const")
    assert 200 < sum(found)


def test_products_of_words_and_conversions_have_texts_of_their_own() -> None:
    wide, word = load(0, Affine((1,)), uint64), load(0, Affine((1,)), uint64) & 0xFFFFFFFF
    texts = ["a", "b"]
    assert "wide_product((u32)a, (u32)b)" == IntegerBounds().text(make("mul", word, 5), texts)
    assert "(f32)(u32)a" == IntegerBounds().text(cast(word, float32), texts)
    assert [None] * 3 == [
        IntegerBounds().text(each, texts)
        for each in (make("mul", word, wide), cast(wide, float32), make("add", word, 5))
    ]


def test_a_block_of_random_words_takes_two_products_a_round_and_is_stored_at_once() -> None:
    """Ten rounds of two."""
    compiled = al.compile(lambda x: al.rand_like(x) * x)
    compiled(al.zeros((64, 64)))
    assert compiled.forward_graph is not None
    program = program_of(compiled.forward_graph)
    step = next(x for x in program.steps if type(x) is Kernel and x.extents == (1024,))
    text = print_program(LoopProgram("drawn", program.buffers, (step,), (), ())).text
    body = text[text.rindex("__global__") :]
    assert body.count(" * (u64)") == 0
    assert 20 == body.count("wide_product(")
    assert "many<m_f32, 4>" in body and 1 == body.count("put(")
