"""Names of PyTorch that do not exist here say what takes their place."""

from __future__ import annotations

import pytest

import aotlite as al


@pytest.mark.rules("TEN-6")
@pytest.mark.parametrize("name", ["complex32", "chalf"])
def test_a_complex_dtype_of_16_bit_parts_says_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}': there is no complex .* use complex64"):
        getattr(al, name)
    assert not hasattr(al, name)


@pytest.mark.rules("TEN-6")
def test_parts_of_16_bits_are_refused_or_become_complex64() -> None:
    x = al.ones(2, 2).half()
    with pytest.raises(al.DTypeError, match="view_as_complex: dtype is float16, expected float32"):
        al.view_as_complex(x)
    with pytest.raises(al.DTypeError, match="complex: real has dtype float16, expected float32"):
        al.complex(x, x)
    with pytest.raises(al.DTypeError, match="finfo: dtype is complex32"):
        al.finfo("complex32")  # type: ignore[arg-type]
    assert (x * 1j).dtype is al.complex64
    assert al.view_as_complex(x.float()).dtype is al.complex64
