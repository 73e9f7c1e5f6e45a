"""Schemas read back what they print, and bind a call's arguments to one canonical tuple."""

import copy
import pickle
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir import dtypes
from aotlite.ir.arrays.device import CPU
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry.memory_format import channels_last
from aotlite.ir.op.host_function import host_function
from aotlite.ir.op.schema import PARAMETER_TYPES as TYPES
from aotlite.ir.op.schema import REQUIRED, AliasMark, Return, Schema, SchemaParameter, parse_schema

TEXTS = [
    "mul(Tensor|Scalar self, Tensor|Scalar other) -> Tensor",
    "select(Tensor(a) self, int dim, int index) -> Tensor(a)",
    "mul_(Tensor(a!) self, Tensor|Scalar other) -> Tensor(a!)",
    "sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    "split(Tensor(a) self, int split_size, int dim=0) -> Tensor(a)[]",
    "max_pool2d_with_indices(Tensor self, int[] kernel_size, int[] stride=[2, 2])"
    " -> (Tensor values, Tensor indices)",
    "cat(Tensor[] tensors, int dim=0) -> Tensor",
    "full(int[] size, Scalar fill_value, *, dtype? dtype=None, device? device=None) -> Tensor",
    "index(Tensor self, Tensor?[] indices) -> Tensor",
    "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
    "gelu(Tensor self, *, str approximate='none') -> Tensor",
    "seed() -> ()",
]
SUM = parse_schema(TEXTS[3])


class Tensor:
    """The least that counts as a tensor; comparing one is an error, as it would run an op."""

    __slots__ = ("meta",)

    def __eq__(self, other):
        raise AssertionError("a tensor was compared")

    def __init__(self):
        self.meta = None


class Device:
    arrays = None


class Generator:
    draw = None


TENSOR = Tensor()
DEVICE = Device()
FUNCTION = host_function(len)
GENERATOR = Generator()


# --------------------------------------------------------------------------------- round trips
DEFAULTS = {
    "int": st.integers(-9, 9),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "str": st.text(max_size=4),
    "Scalar": st.one_of(st.integers(), st.booleans(), st.floats(-1, 1)),
    "int[]": st.lists(st.integers(-9, 9), max_size=3).map(tuple),
}
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
ALIASES = st.none() | st.builds(AliasMark, st.sampled_from("ab"), st.booleans())


def default_of(text):
    if text.endswith("?"):
        return st.none() | DEFAULTS.get(text[:-1], st.none())
    return DEFAULTS.get(text, st.nothing())


@st.composite
def schemas(draw):
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    keyword_only_from = draw(st.integers(0, len(names)))
    parameters = []
    for at, name in enumerate(names):
        type_ = TYPES[draw(st.sampled_from(sorted(TYPES)))]
        keyword_only = at >= keyword_only_from
        default = draw(st.just(REQUIRED) | default_of(type_.text))
        if default is REQUIRED and parameters and not keyword_only:
            type_, default = after_default(parameters[-1], type_)
        alias = draw(ALIASES) if type_.holds_tensor else None
        parameters.append(
            SchemaParameter(name, type_, default=default, keyword_only=keyword_only, alias=alias)
        )
    aliases = [None, *(each.alias for each in parameters)]
    returned = st.builds(Return, NAMES, st.sampled_from(aliases), is_list=st.booleans())
    returns = draw(st.lists(returned, max_size=3))
    return Schema(draw(NAMES), tuple(parameters), returns=tuple(returns))


def after_default(before, type_):
    """A required parameter cannot follow one with a default."""
    return (type_, REQUIRED) if before.default is REQUIRED else (TYPES["int?"], None)


@settings(max_examples=150, derandomize=True)
@given(schemas())
def test_schema_is_what_its_text_parses_to(schema):
    assert schema == parse_schema(str(schema))


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_what_its_schema_prints(text):
    assert text == str(parse_schema(text))


@pytest.mark.parametrize("text", TEXTS)
def test_schema_survives_pickling_and_copying(text):
    schema = parse_schema(text)
    for twin in (pickle.loads(pickle.dumps(schema)), copy.deepcopy(schema)):
        assert schema == twin
        assert all(
            a.type is b.type for a, b in zip(schema.parameters, twin.parameters, strict=True)
        )


def test_spaces_where_they_do_not_matter_are_not_kept():
    assert TEXTS[1] == str(parse_schema("select( Tensor(a)  self ,int dim,int index )->Tensor(a)"))


def test_parsed_parts_say_what_the_text_says():
    schema = parse_schema("sort(Tensor(a!) self, *, int dim=-1) -> (Tensor(a!) values, Tensor[] t)")
    assert "sort" == schema.name
    assert (
        SchemaParameter("self", TYPES["Tensor"], alias=AliasMark("a", True)),
        SchemaParameter("dim", TYPES["int"], default=-1, keyword_only=True),
    ) == schema.parameters
    assert (Return("values", AliasMark("a", True)), Return("t", is_list=True)) == schema.returns


def test_type_predicates_sort_the_types_by_what_they_hold():
    def having(predicate):
        return {text for text, type_ in TYPES.items() if getattr(type_, predicate)}

    assert {"Tensor", "Tensor?"} == having("is_tensor")
    assert {"Tensor[]", "Tensor?[]"} == having("is_tensor_list")
    assert {"Tensor|Scalar", "Tensor|Scalar?"} == having("holds_number")
    tensors = having("is_tensor") | having("is_tensor_list") | having("holds_number")
    assert tensors == having("holds_tensor")


@pytest.mark.parametrize(
    ("text", "column", "got", "expected"),
    [
        ("", 1, "the end", "the name of an op"),
        ("mul(Tensor self", 16, "the end", "','"),
        ("mul(Tensor self int b) -> Tensor", 17, "'i'", "','"),
        ("mul(Tensr self) -> Tensor", 5, "'T'", "a type"),
        ("mul(int(a) self) -> Tensor", 5, "'i'", "a type"),
        ("mul(Tensor) -> Tensor", 11, "')'", "the name of a parameter"),
        ("mul(int a, int a) -> Tensor", 16, "'a'", "a name not used before"),
        ("mul(int a='x') -> Tensor", 11, '"\'"', "a default of type int"),
        ("mul(int a=b) -> Tensor", 11, "'b'", "a default of type int"),
        ("mul(int a=) -> Tensor", 11, "')'", "a default"),
        ("mul(int a=1, int b) -> Tensor", 19, "')'", "'=', as the parameter before has a default"),
        ("mul(int a, *) -> Tensor", 13, "')'", "','"),
        ("mul(int a) Tensor", 12, "'T'", "'->'"),
        ("mul(int a) -> int", 15, "'i'", "Tensor or Tensor[]"),
        ("mul(Tensor a) -> Tensor(a)", 18, "'T'", "an alias mark that a parameter has"),
        ("mul(Tensor(a) b) -> Tensor(a!)", 21, "'T'", "an alias mark that a parameter has"),
        ("mul(int a) -> Tensor, Tensor", 21, "','", "the end"),
    ],
)
def test_malformed_text_is_refused_with_its_column(text, column, got, expected):
    with pytest.raises(ArgumentError) as caught:
        parse_schema(text)
    assert f"schema: column {column} is {got}, expected {expected}" == str(caught.value)
    assert [text, " " * (column - 1) + "^"] == caught.value.__notes__


# --------------------------------------------------------------------------------------- binding
VALUES = {
    "Tensor": [(TENSOR, TENSOR)],
    "Scalar": [(2, 2), (True, True), (2j, 2j), (np.float32(0.5), 0.5), (np.array(3), 3)],
    "Tensor|Scalar": [(TENSOR, TENSOR), (2.5, 2.5), (ml_dtypes.bfloat16(2), 2.0)],
    "int": [(2, 2), (np.int64(2), 2), (np.array(2, np.uint8), 2)],
    "float": [(2.5, 2.5), (2, 2.0), (np.float32(2.5), 2.5)],
    "bool": [(True, True), (np.True_, True)],
    "str": [("a", "a"), (np.str_("a"), "a")],
    "dtype": [(dtypes.int8, dtypes.int8)],
    "device": [(DEVICE, DEVICE), ("cpu", CPU)],
    "generator": [(GENERATOR, GENERATOR)],
    "function": [(FUNCTION, FUNCTION)],
    "memory_format": [(channels_last, channels_last)],
    "int[]": [((1, 2), (1, 2)), ([1, np.int32(2)], (1, 2)), (3, (3,)), ([], ())],
    "Tensor[]": [([TENSOR, TENSOR], (TENSOR, TENSOR)), ((), ())],
    "Tensor?[]": [([None, TENSOR], (None, TENSOR))],
}
WRONG = {
    "Tensor": [(2, "2"), (None, "None"), (np.ones(2), "a numpy.ndarray")],
    "Scalar": [("2", "'2'"), (TENSOR, f"a {__name__}.Tensor"), (None, "None")],
    "Tensor|Scalar": [("2", "'2'"), ([1.5], "[1.5]"), (np.ones(2), "a numpy.ndarray")],
    "int": [(2.0, "2.0"), (True, "True"), ("2", "'2'"), (TENSOR, f"a {__name__}.Tensor")],
    "float": [(True, "True"), (1j, "1j"), ("1", "'1'")],
    "bool": [(1, "1"), (None, "None")],
    "str": [(1, "1")],
    "dtype": [("int8", "'int8'"), (np.dtype("int8"), "a numpy.dtypes.Int8DType")],
    "device": [("gpu", "'gpu'"), (0, "0")],
    "generator": [(3, "3")],
    "function": [(3, "3"), (len, "a builtin_function_or_method")],
    "memory_format": [("channels_last", "'channels_last'")],
    "int[]": [((1, 2.0), "(1, 2.0)"), ([True], "[True]"), (1.0, "1.0"), ([TENSOR], "a list")],
    "Tensor[]": [(TENSOR, f"a {__name__}.Tensor"), ([TENSOR, None], "a list")],
    "Tensor?[]": [([1], "[1]")],
}


def optional_too(table):
    return [
        (text, *pair)
        for basic, pairs in table.items()
        for text in (basic, f"{basic}?")
        for pair in pairs
        if text in TYPES and not (text.endswith("?") and pair[0] is None)
    ]


def same_value(expected, got):
    if isinstance(expected, tuple):
        return all(map(same_value, expected, got)) and len(expected) == len(got)
    return expected is got or (type(expected) is type(got) and expected == got)


def test_every_type_is_in_the_tables_of_values():
    assert set(VALUES) == set(WRONG) == {text for text in TYPES if not text.endswith("?")}


@pytest.mark.parametrize(("text", "value", "expected"), optional_too(VALUES))
def test_bind_gives_the_canonical_value(text, value, expected):
    (bound,) = parse_schema(f"f({text} x) -> Tensor").bind((value,), {})
    assert same_value(expected, bound)


@pytest.mark.parametrize(("text", "value", "got"), optional_too(WRONG))
def test_bind_refuses_a_value_of_another_type(text, value, got):
    schema = parse_schema(f"f({text} x) -> Tensor")
    with pytest.raises(ArgumentError) as caught:
        schema.bind((), {"x": value})
    assert f"f: argument 'x' is {got}, expected {text}" == str(caught.value)
    assert f"schema: {schema}" == caught.value.__notes__[0]


@pytest.mark.parametrize("text", [text for text in TYPES if text.endswith("?")])
def test_bind_takes_none_for_an_optional_type(text):
    assert (None,) == parse_schema(f"f({text} x) -> Tensor").bind((None,), {})


def test_binding_bound_arguments_changes_nothing():
    for text, value, _ in optional_too(VALUES):
        schema = parse_schema(f"f({text} x) -> Tensor")
        once = schema.bind((value,), {})
        assert same_value(once, schema.bind(once, {}))


def test_bind_puts_positions_names_and_defaults_in_the_order_of_parameters():
    assert (TENSOR, None, False, None) == SUM.bind((TENSOR,), {})
    assert (TENSOR, (1,), True, dtypes.float64) == SUM.bind(
        (TENSOR, 1), {"dtype": dtypes.float64, "keepdim": True}
    )
    assert ((TENSOR), (0, 1), False, None) == SUM.bind((), {"dim": [0, 1], "self": TENSOR})


def test_bind_takes_the_other_spellings_that_pytorch_takes():
    assert (TENSOR, (1,), True, None) == SUM.bind(
        (), {"input": TENSOR, "axis": 1, "keepdims": True}
    )
    with pytest.raises(ArgumentError, match="argument 'axis' is unexpected"):
        SUM.bind((TENSOR,), {"axis": 1, "dim": 1})
    with pytest.raises(ArgumentError, match="argument 'dim' is given by position and by name"):
        SUM.bind((TENSOR, 0), {"axis": 1})


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "argument 'self' is missing, expected Tensor"),
        (
            (TENSOR,),
            {"axes": 1},
            "argument 'axes' is unexpected, expected one of self, dim, keepdim, dtype",
        ),
        (
            (TENSOR, 1),
            {"dim": 1},
            "argument 'dim' is given by position and by name, expected one of them",
        ),
        (
            (TENSOR, 1, True, None),
            {},
            "number of positional arguments is 4, expected at most 3",
        ),
    ],
)
def test_bind_refuses_a_call_that_does_not_fit_and_shows_the_schema(args, kwargs, message):
    with pytest.raises(ArgumentError, match=f"^{re.escape(f'sum: {message}')}\n") as caught:
        SUM.bind(args, kwargs)
    assert [f"schema: {TEXTS[3]}"] == caught.value.__notes__


def test_long_arguments_are_shortened_in_messages():
    with pytest.raises(ArgumentError) as caught:
        SUM.bind((list(range(1000)),), {})
    assert len(str(caught.value)) < 80


@pytest.mark.parametrize(
    "refused",
    [
        lambda x, a: x * a,
        lambda x, a: a * x,
        lambda x, a: x @ a,
        lambda x, a: a @ x,
        lambda x, a: x.add_(a),
        lambda x, a: x.copy_(a),
        lambda x, a: al.cat([x, a]),
        lambda x, a: al.where(x > 0, a, 0),
    ],
)
def test_an_ndarray_for_a_tensor_is_refused_with_what_to_call(refused):
    with pytest.raises(ArgumentError, match="is a (numpy.ndarray|list), exp") as caught:
        refused(al.ones(2), np.ones(2))
    advice = "from_numpy(array) is a tensor on the same memory, tensor(array) a copy"
    assert advice in caught.value.__notes__


def test_advice_on_ndarrays_is_for_tensors_alone():
    with pytest.raises(ArgumentError) as caught:
        al.ones(2).transpose(np.ones(2), 1)
    assert not any("from_numpy" in note for note in caught.value.__notes__)
