"""`aotlite explain`: prints every stage, and says what is wrong with what it is given."""

import sys

import pytest

from aotlite.cli import main
from aotlite.cli.arguments import value_from_text
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import tensor_meta

SOURCE = """\
import aotlite as al
import neighbor

class Model:
    def loss(self, x):
        return x.sum()

def loss(x, w, scale=1.0):
    x[0].mul_(2.0)
    return ((x @ w) * scale).exp().sum()

def fails(x):
    raise KeyError("no such key")

def asks(x):
    return x.sum().item()

model = Model()
number = 3
"""
LOSS = ["--arg", "f32[4,3]", "--arg", "f32[3,3] requires_grad"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A file that imports its neighbor, named from the working folder."""
    (tmp_path / "model.py").write_text(SOURCE)
    (tmp_path / "neighbor.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return "model.py"


@pytest.fixture
def explain(capsys):
    def run(*argv):
        assert 0 == main(["explain", *argv])
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """What a call that must end with status 2, or another, prints to stderr."""

    def run(*argv, status=2):
        path = list(sys.path)
        assert status == main(["explain", *argv])
        assert path == sys.path
        printed = capsys.readouterr()
        assert "" == printed.out
        return printed.err

    return run


# ---------------------------------------------------------------------------------- what it prints
def test_explain_prints_every_stage_in_order(model, explain):
    text = explain(f"{model}:loss", *LOSS)
    headers = [line.split(":")[0] for line in text.splitlines() if line.startswith("# ")]
    assert [
        "# 1 capture",
        "# 2 analyze",
        "# 3 convention",
        "# 4 joint",
        "# 6 functionalize",
        "# 7 simplify",
        "# 8 partition",
        "# 8 partition, forward",
        "# 8 partition, backward",
    ] == headers
    assert "    # model.py:9 in loss: x[0].mul_(2.0)\n" in text


def test_explain_prints_the_same_text_each_time(model, explain):
    assert explain(f"{model}:loss", *LOSS) == explain(f"{model}:loss", *LOSS)


def test_explain_prints_one_stage(model, explain):
    expected = """\
# 8 partition: which values are saved for the backward, and why
The forward has 7 ops, the backward 6.
Saved for the backward: 2 values, 96 bytes beyond what inputs and results hold.
  saved_select_scatter: f32[4, 3], 48 bytes; saved because the backward uses it.
  saved_exp: f32[4, 3], 48 bytes; saved because the backward uses it.
Recomputed in the backward: nothing.
"""
    assert expected == explain(f"{model}:loss", *LOSS, "--stage", "partition")


def test_explain_takes_literals_keywords_and_methods(model, explain):
    graph = explain(f"{model}:loss", *LOSS, "--kwarg", "scale=0.25", "--stage", "capture")
    assert "ops.mul(matmul, 0.25)" in graph
    method = explain(f"{model}:model.loss", "--arg", "f64[2]", "--stage", "capture")
    assert 'def loss(primals_0: "f64[2]"):' in method


# ------------------------------------------------------------------------------- what it refuses
def test_missing_colon_is_refused(model, refused):
    expected = "aotlite: explain: the target is 'model.py', expected FILE.py:FUNCTION\n"
    assert expected == refused(model)


def test_missing_file_is_refused(model, refused):
    expected = "aotlite: explain: the file 'other.py' does not exist, expected a Python file\n"
    assert expected == refused("other.py:loss")


def test_missing_function_names_a_near_one(model, refused):
    message = "aotlite: explain: 'model.py' has no 'los', expected a function in it\n"
    assert f"{message}Did you mean loss?\n" == refused(f"{model}:los")
    assert f"{message.replace('los', 'zzz')}Functions there: loss, fails, asks.\n" == refused(
        f"{model}:zzz"
    )


def test_thing_that_is_no_function_is_refused(model, refused):
    expected = "aotlite: explain: 'number' in 'model.py' is of type int, expected a function\n"
    assert expected == refused(f"{model}:number")


def test_function_that_raises_is_named_with_its_line(model, refused):
    expected = (
        "aotlite: explain: fails raised KeyError: 'no such key', expected a function that runs on "
        "the given arguments\n"
        'at model.py:13, in fails: raise KeyError("no such key")\n'
    )
    assert expected == refused(f"{model}:fails", "--arg", "f32[2]")


def test_wrong_number_of_arguments_is_the_functions_error(model, refused):
    text = refused(f"{model}:loss", "--arg", "f32[4,3]")
    error = "TypeError: loss() missing 1 required positional argument: 'w'"
    assert text.startswith(f"aotlite: explain: loss raised {error}")


def test_op_that_refuses_is_named_with_the_users_line(model, refused):
    text = refused(f"{model}:loss", "--arg", "f32[4,3]", "--arg", "f32[4,3]", status=1)
    assert text.startswith("aotlite: matmul: ")
    assert 1 == text.count("return ((x @ w) * scale).exp().sum()")
    assert 'model.py", line 10, in loss' in text


def test_function_that_cannot_be_captured_is_refused_once_with_its_line(model, refused):
    text = refused(f"{model}:asks", "--arg", "f32[2]", status=1)
    assert text.startswith("aotlite: capture: ")
    assert 1 == text.count("return x.sum().item()")


def test_file_that_cannot_be_imported_is_refused(tmp_path, monkeypatch, refused):
    (tmp_path / "broken.py").write_text("x = 1\ny = x.missing\n")
    monkeypatch.chdir(tmp_path)
    expected = (
        "aotlite: explain: importing 'broken.py' raised AttributeError: 'int' object has no "
        "attribute 'missing', expected a file that can be imported\n"
        "at broken.py:2, in <module>: y = x.missing\n"
    )
    assert expected == refused("broken.py:loss")


def test_file_that_exits_is_refused(tmp_path, monkeypatch, refused):
    """It would end the command with its own status and no word."""
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    expected = (
        "aotlite: explain: importing 'leaves.py' raised SystemExit: 3, expected a file that can be "
        "imported\nat leaves.py:1, in <module>: raise SystemExit(3)\n"
    )
    assert expected == refused("leaves.py:loss")


def test_folder_is_refused(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path.parent)
    expected = f"aotlite: explain: {tmp_path.name!r} is a folder, expected a Python file\n"
    assert expected == refused(f"{tmp_path.name}:loss")


def test_unknown_stage_is_refused(model, refused):
    text = refused(f"{model}:loss", *LOSS, "--stage", "lower")
    assert text.startswith("aotlite: inspect: the stage is 'lower', expected one of: capture, ")


def test_keyword_without_value_is_refused(model, refused):
    expected = "aotlite: explain: --kwarg is 'scale', expected NAME=VALUE\n"
    assert expected == refused(f"{model}:loss", "--kwarg", "scale")


def test_value_of_a_keyword_is_named(model, refused):
    text = refused(f"{model}:loss", "--kwarg", "scale=f32[")
    assert text.startswith("aotlite: explain: --kwarg scale ends inside of brackets, expected ")


BAD_VALUES = {
    "f32[4, x]": ("has 'x' in brackets, expected numbers from 0 on", 7),
    "f32[-1]": ("has '-1' in brackets, expected numbers from 0 on", 4),
    "f32[4": ("ends inside of brackets, expected ']' after the last size", 5),
    "f32[4][1,3]": ("has 2 strides for 1 sizes, expected a stride for each size", 6),
    "f32[4] grad": ("has 'grad', expected requires_grad, dynamic=0 or nothing", 7),
    "f32[4, 3] dynamic=0,2": ("marks dimension '2', expected one of 0 to 1", 20),
    "f32[4] dynamic=": ("marks dimension '', expected one of 0 to 0", 15),
    "f32[4] dynamic=-1": ("marks dimension '-1', expected one of 0 to 0", 15),
    "f32[] dynamic=0": ("marks dimension '0', expected a tensor with sizes", 14),
    "i64[4] requires_grad": ("wants a gradient of int64, expected a floating or complex dtype", 0),
    "f32[99999999999,99999]": (
        "is too large (full: 39999599999600004 bytes are asked for that the system does not give, "
        "expected less), expected a tensor that fits into memory",
        3,
    ),
    "f32[99999999999999999999]": (
        "is too large (shape: f32[99999999999999999999] is of 399999999999999999996 bytes, "
        "expected at most 2**63 - 1), expected a tensor that fits into memory",
        3,
    ),
    f"f32[4, {'9' * 5000}]": ("has a number of 5000 digits, expected one below 2**63", 7),
    "hello": ("is 'hello', expected a tensor such as 'f32[4,3]' or a Python literal", 0),
    "": ("is '', expected a tensor such as 'f32[4,3]' or a Python literal", 0),
}


@pytest.mark.parametrize("text", BAD_VALUES)
def test_unreadable_value_has_a_caret_below(text):
    message, position = BAD_VALUES[text]
    with pytest.raises(ArgumentError) as caught:
        value_from_text(text)
    assert f"explain: --arg {message}" == str(caught.value)
    assert [f"  {text}\n  {' ' * position}^"] == caught.value.__notes__


def test_unknown_dtype_names_the_known_ones():
    with pytest.raises(ArgumentError) as caught:
        value_from_text("f3[4]")
    start = "explain: --arg has the dtype 'f3', expected one of b8, bf16, c128, c64, f16, "
    assert str(caught.value).startswith(start)


# ----------------------------------------------------------------------------------------- values
def test_values_have_the_geometry_and_flags_asked_for():
    tensor = value_from_text("f64[2,3][1,2] requires_grad")
    assert tensor_meta((2, 3), (1, 2), tensor.dtype) is tensor.meta
    assert tensor.is_leaf and tensor.requires_grad and tensor._base is None
    assert [[1.0] * 3] * 2 == tensor.tolist()


@pytest.mark.parametrize(
    ("text", "shape"), [("f32[]", ()), ("i64[0, 3]", (0, 3)), (" float32[2,] ", (2,))]
)
def test_scalars_empty_tensors_and_long_names_are_read(text, shape):
    assert shape == value_from_text(text).shape


@pytest.mark.parametrize("value", [2.0, 3, True, None, "sum", (1, 2), [0.5]])
def test_literals_are_read(value):
    assert value == value_from_text(repr(value))


SIZED = """\
import aotlite as al

@al.compile(dynamic=True, backend="reference")
def flat(x):
    if x.shape[0] > 3:
        x = x.exp()
    return x.view(x.shape[0] * x.shape[1]) * 2
"""


def test_a_function_of_many_sizes_is_shown_with_its_symbols(model, explain):
    with open(model, "w") as file:
        file.write(SIZED)
    found = explain(f"{model}:flat", "--arg", "f32[4,3] requires_grad")
    assert "primals_0 is argument 0, f32[s0, s1]; a leaf that requires grad." in found
    assert "    s0, s1 = primals_0.shape\n" in found
    assert "view = ops.view(exp, (s0*s1,))  # f32[s0*s1]" in found
    one = explain(f"{model}:flat", "--arg", "f32[4,3]", "--stage", "partition")
    assert "The graph has 3 ops and is the forward" in one


# ------------------------------------------------------------------------- symbols and conditions
PLAIN = """\
import json

import aotlite as al

def pooled(x, w, n=2):
    if x.shape[0] % 2 == 0:
        return (x.reshape(-1, 2).sum(1) * n).sum()
    return (x @ w).sum()

kept = al.compile(pooled, dynamic=False, backend="reference", verify=0)

def positive(x):
    return x[x > 0]

def chained(x, w):
    return x @ w

def exact(x):
    return x * 2 if type(x.shape[0]) is int else x

def told(x):
    return x * len(json.dumps(x.shape[0]))

def named(x, y):
    return {x.shape[0]: x + y}

def scaled(x, rate):
    return x * rate if rate > 0.5 else x
"""
BOTH = ["--arg", "f32[4,3]", "--arg", "f32[3,2]"]


@pytest.fixture
def plain(model):
    with open(model, "w") as file:
        file.write(PLAIN)
    return model


def conditions(text):
    """The lines of the stage, without what the proof counted."""
    header, *lines, proof = text.rstrip("\n").split("\n")
    expected = "# 8 partition, conditions: the symbols, and for which sizes the graphs are right"
    assert expected == header
    return [*lines, proof.partition(": ")[2].partition(":")[0]]


@pytest.mark.rules("DYN-3", "DYN-8", "DYN-11")
def test_dynamic_makes_all_sizes_and_ints_symbols_and_shows_the_conditions(plain, explain):
    found = explain(
        f"{plain}:pooled", *BOTH, "--kwarg", "n=4", "--dynamic", "--stage", "conditions"
    )
    assert [
        "s0 is 4 in this call, -2147483648 to 2147483647 in others: argument 2",
        "s1 is 4 in this call, 0 or more in others: size 0 of argument 0",
        "s2 is 3 in this call, 0 or more in others: size 1 of argument 0",
        "s3 is 3 in this call, 0 or more in others: size 0 of argument 1",
        "s4 is 2 in this call, 0 or more in others: size 1 of argument 1",
        "Conditions, with the lines that ask:",
        "  s1 % 2 == 0",
        "    model.py:6 in pooled: if x.shape[0] % 2 == 0:",
        "  (s1*s2) % 2 == 0",
        "    model.py:7 in pooled: return (x.reshape(-1, 2).sum(1) * n).sum()",
        "sound",
    ] == conditions(found)


@pytest.mark.rules("DYN-8")
def test_a_condition_that_an_op_asks_has_its_name_and_line(plain, explain):
    found = explain(f"{plain}:chained", *BOTH, "--dynamic", "--stage", "conditions")
    assert "  matmul, model.py:16 in chained: return x @ w" in found
    assert "  s1 == s2\n" in found


@pytest.mark.rules("DYN-3")
def test_sizes_are_marked_one_by_one(plain, explain):
    marked = ["--arg", "f32[4,3] dynamic=0 requires_grad", "--arg", "f32[3,2]"]
    found = explain(f"{plain}:pooled", *marked, "--stage", "conditions")
    symbol, *_ = lines = conditions(found)
    assert "s0 is 4 in this call, 0 or more in others: size 0 of argument 0" == symbol
    assert ["  s0 % 2 == 0"] == [line for line in lines if "==" in line and "if" not in line]
    capture = explain(f"{plain}:pooled", *marked, "--stage", "capture")
    assert 'def pooled(primals_0: "f32[s0, 3]", primals_1: "f32[3, 2]"):' in capture
    whole = explain(f"{plain}:positive", "--arg", "f32[4,3] dynamic", "--stage", "capture")
    assert 'def positive(primals_0: "f32[s0, s1]")' in whole


@pytest.mark.rules("DYN-3")
def test_dynamic_keeps_the_other_options_of_a_compiled_function(plain, explain):
    found = explain(f"{plain}:kept", *BOTH, "--dynamic")
    assert "# 9 lower" not in found  # the reference backend has no kernels
    assert found.endswith("Proof that they suffice: none was asked for (verify=0)\n")


def test_without_symbols_there_are_no_conditions(plain, explain, refused):
    assert "conditions" not in explain(f"{plain}:kept", *BOTH)
    text = refused(f"{plain}:pooled", *BOTH, "--stage", "conditions")
    assert text.startswith("aotlite: inspect: the stage is 'conditions', expected one of: ")
    assert "--dynamic of aotlite explain" in text
    assert "--dynamic" not in refused(f"{plain}:pooled", *BOTH, "--stage", "condition")


@pytest.mark.rules("DYN-33")
@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("exact", ["f32[4]"], "type (model.py:19 in exact: return x * 2 if type(x.shape[0]) is"),
        ("told", ["f32[4]"], "model.py:22 in told: return x * len(json.dumps(x.shape[0])) takes"),
        ("named", ["f32[4]", "f32[4]"], "a key of a dict that the function returns has a number"),
        ("scaled", ["f32[]", "0.75"], "no argument has one"),
    ],
)
def test_dynamic_says_why_no_size_became_a_symbol(plain, explain, name, given, why):
    arguments = [word for value in given for word in ("--arg", value)]
    said = f"# No size is a symbol: {why}"
    for stage in ([], ["--stage", "capture"]):
        found = explain(f"{plain}:{name}", *arguments, "--dynamic", *stage)
        assert found.splitlines()[-1].startswith(said)
    shown = explain(f"{plain}:{name}", *arguments, "--dynamic", "--stage", "conditions")
    assert shown.splitlines()[1].startswith(said.removeprefix("# "))
    assert "No size" not in explain(f"{plain}:{name}", *arguments)


@pytest.mark.rules("DYN-33")
def test_dynamic_says_nothing_of_it_where_a_size_is_a_symbol(plain, explain):
    assert "No size" not in explain(f"{plain}:chained", *BOTH, "--dynamic")
    given = ["--arg", "f32[4]", "--arg", "1.0"]
    assert "No size" not in explain(f"{plain}:scaled", *given, "--dynamic")


@pytest.mark.rules("DYN-27")
def test_conditions_on_floats_are_shown_without_symbols(plain, explain):
    given = ["--arg", "f32[]", "--arg", "0.75", "--dynamic", "--stage", "conditions"]
    assert [
        "# 8 partition, conditions: the symbols, and for which sizes the graphs are right",
        "No size is a symbol: no argument has one.",
        "Conditions, with the lines that ask:",
        "  argument 1 > 0.5 is True",
        "    model.py:28 in scaled: return x * rate if rate > 0.5 else x",
    ] == explain(f"{plain}:scaled", *given).splitlines()[:5]


@pytest.mark.rules("DYN-30")
def test_a_count_is_shown_with_what_it_counts(plain, explain):
    found = explain(f"{plain}:positive", "--arg", "f32[4]", "--stage", "conditions")
    assert [
        "u0 is 4 in this call, 0 or more in others: count of nonzero at model.py:13 in positive: "
        "return x[x > 0]",
        "Conditions: none.",
        "sound",
    ] == conditions(found)
