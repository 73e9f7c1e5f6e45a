"""Checks of sizes, names and types reject breaches."""

import pytest

from aotlite.ir.op import OPS
from tests.house import budgets, names, op_names, path, slow, untyped
from tests.house.checks import CHECKS
from tests.house.planted import planted
from tests.house.sources import ROOT, Source, Tree


def record(decorator: str, count: int, base: str = "Record") -> str:
    fields = "".join(f"    field_{number}: int\n" for number in range(count))
    return f"{decorator}\nclass A({base}):\n    kind: ClassVar[str] = ''\n{fields}    x = 1\n"


def test_lines_are_counted_by_package():
    house = planted(
        {
            "aotlite.p.__init__": "a\nb\n",
            "aotlite.p.m": "a\n",
            "aotlite.p.q.m": "a",
            "aotlite.m": "",
        }
    )
    assert {"p": 3, "p.q": 1, "aotlite": 0} == CHECKS["lines"].counts(house)


@pytest.mark.parametrize(("count", "found"), [(12, {}), (13, {"p": 13})])
def test_package_of_too_many_files_is_found(count, found):
    files = {"aotlite.p.__init__": ""} | {f"aotlite.p.m{n}": "" for n in range(count - 1)}
    assert found == CHECKS["files"].counts(planted(files))


@pytest.mark.parametrize("module", ["aotlite.stages.s4_joint.__init__", "aotlite.stages.s4_joint"])
@pytest.mark.parametrize(("count", "found"), [(150, {}), (151, {"aotlite.stages.s4_joint": 151})])
def test_stage_that_is_more_than_its_plot_is_found(module, count, found):
    assert found == CHECKS["stages"].counts(planted({module: "x\n" * count}))


def test_parts_of_a_stage_may_be_longer():
    house = planted({"aotlite.stages.s4_joint.results": "x\n" * 300})
    assert {} == CHECKS["stages"].counts(house)


@pytest.mark.parametrize("decorator", ["@attrs.frozen", "@attrs.define(eq=False)", "@dataclass"])
@pytest.mark.parametrize(("count", "found"), [(14, {}), (15, {"aotlite.m:A": 15})])
def test_record_of_too_many_fields_is_found(decorator, count, found):
    assert found == CHECKS["fields"].counts(planted({"aotlite.m": record(decorator, count)}))


def test_named_tuple_of_too_many_fields_is_found():
    house = planted({"aotlite.m": record("", 15, "NamedTuple")})
    assert {"aotlite.m:A": 15} == CHECKS["fields"].counts(house)


@pytest.mark.parametrize("names", [str(list("abcdefghijklmno")), "dict.fromkeys(NAMES)"])
def test_made_record_of_too_many_fields_is_found(names):
    house = planted({"aotlite.m": f"A = attrs.make_class('A', {names})"})
    assert {"aotlite.m:'A'": 15} == CHECKS["fields"].counts(house)
    house = planted({"aotlite.m": "A = namedtuple('A', 'one two')"})
    assert {} == CHECKS["fields"].counts(house)


def test_fields_of_a_base_count():
    files = {
        "aotlite.a": record("@attrs.frozen", 10),
        "aotlite.b": "from aotlite.a import A\n@attrs.frozen\nclass B(A):\n"
        + "".join(f"    own_{n}: int\n" for n in range(5)),
    }
    assert {"aotlite.b:B": 15} == CHECKS["fields"].counts(planted(files))


def test_class_that_is_no_record_may_say_much():
    assert {} == CHECKS["fields"].counts(planted({"aotlite.m": record("", 30)}))


def test_second_public_class_of_a_name_is_found():
    text = "class Place: ...\nclass _Own: ..."
    house = planted({"aotlite.a": text, "aotlite.ir.b": text, "aotlite.testing.c": text})
    assert {"Place": 2} == CHECKS["classes"].counts(house)
    assert ["aotlite.a:Place", "aotlite.ir.b:Place"] == [each.text for each in names.classes(house)]


def test_second_class_of_a_name_in_testing_is_found():
    text = "class Seen: ..."
    house = planted({"aotlite.testing.a": text, "aotlite.conformance.b": text, "aotlite.c": text})
    assert {"Seen (testing)": 2} == CHECKS["classes"].counts(house)


def test_classes_within_classes_are_not_compared():
    house = planted(
        {"aotlite.a": "class A:\n    class In: ...", "aotlite.b": "class B:\n    class In: ..."}
    )
    assert {} == CHECKS["classes"].counts(house)


@pytest.mark.parametrize(
    "module", ["stages.s4_joint", "ir.meta", "eager.tensors", "ir.overlap_proofs", "ir.copies"]
)
def test_word_of_the_field_is_known(module):
    assert {} == CHECKS["words"].counts(planted({f"aotlite.{module}": ""}))


def test_word_of_nobody_is_found():
    house = planted(
        {"aotlite.stages.whatnots": "", "aotlite.eager.thingummy_graph": "", "aotlite.s1_": ""}
    )
    assert {"whatnots": 1, "thingummy": 1} == CHECKS["words"].counts(house)


def test_words_of_the_glossary_are_those_of_its_terms():
    page = "# Page\n\n| term | meaning |\n|---|---|\n| closing copy | A. |\n| in-place op | B. |"
    assert {"term", "closing", "copy", "in", "place", "op"} == names.glossary(page)
    assert {"joint graph", "functionalize"} <= set(
        names.glossary_terms((ROOT / names.GLOSSARY).read_text())
    )


def test_uses_of_any_are_counted_by_package():
    text = "from typing import Any\ndef f(a: Any) -> list[Any]: ...\nb: typing.Any\n# Any\nany(b)"
    house = planted({"aotlite.p.m": text, "aotlite.p.n": "a: Any", "aotlite.q.m": "a: int"})
    assert {"p": 4} == CHECKS["any"].counts(house)


@pytest.mark.parametrize("name", sorted(untyped.PARAMETERS))
@pytest.mark.parametrize("annotation", ["Any", "typing.Any", "object"])
def test_record_that_is_taken_as_anything_is_found(name, annotation):
    house = planted({"aotlite.m": f"def f(x, *, {name}: {annotation} = None): ..."})
    assert {"aotlite.m": 1} == CHECKS["untyped"].counts(house)


@pytest.mark.parametrize("text", ["def f():\n    plan: Any = 1", "class A:\n    plan: Any"])
def test_variable_that_may_be_anything_is_found(text):
    assert {"aotlite.m": 1} == CHECKS["untyped"].counts(planted({"aotlite.m": text}))


def test_typed_record_and_other_parameters_are_accepted():
    text = "def f(recorder: Trace, plan, other: Any): ..."
    assert {} == CHECKS["untyped"].counts(planted({"aotlite.m": text}))


@pytest.mark.parametrize(
    "text",
    [
        "X = ['add', 'mul', 'sub', 'div']",
        "def f(): return {'add', 'mul', 'sub', 'div', 'else'}",
        "X = ('add_', 'mul_', 'sub_', 'div_')",
        "X = {'add': 1, 'mul': 2, 'sub': 3, 'div': 4}",
        "X = 'add mul sub div'.split()",
    ],
)
def test_table_of_op_names_is_found(text):
    house = planted({"aotlite.m": text})
    assert {"aotlite.m": 1} == CHECKS["op_names"].counts(house)


@pytest.mark.parametrize(
    "text",
    [
        "X = ['add', 'mul', 'sub']",
        "X = [ADD, MUL, SUB, DIV]",
        "X = 'add mul sub div'",
        "X = ['add', 'mul', 'sub', 'div', 'a', 'b', 'c', 'd']",
    ],
)
def test_few_op_names_are_no_table(text):
    assert {} == CHECKS["op_names"].counts(planted({"aotlite.m": text}))


def test_vocabulary_of_test_programs_names_ops(monkeypatch):
    monkeypatch.setattr(op_names, "plan", lambda: {"vocabularies": ["aotlite.m"]})
    house = planted({"aotlite.m": "X = ['add', 'mul', 'sub', 'div']"})
    assert [] == list(op_names.tables(house))


def test_vocabulary_without_a_table_is_idle(monkeypatch):
    named = ["aotlite.m", "aotlite.n", "aotlite.gone"]
    monkeypatch.setattr(op_names, "plan", lambda: {"vocabularies": named})
    house = planted({"aotlite.m": "X = ['add', 'mul', 'sub', 'div']", "aotlite.n": "X = 1"})
    assert ["aotlite.n", "aotlite.gone"] == op_names.idle(house)


def test_names_of_ops_are_those_of_the_table():
    """A search that found nothing would find no table."""
    assert set(OPS) | {"square", "cumsum_"} <= op_names.ops(ROOT)


@pytest.fixture
def plant_path(monkeypatch):
    def plant(modules, seams=None):
        plan = {"path": [f"aotlite.{module}" for module in modules], "seams": seams or {}}
        monkeypatch.setattr(path, "plan", lambda: plan)

    return plant


PATH = {
    "aotlite.a": "import aotlite.b, aotlite.p.c",
    "aotlite.b": "def f():\n    import aotlite.p.c",
    "aotlite.p.c": "",
    "aotlite.d": "",
}


def off_the_path(house):
    return [each.text for each in path.leads_off(house)]


def test_import_that_leads_off_the_path_is_found(plant_path):
    plant_path("ab")
    assert ["aotlite.p.c, by aotlite.a, aotlite.b"] == off_the_path(planted(PATH))


@pytest.mark.parametrize("pattern", ["p.c", "p", "p.*", "*.c", "?.c"])
def test_seam_may_lead_off_the_path(plant_path, pattern):
    plant_path("ab", {"feature": [pattern]})
    assert [] == off_the_path(planted(PATH))
    assert [] == list(path.unmet(planted(PATH)))


def test_seam_of_another_module_does_not(plant_path):
    plant_path("ab", {"feature": ["p.d", "c", "a"]})
    assert 1 == len(off_the_path(planted(PATH)))


def test_path_that_is_too_long_is_found(plant_path):
    plant_path("ab")
    short = planted({"aotlite.a": "\n" * path.LINES, "aotlite.b": "", "aotlite.c": "\n"})
    assert [] == list(path.lines(short))
    long = planted({"aotlite.a": "\n" * path.LINES, "aotlite.b": "\n", "aotlite.c": ""})
    assert path.LINES + 1 == sum(each.amount for each in path.lines(long))


@pytest.mark.parametrize(
    ("modules", "seams", "said"),
    [
        ("abx", {}, ["aotlite.x: there is no such module"]),
        ("ab", {"x": ["p.c", "d"]}, ["x: the path imports nothing of d"]),
        ("ab", {"x": ["b"]}, ["x: the path imports nothing of b"]),
        ("aab", {}, ["aotlite.a: stands on the path 2 times"] * 2),
        ("ab", {f"m{n}": ["p"] for n in range(21)}, ["m20: is one too many, expected at most 20"]),
    ],
)
def test_path_that_does_not_fit_the_tree_is_found(plant_path, modules, seams, said):
    plant_path(modules, seams)
    assert said == [each.text for each in path.unmet(planted(PATH))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Read beside this page: `aotlite/a.py`.\nAlso on the path: `aotlite/b.py`.", []),
        ("Read beside this page: `aotlite/a.py`.", ["aotlite/b.py: named 0 times by the tour, 1"]),
        (
            "Read beside this page: `aotlite/b.py`, `aotlite/a.py`.\n"
            "Also on the path: `aotlite/d.py`.",
            ["aotlite/d.py: named 1 times by the tour, 0"],
        ),
        (
            "Read beside this page: `aotlite/a.py`, `aotlite/b.py`.\nSee `aotlite/d.py`.",
            [],
        ),
        (
            "Read beside this page: `aotlite/a.py`, `aotlite/a.py`, `aotlite/b.py`.",
            ["aotlite/a.py: named 2 times by the tour, 1"],
        ),
    ],
)
def test_file_that_the_tour_and_the_path_do_not_both_name_is_found(plant_path, text, said):
    plant_path("ab")
    found = list(path.not_as_named(planted(PATH), ["a page", text]))
    assert [f"{each} by the path" for each in said] == found


SLOW = {
    "@pytest.mark.slow('compiles forty kernels')\ndef test_x(): ...": True,
    "@pytest.mark.slow(reason='compiles forty kernels')\ndef test_x(): ...": True,
    "@pytest.mark.slow\ndef test_x(): ...": False,
    "@pytest.mark.slow()\ndef test_x(): ...": False,
    "@pytest.mark.slow('')\ndef test_x(): ...": False,
    "@pytest.mark.slow('slow')\ndef test_x(): ...": False,
    "pytestmark = [pytest.mark.slow]": False,
    "x = pytest.param(1, marks=pytest.mark.slow)": False,
}


@pytest.mark.parametrize("text", SLOW)
def test_slow_test_without_a_reason_is_found(text):
    of_tests = Tree(ROOT)
    of_tests._files["tests"] = {"tests.test_x": Source("tests.test_x", text)}
    assert 1 == len(list(slow.markers(of_tests)))
    assert (0 if SLOW[text] else 1) == len(list(slow.without_reason(of_tests)))


def test_other_marks_are_not_slow():
    of_tests = Tree(ROOT)
    text = "@pytest.mark.long\ndef test_x(): slow = mark.slower"
    of_tests._files["tests"] = {"tests.test_x": Source("tests.test_x", text)}
    assert [] == list(slow.markers(of_tests))


def test_a_file_ends_where_its_last_line_does():
    assert [0, 1, 1, 2] == [Source("m", text).lines for text in ("", "a", "a\n", "a\n\n")]
    assert budgets.FILES == 12 and budgets.STAGE_LINES == 150
