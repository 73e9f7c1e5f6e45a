"""`tools/cpu_times.py` sums the times that `pytest --cpu-times` writes."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "cpu_times.py"
BEFORE = "2.000\ttests/a/test_x.py::test_one[0-a/b]\n1.000\ttests/a/test_x.py::test_one[1]\n"
NOW = BEFORE.replace("2.000", "0.500") + "0.250\ttests/b/test_y.py::Test::test_two\n"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("cpu_times", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("folder", {"tests/a": 1.5, "tests/b": 0.25}),
        ("file", {"tests/a/test_x.py": 1.5, "tests/b/test_y.py": 0.25}),
        ("test", {"tests/a/test_x.py::test_one": 1.5, "tests/b/test_y.py::Test::test_two": 0.25}),
    ],
)
def test_times_are_summed(tool, by, groups):
    assert groups == tool.summed(NOW, by)


def test_the_largest_change_comes_first(tool, tmp_path, capsys):
    files = []
    for name, text in (("now", NOW), ("before", BEFORE)):
        files.append(tmp_path / name)
        files[-1].write_text(text)
    tool.main([str(files[0]), "--before", str(files[1])])
    assert capsys.readouterr().out.splitlines() == [
        "     1.8 s, was      3.0 s  all",
        "     1.5 s, was      3.0 s  tests/a/test_x.py",
        "     0.2 s, was      0.0 s  tests/b/test_y.py",
    ]
