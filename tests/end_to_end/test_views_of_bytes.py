"""Compiled equals eager for views in another dtype: complex numbers as pairs, bits as integers."""

import numpy as np
import pytest

import aotlite as al


def complex_numbers(count, *, requires_grad):
    host = np.arange(count) + 1j * np.arange(count)[::-1]
    return al.tensor(host).requires_grad_() if requires_grad else al.tensor(host)


def reals(count, *, requires_grad):
    x = al.arange(count).to(al.float64)
    return x.requires_grad_() if requires_grad else x


def writes_parts(z):
    w = z * 1
    w.real.mul_(2)
    w.imag.add_(w.real)
    return w


def writes_through_a_slice(z):
    w = z * 1
    al.view_as_real(w[1:])[:, 0].mul_(3)
    return w, w.real


def pairs_up(x):
    y = x * 1
    pairs = al.view_as_complex(y[1:5].clone().view(2, 2))
    pairs.mul_(2j)
    return pairs, pairs.imag


def pairs_of_a_window(x):
    y = x * 2
    al.view_as_complex(y[2:6].view(2, 2)).mul_(1 + 1j)
    return y


def writes_pairs_of_an_odd_slice(x):
    """In eager the slice starts at an even place; in the graph it may not."""
    y = x[1:] * 1
    z = al.view_as_complex(y.view(-1, 2))
    z.mul_(3)
    return y.view(-1, 2).t(), z


def returns_views(z):
    return z.real, al.view_as_real(z), z.view(al.float64), z.imag[1:]


def second_part(z):
    return (z.imag * z.real).sum()


@pytest.mark.rules("FUN-8")
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    ("function", "make"),
    [
        (writes_parts, complex_numbers),
        (writes_through_a_slice, complex_numbers),
        (pairs_up, reals),
        (pairs_of_a_window, reals),
        (writes_pairs_of_an_odd_slice, reals),
        (returns_views, complex_numbers),
        (second_part, complex_numbers),
    ],
)
def test_compiled_equals_eager(function, make, requires_grad):
    count = 7 if make is reals else 4
    results = []
    for run in (function, al.compile(function)):
        x = make(count, requires_grad=requires_grad)
        out = run(x)
        outs = out if isinstance(out, tuple) else (out,)
        for one in outs:
            if one.requires_grad:
                (one * one.conj() if one.is_complex() else one * one).sum().abs().backward(
                    retain_graph=True
                )
        shared = [
            (one.storage is other.storage, one.storage_offset(), one.stride())
            for one in (*outs, x)
            for other in (*outs, x)
        ]
        gradient = None if x.grad is None else x.grad.tolist()
        facts = [(o.tolist(), o.requires_grad, o.dtype, o.base is None) for o in outs]
        results.append((facts, shared, gradient, x.tolist(), x.version))
    assert results[0] == results[1]


def writes_input(z):
    z.real.mul_(2)
    z.view(al.int64)[0] = 0
    return z * 1j


def writes_pairs(x):
    al.view_as_complex(x.view(-1, 2)).mul_(1j)


@pytest.mark.rules("FUN-8", "FUN-17")
@pytest.mark.parametrize("start", [0, 2])
def test_inputs_are_written_through_views_of_their_bytes(start):
    for function, whole in (
        (writes_input, complex_numbers(6, requires_grad=False)),
        (writes_pairs, reals(8, requires_grad=False)),
    ):
        compiled = al.compile(function)
        images = []
        for run in (function, compiled, compiled, compiled):
            x = whole.clone()
            run(x[start : start + 4])
            images.append((x.tolist(), x.version))
        assert images == [images[0]] * 4


@pytest.mark.rules("GRD-1")
def test_another_offset_is_guarded_where_it_decides():
    """Pairs start at even places: an odd one is refused, compiled as in eager (TEN-6)."""
    x = reals(8, requires_grad=False)
    compiled = al.compile(writes_pairs)
    compiled(x[2:6])
    with pytest.raises(al.ShapeError, match="view_as_complex: the storage offset is 1"):
        compiled(x[1:5])
    assert [0.0, 1.0, -3.0, 2.0, -5.0, 4.0, 6.0, 7.0] == x.tolist()


def test_a_window_of_bytes_seen_otherwise_is_refused_while_captured():
    with pytest.raises(al.UnsupportedError, match="as_strided on a view of complex128 as float64"):
        al.compile(lambda z: al.view_as_real(z).as_strided((2,), (1,)) * 1)(
            complex_numbers(4, requires_grad=False)
        )
