"""`tools/stale.py` finds a generated file that is not what its generator gives, and renews it."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools"
HELPERS = {"lint", "make_digits", "stale", "tests_against", "typecheck"}
"""Tools that write nothing which could grow stale, and the one that is tested here."""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    known = set(sys.modules)
    import stale

    yield stale
    for name in {path.stem for path in TOOLS.glob("*.py")} & (set(sys.modules) - known):
        del sys.modules[name]


@pytest.fixture
def page(tool, tmp_path, monkeypatch):
    """A page of one word, generated from another word."""
    path = tmp_path / "page.md"
    path.write_text("old", "utf-8")
    entry = tool.Generated("a page", "python tools/page.py", lambda: {path: "new"})
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "GENERATED", (entry,))
    return path


def test_a_stale_page_is_named_with_its_command(tool, page, capsys):
    assert 1 == tool.main([])
    assert "STALE        a page: page.md: python tools/page.py" in capsys.readouterr().out
    assert "old" == page.read_text("utf-8")


def test_write_renews_a_stale_page(tool, page, capsys):
    assert 0 == tool.main(["--write"])
    assert "renewed      a page: page.md" in capsys.readouterr().out
    assert ("new", 0) == (page.read_text("utf-8"), tool.main([]))


def test_a_generator_that_cannot_run_is_said_and_passes(tool, capsys, monkeypatch):
    def needs_more():
        raise ImportError("no such package")

    entries = (
        tool.Generated("one", "python one.py", needs_more),
        tool.Generated("two", "python two.py", needs_more, is_slow=True),
    )
    monkeypatch.setattr(tool, "GENERATED", entries)
    assert 0 == tool.main([])
    lines = capsys.readouterr().out.splitlines()
    assert "not checked  one: no such package" == lines[0]
    assert lines[1].startswith("not checked  two: takes minutes")


def test_the_list_of_packages_is_made_of_the_folders(tool, tmp_path, monkeypatch):
    setup = tmp_path / "setup.cfg"
    before, after = "[options]\npackages =\n    aotlite\n", "package_dir =\n    aotlite = aotlite\n"
    setup.write_text(before + after, "utf-8")
    for name in ("aotlite", "aotlite/new", "ir"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "SETUP", setup)
    expected = before + "    aotlite.ir\n    aotlite.new\n" + after
    assert {setup: expected} == tool.packages()


def test_every_tool_that_writes_a_file_is_in_the_table(tool):
    commands = " ".join(each.command for each in tool.GENERATED)
    writing = {
        path.stem
        for path in TOOLS.glob("*.py")
        if "write_text(" in path.read_text("utf-8") and path.stem not in HELPERS
    }
    assert set() == {name for name in writing if f"tools/{name}.py" not in commands}
    assert len(writing) >= 5
