"""Deferred modules: imported when they are used, and the ones that the module says it imports."""

import ast
import subprocess
import sys

import pytest

from aotlite.ir.deferred import deferred
from tests.house.sources import tree

DEFERS = """
if TYPE_CHECKING:
    from here import graph as graphs
    from here.there import {imported}
else:
    graphs = deferred("here.graph")
    straight = deferred("here.there.straight")
"""


def test_a_deferred_module_is_imported_by_its_first_use():
    code = (
        "import sys; from aotlite.ir.deferred import deferred; found = deferred('colorsys');"
        "before = 'colorsys' in sys.modules; found.rgb_to_yiq;"
        "print(before, 'colorsys' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False True" == run.stdout.strip()


def test_a_name_of_a_deferred_module_is_looked_up_each_time(monkeypatch):
    """So that what a test puts in its place is what is called."""
    import colorsys

    found = deferred("colorsys")
    assert found.rgb_to_hls is colorsys.rgb_to_hls
    monkeypatch.setattr(colorsys, "rgb_to_hls", len)
    assert found.rgb_to_hls is len


def test_a_module_that_is_absent_raises_at_its_first_use():
    found = deferred("aotlite.absent")
    with pytest.raises(ModuleNotFoundError, match=r"aotlite\.absent"):
        _ = found.name
    assert "deferred('aotlite.absent')" == repr(found)


def imported(body: list[ast.stmt]) -> dict[str, str]:
    """Modules by the names that these imports give them."""
    found = {}
    for statement in body:
        for alias in getattr(statement, "names", ()):
            within = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
            found[alias.asname or alias.name] = within + alias.name
    return found


def deferrals(source: str) -> list[tuple[str, str, str | None]]:
    """For each deferred module of a text its name there, itself, and what checkers see by that
    name."""
    tree = ast.parse(source)
    shown = {
        id(statement): imported(condition.body)
        for condition in ast.walk(tree)
        if isinstance(condition, ast.If) and "TYPE_CHECKING" == ast.unparse(condition.test)
        for statement in condition.orelse
    }
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Name(id="deferred"), args=[ast.Constant(value=str(module))]
                ),
            ):
                found.append((name, module, shown.get(id(node), {}).get(name)))
    return found


def test_type_checkers_see_the_modules_that_are_deferred():
    texts = [source.text for source in tree().product.values() if "deferred(" in source.text]
    found = [each for text in texts for each in deferrals(text)]
    assert found
    assert [] == [(name, module, seen) for name, module, seen in found if module != seen]


@pytest.mark.parametrize("imports, seen", [("straight", True), ("reference as straight", False)])
def test_a_deferred_module_that_checkers_see_as_another_is_found(imports, seen):
    *_, (_, module, shown) = deferrals(DEFERS.format(imported=imports))
    assert seen is (module == shown)


def test_a_deferred_module_that_no_checker_sees_is_found():
    assert [("x", "here.graph", None)] == deferrals('x = deferred("here.graph")')
