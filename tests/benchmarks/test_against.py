"""The comparison with another commit: what it measures of a version, and how it judges."""

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import against, eager, instructions, machine_code
from benchmarks.against import ROOT, Measurement, Row
from benchmarks.common import wide_console


def row(before: list[float], now: list[float]) -> Row:
    return Row("row", before, now)


def test_a_row_is_judged_by_the_ratio_of_medians():
    assert "slower" == row([1.0, 1.0, 9.0], [1.04, 1.04, 0.1]).verdict
    assert "same" == row([1.0, 1.0, 1.0], [1.02, 1.02, 9.0]).verdict
    assert "faster" == row([1.0], [0.9]).verdict


def test_counts_are_judged_exactly():
    def counted(before: float, now: float) -> Row:
        return Row("row", [before], [now], is_exact=True)

    assert "higher" == counted(1000.0, 1001.0).verdict == counted(0.0, 1.0).verdict
    assert "same" == counted(0.0, 0.0).verdict == counted(7.0, 7.0).verdict
    assert "lower" == counted(1000.0, 999.0).verdict == counted(1.0, 0.0).verdict


def test_higher_rows_are_named(capsys):
    rows = [Row("a", [1.0], [1.0], is_exact=True), Row("b", [0.0], [2.0], is_exact=True)]
    against.report(rows, wide_console())
    assert "higher: b\n" in capsys.readouterr().out


def test_slower_rows_are_named(capsys):
    console = wide_console()
    against.report([Row("a", [1.0], [1.0]), Row("b", [1.0], [2.0])], console)
    assert "slower by more than 3%: b" in capsys.readouterr().out


def test_versions_run_by_turns_and_the_first_round_is_not_counted(monkeypatch):
    ran = []

    def run(measurement: Measurement, version: Path, folder: Path) -> dict[str, float]:
        ran.append(str(version))
        return {"row": float(len(ran))}

    monkeypatch.setattr(against, "run", run)
    measurement = Measurement("row", (), lambda *_: {})
    rows = against.compare([measurement], (Path("before"), Path("now")), Path(), 2)
    assert ["now", "before", "before", "now", "now", "before"] == ran
    assert [Row("row", [3.0, 6.0], [4.0, 5.0])] == rows


@pytest.mark.parametrize("name", ["start", "eager"])
def test_a_version_without_a_library_is_not_measured(name, tmp_path):
    """Neither this checkout's library is measured in its place, nor an installed one."""
    measurement = next(against.BENCHMARKS[name]())
    with against.driver() as folder:
        with pytest.raises(RuntimeError, match="has no aotlite"):
            against.run(measurement, tmp_path, folder)


@pytest.mark.parametrize("name", ["start", "eager"])
def test_a_version_is_imported_from_its_folder(name, tmp_path):
    (tmp_path / "aotlite").mkdir()
    (tmp_path / "aotlite" / "__init__.py").write_text("raise ImportError('of the folder')")
    measurement = next(against.BENCHMARKS[name]())
    with against.driver() as folder:
        with pytest.raises(RuntimeError, match="of the folder"):
            against.run(measurement, tmp_path, folder)


def test_start_up_is_measured_in_seconds_of_the_processor():
    measurement = next(against.BENCHMARKS["start"]())
    with against.driver() as folder:
        found = against.run(measurement, ROOT, folder)
    assert 0.01 < found["first tensor"] < 60


def test_instructions_are_counted_alike_each_time():
    def action(times):
        return lambda: [i * i for i in range(times)]

    assert instructions.count(action(3)) == instructions.count(action(3))
    assert instructions.count(action(4)) > instructions.count(action(3))


def test_instructions_of_calls_have_a_row_for_each_op_of_the_eager_benchmark():
    found = instructions.of_calls("eager")
    assert {case.name for case in eager.CASES} == {name.split(":")[0] for name in found}
    assert found["add: aotlite: instructions"] < found["add: aotlite with grad: instructions"]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump (binutils)")
def test_machine_instructions_of_a_library_are_counted(tmp_path):
    (tmp_path / "f.c").write_text("int f(int x) { return 3 * x + 1; }")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "f.so"
    subprocess.run([compiler, "-shared", "-O1", "-o", library, tmp_path / "f.c"], check=True)
    short = machine_code.instructions(library)
    (tmp_path / "f.c").write_text("int f(int x) { return 3 * x + 1; } int g(int *x) { return *x; }")
    subprocess.run([compiler, "-shared", "-O1", "-o", library, tmp_path / "f.c"], check=True)
    assert 0 < short < machine_code.instructions(library) < short + 20
