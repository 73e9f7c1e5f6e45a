"""Python's types where a dtype is taken: `dtype=float`, `.to(int)`, eager and compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.eager.creation.from_data import call
from aotlite.ir.dtypes import DType
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from tests.samples import samples_of

TYPES = {al.bool: bool, al.int64: int, al.float64: float, al.complex128: complex}


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Dtype and values of the result, or the class and text of the error."""
    al.manual_seed(1)
    try:
        found = function(*args, **kwargs)
    except al.AotliteError as error:
        return type(error), str(error)
    return (found.dtype, repr(found.tolist())) if isinstance(found, al.Tensor) else repr(found)


def tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return al.from_numpy(value.copy())
    return tuple(map(tensors, value)) if isinstance(value, tuple) else value


def with_types(value: Any) -> Any:
    return TYPES.get(value, value) if isinstance(value, DType) else value


def pairs() -> Iterator[tuple[str, Callable[..., Any], Any, Any]]:
    """Each op and composite that takes a dtype, with each sample that gives one of these."""
    every: dict[str, Any] = {**OPS, **COMPOSITES}
    for name, made in every.items():
        schema = made.schema
        if schema is not None and not any("dtype" in str(p.type) for p in schema.parameters):
            continue
        face = COMPOSITES[name] if name in COMPOSITES else call
        for sample in samples_of(name):
            values = (*sample.args, *sample.kwargs.values())
            if any(isinstance(each, DType) and each in TYPES for each in values):
                yield name, face, sample.args, sample.kwargs


def test_python_types_are_dtypes_in_every_op_and_composite_that_takes_one() -> None:
    names, count = set(), 0
    for name, face, args, kwargs in pairs():
        words = (name,) if face is call else ()
        expected = outcome(face, *words, *map(tensors, args), **kwargs)
        typed = {key: with_types(value) for key, value in kwargs.items()}
        given = [with_types(each) for each in map(tensors, args)]
        assert expected == outcome(face, *words, *given, **typed), name
        names.add(name)
        count += 1
    assert count > 150 and len(names) > 15, (count, names)


FACTORY_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "arange": (3,), "as_tensor": ([1, 0],), "asarray": ([1, 0],), "empty": (2,),
    "empty_strided": ((2,), (1,)), "eye": (2,), "full": ((2,), 1), "linspace": (0, 1, 3),
    "logspace": (0, 1, 3), "normal": (0.0, 1.0, (2,)), "ones": (2,), "rand": (2,),
    "randint": (0, 2, (2,)), "randn": (2,), "randperm": (3,), "scalar_tensor": (1,),
    "tensor": ([1, 0],), "zeros": (2,), "tril_indices": (2, 2), "triu_indices": (2, 2),
    "finfo": (), "iinfo": (),
}  # fmt: skip
ON_TENSORS = {
    "cumprod": (0,), "cumsum": (0,), "linalg_vector_norm": (), "log_softmax": (0,), "mean": (),
    "nanmean": (), "nansum": (), "prod": (), "softmax": (0,), "sum": (), "empty_like": (),
    "full_like": (2,), "ones_like": (), "zeros_like": (), "rand_like": (), "randn_like": (),
    "randint_like": (2,), "new_empty": ((2,),), "new_empty_strided": ((2,), (1,)),
    "new_full": ((2,), 1), "new_ones": ((2,),), "new_zeros": ((2,),),
}  # fmt: skip
PLAIN = ("cast", "view_dtype", "view_dtype_copy", "cumsum_", "cumprod_")
"""Functions of ops, which the law above runs; so are those that say where they draw."""
DRAWING = ("arange_of", "random_integers", "random_permutation", "standard_normal", "uniform")


def takes_dtype(function: Any) -> bool:
    try:
        return "dtype" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def test_the_tables_have_every_function_with_a_dtype() -> None:
    found = {n for n in dir(al) if not n.startswith("_") and takes_dtype(getattr(al, n))}
    assert {*FACTORY_ARGUMENTS, *ON_TENSORS, *PLAIN, *DRAWING} == found


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", [*FACTORY_ARGUMENTS, *ON_TENSORS])
def test_functions_take_python_types_for_dtypes(name: str, dtype: DType) -> None:
    args = FACTORY_ARGUMENTS.get(name)
    if args is None:
        args = (al.tensor([1.0, 0.5]), *ON_TENSORS[name])
    expected = outcome(getattr(al, name), *args, dtype=dtype)
    assert expected == outcome(getattr(al, name), *args, dtype=TYPES[dtype])


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "to": lambda x, d: x.to(d),
    "to by name": lambda x, d: x.to(dtype=d),
    "to a device": lambda x, d: x.to("cpu", d),
    "to, copied": lambda x, d: x.to(d, copy=True),
    "view": lambda x, d: x.view(d),
    "view by name": lambda x, d: x.view(dtype=d),
    "new_tensor": lambda x, d: x.new_tensor([1, 0], dtype=d),
    "sum": lambda x, d: x.sum(dtype=d),
    "zeros": lambda x, d: x + al.zeros(2, dtype=d),
    "full with out": lambda x, d: al.full((2,), 1, dtype=d, out=al.empty(2, dtype=d)),
    "tensor of a tensor": lambda x, d: al.tensor(x.detach(), dtype=d),
    "softmax of nn": lambda x, d: nn.functional.softmax(x, 0, dtype=d),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_python_types_are_dtypes_in_compiled_functions(way: str, dtype: DType) -> None:
    """A graph says the dtype, whatever it was given as."""
    x = al.tensor([1.5, 0.0], dtype=al.float64)
    run = WAYS[way]
    expected = outcome(run, x, dtype)
    assert expected == outcome(run, x, TYPES[dtype])
    compiled = al.compile(lambda x: run(x, TYPES[dtype]), backend="reference")
    assert expected == outcome(compiled, x)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_questions_and_modules_take_python_types(dtype: DType) -> None:
    typed = TYPES[dtype]
    for other in (al.int8, al.float16):
        assert al.promote_types(dtype, other) is al.promote_types(typed, other)
        assert al.can_cast(dtype, other) is al.can_cast(typed, other)
        assert al.can_cast(other, dtype) is al.can_cast(other, typed)
    move: Callable[[Any], Any] = lambda d: nn.Linear(1, 1).to(d).weight
    made: Callable[[Any], Any] = lambda d: nn.Linear(1, 1, dtype=d).weight
    for way in (move, made):
        assert outcome(way, dtype)[0] == outcome(way, typed)[0]


@pytest.mark.parametrize("other", [str, list, np.float64, "float"], ids=repr)
def test_other_types_are_no_dtypes(other: Any) -> None:
    with pytest.raises(al.ArgumentError, match="dtype"):
        al.zeros(2, dtype=other)
    with pytest.raises(al.ArgumentError, match="^tensor: argument 'dtype' is .*, expected a dtype"):
        al.tensor([1], dtype=other)
    with pytest.raises(al.ArgumentError, match="^can_cast: a dtype is .*, expected a dtype$"):
        al.can_cast(other, al.int8)


ELSEWHERE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "to": lambda lib, x, d: x.to(d),
    "to a device": lambda lib, x, d: x.to("cpu", dtype=d),
    "view": lambda lib, x, d: x.view(d),
    "new_zeros": lambda lib, x, d: x.new_zeros(2, dtype=d),
    "sum": lambda lib, x, d: x.sum(dtype=d),
    "zeros": lambda lib, x, d: lib.zeros(2, dtype=d),
    "tensor": lambda lib, x, d: lib.tensor([1, 0], dtype=d),
    "zeros_like": lambda lib, x, d: lib.zeros_like(x, dtype=d),
    "eye": lambda lib, x, d: lib.eye(2, dtype=d),
    "promoted": lambda lib, x, d: lib.zeros(1, dtype=lib.promote_types(d, lib.int8)),
}


@pytest.mark.torch
@pytest.mark.parametrize("way", ELSEWHERE)
@pytest.mark.parametrize("typed", TYPES.values(), ids=lambda each: each.__name__)
def test_dtypes_of_python_types_are_pytorchs(way: str, typed: type, torch: Any) -> None:
    mine, its = (ELSEWHERE[way](lib, lib.zeros(4, dtype=lib.float64), typed) for lib in (al, torch))
    assert str(its.dtype) == f"torch.{mine.dtype}"
