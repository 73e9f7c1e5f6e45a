"""Casts between all dtypes are PyTorch's, value by value, where PyTorch's are defined."""

import itertools

import numpy as np
import pytest

import aotlite as al
from aotlite.ir import dtypes
from aotlite.ir.dtypes import BOOL, COMPLEX, DTYPES, FLOATING

# From a float to an integer only what the integer holds has a value: C leaves the rest open.
WHOLE = [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 2.5, -1.75, 3.0, 100.0, 126.9]
REAL = [
    *WHOLE,
    -1.0,
    1 / 3,
    2**-10,
    1e-7,
    2**-149,
    240.0,
    448.0,
    464.0,
    465.0,
    480.0,
    57344.0,
    61440.0,
    65504.0,
    65519.9,
    65520.0,
    7e4,
    1e10,
    3.4e38,
    3.5e38,
    1e300,
    np.inf,
    -np.inf,
    np.nan,
]
INTEGERS = [
    0,
    1,
    -1,
    2,
    7,
    127,
    128,
    255,
    256,
    -128,
    -129,
    32767,
    65536,
    16777217,
    2**31,
    2**53 + 1,
]


def values_of(source, target):
    if source.kind == BOOL:
        return [False, True]
    if source.kind < FLOATING:
        limits = al.iinfo(source)
        return [n for n in INTEGERS if limits.min <= n <= limits.max]
    values = WHOLE if BOOL < target.kind < FLOATING else REAL
    if source.itemsize == 1:  # every one of its values
        every = np.arange(256, dtype=np.uint8).view(source.numpy).astype(np.float64)
        values = every if values is REAL else every[np.isfinite(every) & (abs(every) < 127)]
    if source.kind == COMPLEX:
        return [complex(v, w) for v, w in itertools.product(values, (0.0, -1.5))]
    if values is WHOLE and not target.is_signed:
        return [v for v in values if v > -1]
    return list(values)


def torch_from(torch, array, dtype):
    bits = torch.from_numpy(array.view(np.uint8).copy())
    return bits.view(getattr(torch, dtype.name))


@pytest.mark.torch
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_casts_equal_torch(torch, source):
    for target in DTYPES:
        with np.errstate(all="ignore"):
            host = np.array(values_of(source, target)).astype(source.numpy)
        if BOOL < target.kind < FLOATING and not target.is_signed and source.kind >= FLOATING:
            host = host[host.astype(np.complex128).real > -1]
        theirs = torch_from(torch, host, source).to(getattr(torch, target.name))
        ours = al.tensor(host).to(target)
        expected = theirs.view(torch.uint8).numpy().view(target.numpy)
        assert ours.dtype is target
        _check(source, target, host, expected, ours.array)


def _check(source, target, host, expected, got):
    wide = np.complex128 if target.kind >= FLOATING else None
    a, b = [np.asarray(v if wide is None else v.astype(wide)) for v in (expected, got)]
    same = (a == b) | (np.isnan(a) & np.isnan(b) if wide else False)
    signs = np.signbit(a.real) == np.signbit(b.real) if wide else True
    wrong = ~(same & (signs | np.isnan(a) if wide else True))
    assert not wrong.any(), (
        f"{source} to {target}: {host[wrong]} give {got[wrong]}, PyTorch has {expected[wrong]}"
    )


def test_every_pair_of_dtypes_is_cast():
    """Through the op: `to` gives a tensor of the same dtype back as it is."""
    for source, target in itertools.product(DTYPES, repeat=2):
        made = al.tensor(np.array([0, 1]).astype(source.numpy)).to(target, copy=True)
        assert (target, [0, 1]) == (made.dtype, [int(abs(v)) for v in made.tolist()])


def test_float8_without_infinity_saturates_however_it_is_written():
    """e4m3fn has none; e5m2 has one."""
    x = al.tensor([448.0, 465.0, -np.inf, 57344.0, 61441.0])
    largest = [448.0, 448.0, -448.0, 448.0, 448.0]
    narrow = dtypes.float8_e4m3fn
    assert largest == x.to(narrow).tolist() == al.zeros(5, dtype=narrow).copy_(x).tolist()
    assert largest == al.tensor(x.tolist(), dtype=narrow).tolist()
    assert largest == al.compile(lambda x: x.to(narrow))(x).tolist()
    assert [448.0, 448.0, -np.inf, 57344.0, np.inf] == x.to(dtypes.float8_e5m2).tolist()


REALS = [dtype for dtype in DTYPES if dtype.kind not in (BOOL, COMPLEX)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("target", REALS, ids=str)
def test_complex_numbers_lose_their_imaginary_part_quietly(target):
    """NumPy would warn. Cast, copied and assigned, in eager and in graphs."""
    z = al.tensor([1 + 2j, 3 - 1j])

    def assigned(z, into):
        into[:] = z
        return into

    for function in (lambda z, into: z.to(target), lambda z, into: into.copy_(z), assigned):
        for run in (function, al.compile(function)):
            assert [1, 3] == run(z, al.zeros(2, dtype=target)).tolist()


def test_what_float8_cannot_hold_is_its_largest_in_graphs_too():
    """float8_e4m3fn has no infinity; a copy in a graph is a cast like others."""
    source, into = al.tensor([1e6, -1e6]), al.zeros(2, dtype=al.float8_e4m3fn)
    for run in (lambda a, b: a.copy_(b), al.compile(lambda a, b: a.copy_(b))):
        assert [448.0, -448.0] == run(into.clone(), source).to(al.float32).tolist()
