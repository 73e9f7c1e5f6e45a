"""Checks of imports reject circles, ways up, and imports in functions."""

import pytest

from tests.house import circles, lazy, structure
from tests.house.floors import Floors
from tests.house.imports import edges, imports
from tests.house.moves import moved, read
from tests.house.plan import floors, plan
from tests.house.planted import planted
from tests.house.sources import Scope, Source

FLOORS = Floors([["a.low"], ["a.left", "a.right"], ["a.high"], ["a.__init__"]], {})


@pytest.mark.parametrize(
    ("module", "text", "name"),
    [
        ("a.b.c", "import x.y", "x.y"),
        ("a.b.c", "from x import y", "x.y"),
        ("a.b.c", "from . import y", "a.b.y"),
        ("a.b.c", "from .d import y", "a.b.d.y"),
        ("a.b.c", "from ..d import y", "a.d.y"),
        ("a.b.__init__", "from .d import y", "a.b.d.y"),
        ("a.b.__init__", "from .. import y", "a.y"),
        ("a.b.c", "import importlib\nimportlib.import_module('x.y')", "x.y"),
        ("a.b.c", "__import__('x.y')", "x.y"),
        ("a.b.c", "if TYPE_CHECKING:\n    pass\nelse:\n    y = deferred('x.y')", "x.y"),
        ("a.b.c", "class A:\n    import x.y", "x.y"),
        ("a.b.c", "from importlib import import_module as load\nload('x.y')", "x.y"),
        ("a.b.c", "import_module(name='x.y')", "x.y"),
        ("a.b.c", "def f():\n    return sys.modules['x.y'].z", "x.y"),
        ("a.b.c", "def f():\n    return sys.modules.get('x.y')", "x.y"),
        ("a.b.c", "pkgutil.resolve_name('x:y')", "x.y"),
        ("aotlite.b", "import_module('.x.y', 'aotlite')", "aotlite.x.y"),
        ("a.b.c", "from sys import modules\ndef f():\n    return modules['x.y']", "x.y"),
        ("a.b.c", "def f():\n    exec('from x import y', {})", "x.y"),
        ("a.b.c", "load = importlib.import_module\nload('x.y')", ""),
        ("a.b.c", "load(*[__import__])", ""),
        ("a.b.c", "sys.modules[name]", ""),
    ],
)
def test_import_is_resolved(module, text, name):
    assert name in [each.name for each in imports(Source(module, text))]


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("import x", Scope.TOP),
        ("try:\n    import x\nexcept ImportError:\n    pass", Scope.TOP),
        ("class A:\n    import x", Scope.TOP),
        ("def f():\n    import x", Scope.FUNCTION),
        ("class A:\n    async def f(self):\n        if y:\n            import x", Scope.FUNCTION),
        ("if TYPE_CHECKING:\n    import x", Scope.TYPING),
        ("if typing.TYPE_CHECKING:\n    import x", Scope.TYPING),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import x", Scope.TOP),
        ("def f():\n    if TYPE_CHECKING:\n        import x", Scope.FUNCTION),
        ("f = lambda: __import__('x')", Scope.FUNCTION),
    ],
)
def test_scope_of_an_import_is_where_it_stands(text, scope):
    assert [scope] == [each.scope for each in imports(Source("a", text))]


def test_edge_leads_to_the_module_that_holds_a_name():
    files = {
        "a.__init__": "",
        "a.b": "",
        "a.c": "from a import b\nfrom a.b import f\nfrom a import g",
    }
    found = {
        each.target for each in edges({s.module: s for s in map(Source, files, files.values())})
    }
    assert {"a.b", "a"} == found


@pytest.mark.parametrize(
    "back",
    [
        "from aotlite import a",
        "def f():\n    from aotlite.a import x",
        "if TYPE_CHECKING:\n    from aotlite.a import X",
        "def f():\n    importlib.import_module('aotlite.a')",
        "def f():\n    return sys.modules['aotlite.a']",
        "exec('import aotlite.a')",
    ],
)
def test_circle_is_found(back):
    house = planted(
        {"aotlite.a": "import aotlite.b", "aotlite.b": "import aotlite.c", "aotlite.c": back}
    )
    found = [(each.key, each.text) for each in structure.in_circles(house)]
    assert [("circle 01", f"aotlite.{name}") for name in "abc"] == found
    closing = circles.closing(["aotlite.a", "aotlite.b", "aotlite.c"], house.edges)
    assert 1 == len(closing)


def test_import_that_closes_a_circle_is_the_one_in_a_function():
    texts = {
        "a": "import aotlite.b",
        "b": "import aotlite.c",
        "c": "def f():\n    import aotlite.a",
    }
    house = planted({f"aotlite.{name}": text for name, text in texts.items()})
    (edge,) = circles.closing([f"aotlite.{name}" for name in texts], house.edges)
    assert ("aotlite.c", "aotlite.a", Scope.FUNCTION) == (edge.source, edge.target, edge.scope)


def test_package_that_imports_what_it_holds_is_no_circle():
    house = planted(
        {
            "aotlite.p.__init__": "from aotlite.p import a",
            "aotlite.p.a": "import aotlite.b",
            "aotlite.b": "",
        }
    )
    assert [] == list(structure.in_circles(house))


@pytest.mark.parametrize("indent", ["if TYPE_CHECKING:\n    ", "def __getattr__(name):\n    "])
def test_table_of_names_imports_nothing_but_at_its_top(indent):
    files = {"aotlite.__init__": f"{indent}from aotlite.a import X", "aotlite.a": "import aotlite"}
    assert "aotlite" in plan()["tables"]
    for check in (structure.in_circles, structure.in_functions):
        assert [] == list(check(planted(files)))
    at_the_top = planted({**files, "aotlite.__init__": "from aotlite.a import X"})
    assert [] != list(structure.in_circles(at_the_top))


@pytest.mark.parametrize(
    ("source", "target", "is_found"),
    [
        ("low.m", "high", True),
        ("low.m", "left.n", True),
        ("left.m", "right.n", True),
        ("right", "left", True),
        ("high.m", "low.n", False),
        ("left.m", "left.n", False),
        ("high", "left", False),
    ],
)
@pytest.mark.parametrize("indent", ["", "def f():\n    ", "if TYPE_CHECKING:\n    "])
def test_import_that_does_not_go_down_is_found(source, target, is_found, indent):
    files = {f"a.{source}": f"{indent}import a.{target}", f"a.{target}": ""}
    found = edges({module: Source(module, text) for module, text in files.items()})
    assert is_found == bool(list(FLOORS.violations(found)))


def test_own_module_of_a_package_has_a_floor_of_its_own():
    assert "a.__init__" == FLOORS.room("a")
    files = {"a": "import a.low.m", "a.low.m": "import a"}
    found = FLOORS.violations(
        edges({module: Source(module, text) for module, text in files.items()})
    )
    assert [("a.low", "a.__init__")] == [(source, target) for source, target, _ in found]


@pytest.mark.parametrize(
    ("source", "target", "is_found"),
    [("b.x", "b.y", False), ("b.x", "c", True), ("c", "b.x", False), ("b.x", "b.low", False)],
)
def test_module_without_a_room_is_below_what_all_its_neighbors_are_below(source, target, is_found):
    plan = Floors([["a.b.low"], ["a.b.high"], ["a.c"]], {})
    files = {f"a.{source}": f"import a.{target}", f"a.{target}": ""}
    found = edges({module: Source(module, text) for module, text in files.items()})
    assert is_found == bool(list(plan.violations(found)))
    assert [each for each in ("a.b.x", "a.b.y") if each in files] == sorted(plan.unplaced(files))


def test_package_that_may_import_less_imports_no_more():
    plan = Floors([["a.low"], ["a.errors"], ["a.suite"]], {"a.suite": ["a.suite", "a.errors"]})
    files = {
        "a.suite.m": "import a.errors, a.low, a.suite.n",
        "a.errors": "",
        "a.low": "",
        "a.suite.n": "",
    }
    found = plan.violations(edges({module: Source(module, text) for module, text in files.items()}))
    assert ["a.low"] == [edge.target for _, _, edge in found]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("aotlite.ir.graph.nodes", "aotlite.eager.base.tensor"),
        ("aotlite.ir.op.classes", "aotlite.ir.ops.unary"),
        ("aotlite.backends.cpu.emit.c_program", "aotlite.backends.cuda.emit.cuda_program"),
        ("aotlite.backends.protocol", "aotlite.stages.records.backward.joint"),
        ("aotlite.eager.base.tensor", "aotlite.eager.autograd.engine"),
        ("aotlite.stages.records.backward.joint", "aotlite.stages.shared.overlap"),
        ("aotlite.stages.s4_joint.results", "aotlite.stages.s1_capture"),
        ("aotlite.stages.s1_capture.recorder", "aotlite.stages.s10_runtime"),
        ("aotlite.stages.s9_lower", "aotlite.pipeline.journey"),
        ("aotlite.pipeline.journey", "aotlite.api"),
        ("aotlite.api", "aotlite.optim.sgd"),
        ("aotlite.freezing.fold_graph", "aotlite.api"),
        ("aotlite.nn.module", "aotlite.testing.plugin"),
        ("aotlite.conformance.rules", "aotlite.eager.base.tensor"),
        ("aotlite.conformance.adapters.own", "aotlite.eager.base.tensor"),
        ("aotlite.testing.plugin", "aotlite.cli.fuzz"),
    ],
)
def test_plan_forbids_the_way_up(source, target):
    house = planted({source: f"def f():\n    import {target}", target: ""})
    assert 1 == len(list(structure.against_floors(house)))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("aotlite.ir.ops.unary", "aotlite.ir.op.classes"),
        ("aotlite.backends.cpu.emit.c_program", "aotlite.backends.c_family.words"),
        ("aotlite.stages.s4_joint.results", "aotlite.stages.s4_joint"),
        ("aotlite.stages.s4_joint", "aotlite.stages.records.backward.joint"),
        ("aotlite.pipeline.journey", "aotlite.stages.s10_runtime"),
        ("aotlite.conformance.rules", "aotlite.ir.errors"),
        ("aotlite.conformance.adapters.own", "aotlite"),
        ("aotlite.cli.fuzz", "aotlite.testing.plugin"),
    ],
)
def test_plan_accepts_the_way_down(source, target):
    house = planted({source: f"import {target}", target: ""})
    assert [] == list(structure.against_floors(house))


def test_rooms_of_the_plan_are_named_once():
    rooms = [room for floor in floors().floors for room in floor]
    assert len(rooms) == len(set(rooms))


def test_module_without_a_room_is_found():
    house = planted({"aotlite.stages.records.backward.joint": "", "aotlite.stages.drawer": ""})
    found = [(each.key, each.text) for each in structure.without_room(house)]
    assert [("stages", "aotlite.stages.drawer")] == found


def test_room_in_which_no_module_stands_is_found():
    assert ["a.left", "a.high"] == FLOORS.empty(["a.low.m", "a.right", "a"])
    found = {each.key for each in structure.empty_rooms(planted({"aotlite.ir.meta.text": ""}))}
    assert "ir.op" in found and "ir.meta" not in found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f():\n    import aotlite.b", ["aotlite.b"]),
        ("def f():\n    from numpy import zeros", ["numpy.zeros"]),
        ("def f():\n    import json, torch", ["json"]),
        ("def f():\n    importlib.import_module('aotlite.b')", ["aotlite.b"]),
        ("def f(name):\n    importlib.import_module(name)", [""]),
        ("MODULE = importlib.import_module(NAME)", [""]),
        ("importlib.import_module(f'{__name__}.b')", [""]),
        ("def f():\n    return sys.modules['aotlite.b']", ["aotlite.b"]),
        ("def f(name):\n    sys.modules[name] = None", []),
        ("import numpy\nif TYPE_CHECKING:\n    import aotlite.b", []),
        ("def f():\n    import torch\n    from cupy.cuda import Stream", []),
    ],
)
def test_import_in_a_function_is_found(text, names):
    found = lazy.complaints(Source("aotlite.x", text), plan()["optional"])
    assert names == [each.name for each in found]
    house = planted({"aotlite.x": text})
    assert len(names) == len(list(structure.in_functions(house)))


def test_module_that_may_import_by_name_does():
    text = "def f(name):\n    importlib.import_module(name)\n    import json"
    source = Source("aotlite.x", text)
    assert ["json"] == [each.name for each in lazy.complaints(source, (), ["aotlite.x"])]
    sources = {"aotlite.x": source, "aotlite.y": Source("aotlite.y", "import json")}
    assert ["aotlite.y", "aotlite.z"] == lazy.unneeded(
        sources, ["aotlite.x", "aotlite.y", "aotlite.z"]
    )


@pytest.mark.parametrize("table", ["optional", "by_name"])
def test_exception_of_the_plan_says_why(table):
    for name, reason in plan()[table].items():
        assert 2 <= len(reason.split()), name


def test_moves_give_modules_their_names_to_be(tmp_path):
    table = tmp_path / "moves.txt"
    table.write_text(
        "# a comment\n+a.p A package.\na.b a.p.__init__\na.c:Name a.c:Other\na.d a.p.e\n"
    )
    moves = read([table])
    assert {"a.b": "a.p", "a.d": "a.p.e"} == moves
    files = {"a.b": "import a.d", "a.d": "", "a.c": "import a.b"}
    found = moved(edges({module: Source(module, text) for module, text in files.items()}), moves)
    assert {("a.p", "a.p.e"), ("a.c", "a.p")} == {(each.source, each.target) for each in found}


def test_order_of_rooms_is_that_of_their_imports():
    found = circles.generations(
        [("c", "b"), ("b", "a"), ("a", "a"), ("d", "a"), ("x", "y"), ("y", "x")]
    )
    assert [[["a"], ["x", "y"]], [["b"], ["d"]], [["c"]]] == found
