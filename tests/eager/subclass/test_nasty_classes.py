"""Wrapper classes whose methods give nonsense: class and rule are named, eager and compiled.

Each method gives each kind of nonsense, under programs that compute, write and view. What the
caller holds is as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import ProtocolError, SubclassError
from aotlite.subclasses import TwoTensor
from tests.stages.wrappers.helpers.classes import One, Tagged, opened

make: Any = al.Tensor._make_wrapper_subclass

PROGRAMS: dict[str, Any] = {
    "computes": lambda x: x * 2,
    "writes": lambda x: x.add_(1),
    "views": lambda x: x.view(2, 1),
    "splits": lambda x: x.split(1),
    "reduces": lambda x: x.sum(),
    "two results": lambda x: x.max(0),
    "list": lambda x: al.cat([x, al.ones(2)]),
    "finds": lambda x: x.nonzero(),
}

FLATS: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "an empty tuple": (),
    "one item": (["inner"],),
    "three items": (["inner"], None, None),
    "a list": [["inner"], None],
    "no names": ([], None),
    "a name twice": (["inner", "inner"], None),
    "numbers": ([3], None),
    "bytes": ([b"inner"], None),
    "a name of nothing": (["nothing"], None),
    "words": (["in ner"], None),
    "a keyword": (["class"], None),
    "a path": (["inner.inner"], None),
    "a dict": ({"inner": 1}, None),
    "a set": ({"inner"}, None),
    "a string": ("inner", None),
    "a method": (["sum"], None),
    "its geometry": (["meta"], None),
    "a view of itself": (["T"], None),
    "itself": (["itself"], None),
    "a string of another class": ([type("S", (str,), {})("inner")], None),
}

UNFLATS: dict[str, Any] = {
    "nothing": lambda cls, inner, *rest: None,
    "a number": lambda cls, inner, *rest: 3,
    "a tuple": lambda cls, inner, *rest: (cls(inner["inner"]),),
    "the part": lambda cls, inner, *rest: inner["inner"],
    "another class": lambda cls, inner, *rest: TwoTensor(inner["inner"], inner["inner"]),
    "its base": lambda cls, inner, *rest: Tagged(inner["inner"]),
    "a copy's": lambda cls, inner, *rest: cls(inner["inner"].clone()),
    "another spec": lambda cls, inner, *rest: cls(inner["inner"], "x"),
    "another size": lambda cls, inner, *rest: cls(inner["inner"].view(1, 2)),
    "another dtype": lambda cls, inner, *rest: cls(inner["inner"].long()),
    "a write": lambda cls, inner, *rest: cls(inner["inner"].add_(1)),
    "no parts": lambda cls, inner, spec, size, stride: make(cls, size, stride),
    "no geometry": lambda cls, inner, *rest: object.__new__(cls),
}

GIVEN: dict[str, Any] = {
    "NotImplemented": lambda *call: NotImplemented,
    "nothing": lambda *call: None,
    "a number": lambda *call: 3,
    "an array": lambda *call: np.ones(2),
    "a class": lambda cls, *call: cls,
    "a list": lambda *call: [al.ones(2)],
    "three": lambda *call: (al.ones(2),) * 3,
    "no tensors": lambda *call: (None, None),
    "a generator": lambda *call: (each for each in [al.ones(2)]),
    "another shape": lambda *call: al.ones(7, 7, 7),
    "another dtype": lambda *call: al.ones(2, dtype=al.float64),
    "no parts": lambda cls, *call: make(cls, (2,)),
    "no geometry": lambda cls, *call: object.__new__(cls),
    "its own call": lambda cls, func, types, args, kwargs: func(*args, **kwargs),
    "its class's call": lambda cls, func, types, args, kwargs: func(
        *[cls(each.inner) if isinstance(each, One) else each for each in args], **kwargs
    ),
}


def fails(kind: Any, x: Any, program: Any, *, compiled: bool) -> None:
    """The error names the class and a rule, and nothing has happened to the argument."""
    inner = x.inner
    before = x.version, inner.version, inner.tolist()
    with pytest.raises(SubclassError, match=kind.__name__) as caught:
        (al.compile(program, backend="reference") if compiled else program)(x)
    assert "(SUB-" in "".join(caught.value.__notes__)
    assert (x.version, inner.version, inner.tolist()) == before
    assert x.inner is inner
    assert al.is_grad_enabled()


def class_with(**methods: Any) -> Any:
    return type("Nasty", (Tagged,), methods)


@pytest.mark.rules("SUB-1")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("program", ["writes", "views"])
@pytest.mark.parametrize("flat", FLATS.values(), ids=FLATS)
def test_a_flatten_that_gives_nonsense(flat: Any, program: str, *, compiled: bool) -> None:
    kind = class_with(__tensor_flatten__=lambda self: flat)
    x = kind(al.ones(2))
    x.itself = x
    fails(kind, x, PROGRAMS[program], compiled=compiled)


@pytest.mark.rules("SUB-1")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("made", UNFLATS.values(), ids=UNFLATS)
def test_an_unflatten_that_gives_nonsense(made: Any, program: str) -> None:
    """Nothing is made of parts in eager: captures are."""
    kind = class_with(__tensor_unflatten__=classmethod(made))
    fails(kind, kind(al.ones(2)), PROGRAMS[program], compiled=True)


@pytest.mark.rules("SUB-10", "SUB-15", "SUB-17", "SUB-23")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("given", GIVEN)
def test_a_dispatch_that_gives_nonsense(given: str, program: str, *, compiled: bool) -> None:
    kind = class_with(__tensor_dispatch__=classmethod(GIVEN[given]))
    fails(kind, kind(al.ones(2)), PROGRAMS[program], compiled=compiled)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("program", ["computes", "writes", "views"])
def test_what_a_class_raises_itself_comes_as_it_is(program: str, *, compiled: bool) -> None:
    """No error of the house hides it, and the argument is as it was."""
    for name in ("__tensor_flatten__", "__tensor_dispatch__"):

        def raises(*call: Any) -> Any:
            raise ZeroDivisionError("of its own")

        method: Any = raises if name == "__tensor_flatten__" else classmethod(raises)
        x = class_with(**{name: method})(al.ones(2))
        if name == "__tensor_flatten__" and program == "computes" and not compiled:
            continue  # which asks for parts afterwards
        function = PROGRAMS[program]
        with pytest.raises(ZeroDivisionError, match="of its own"):
            (al.compile(function, backend="reference") if compiled else function)(x)
        assert (x.version, x.inner.version, x.inner.tolist()) == (0, 0, [1.0, 1.0])


class Looped:
    """Equal to nothing, or raising."""

    def __init__(self, error: type[Exception] | None = None) -> None:
        self.error = error

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if self.error is not None:
            raise self.error("no ==")
        return False


def holding_itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


SPECS: dict[str, Any] = {
    "nan": float("nan"),
    "an array": np.ones(2),
    "arrays": (np.ones(2),),
    "a tensor": al.ones(2),
    "unequal": Looped(),
    "raising": Looped(RuntimeError),
    "a list that holds itself": holding_itself(),
}


@pytest.mark.rules("SUB-21")
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_spec_that_cannot_be_compared_is_named_by_a_capture(spec: Any) -> None:
    """SUB-21: and eager's ops have no need to."""
    kind = class_with()
    x = kind(al.ones(2), spec)
    assert (x * 2).inner.tolist() == [2.0, 2.0]
    with pytest.raises(SubclassError, match="Nasty: it flattens to the spec .* not equal itself"):
        al.compile(lambda x: x.mul_(2), backend="reference")(x)
    assert (x.version, x.inner.tolist()) == (0, [1.0, 1.0])


@pytest.mark.rules("SUB-10")
def test_ops_inside_of_one_another_end_where_wrappers_do() -> None:
    """SUB-9: sixty deep is no circle."""
    x: Any = al.ones(2)
    for _ in range(60):
        x = One(x)
    y = x * 2
    for _ in range(60):
        y = y.inner
    assert y.tolist() == [2.0, 2.0]
    with pytest.raises(ProtocolError, match="mul: to give it, Endless asks for ops on wrap"):
        type(
            "Endless",
            (One,),
            {"__tensor_dispatch__": classmethod(lambda cls, func, types, args, kw: func(*args))},
        )(al.ones(2)) * 2
    assert (One(al.ones(2)) * opened(2)).inner.tolist() == [2.0, 2.0]


FORMS: dict[str, Any] = {
    "set_": lambda x: x.set_(al.ones(2)),
    "set_ to nothing": lambda x: x.set_(),
    "onto it": lambda x: al.ones(2).set_(x),
    "resize_": lambda x: x.resize_(4),
    "resize_ to its size": lambda x: x.resize_(2),
    "resize_as_": lambda x: x.resize_as_(al.ones(4)),
    "t_": lambda x: x.t_(),
    "squeeze_": lambda x: x.squeeze_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "transpose_": lambda x: x.transpose_(0, 0),
    "as_strided_": lambda x: x.as_strided_((1,), (1,)),
    "hidden_alias": lambda x: x.hidden_alias(),
}


@pytest.mark.rules("SUB-20")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("change", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", [One, Tagged, lambda x: TwoTensor(x, al.ones(2))])
def test_geometry_and_memory_stay(kind: Any, change: Any, *, compiled: bool) -> None:
    """SUB-20: the class is named, and the wrapper as it was."""
    x = kind(al.ones(2))
    before = x.meta, x.version, repr(x)
    name = type(x).__name__
    with pytest.raises(SubclassError, match=f"the tensor is a {name}, expected one") as caught:
        (al.compile(change, backend="reference") if compiled else change)(x)
    assert "(SUB-20)" in "".join(caught.value.__notes__)
    assert (x.meta, x.version, repr(x)) == before


@pytest.mark.rules("SUB-20")
@pytest.mark.parametrize("name", ["shape", "dtype", "device", "is_leaf", "T", "ndim"])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_follows_from_geometry_cannot_be_assigned(name: str, *, compiled: bool) -> None:
    """As of plain tensors, Python's own error."""

    def assign(x: Any) -> None:
        setattr(x, name, 3)

    for x in (al.ones(2), One(al.ones(2))):
        with pytest.raises(AttributeError, match="has no setter"):
            (al.compile(assign, backend="reference") if compiled else assign)(x)


@pytest.mark.rules("SUB-20")
def test_a_capture_finds_a_geometry_that_was_put_in_place() -> None:
    def assign(x: Any) -> Any:
        x.inner.add_(1)
        x.meta = al.ones(3).meta
        return x.inner * 1

    x = One(al.ones(2))
    with pytest.raises(SubclassError, match=r"argument 0, a One, is f32\[3\] afterwards") as caught:
        al.compile(assign, backend="reference")(x)
    assert "(SUB-20)" in "".join(caught.value.__notes__)
    assert (x.shape, x.inner.tolist()) == ((2,), [1.0, 1.0])
