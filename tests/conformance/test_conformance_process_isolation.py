"""A library that crashes, hangs or is not there is a finding; `aotlite conformance` prints it."""

import json
from pathlib import Path

import pytest

from aotlite.cli import main
from aotlite.conformance import Adapter, check
from aotlite.conformance.isolation import process
from aotlite.conformance.isolation.process import examine
from aotlite.conformance.libraries import LIBRARIES, adapter_of, required
from aotlite.conformance.outcomes import Dies, Keeps, Lacks
from aotlite.conformance.report import PREFACE
from aotlite.ir.errors import ArgumentError, MissingExtraError
from tests.conformance.helpers.adapters import Nothing

HERE = "tests.conformance.helpers.adapters"
RULES = ["TEN-2a", "TEN-2i", "WRT-4", "WRT-9"]


def words(report):
    return [type(result.outcome).__name__ for result in report.results]


def test_a_library_without_ops_breaks_nothing():
    report = check(Nothing)
    assert (report.broken, report.kept, report.chosen) == ((), (), ())
    assert {Lacks} == {type(result.outcome) for result in report.results}
    assert all(result.outcome.missing for result in report.results)


def test_a_crash_ends_one_rule_only():
    report = examine(f"{HERE}:Crashing", RULES)
    assert ["Keeps", "Dies", "Keeps", "Dies"] == words(report)
    assert (
        Dies("crashes (signal 11)", "((1, 1), (('diagonal',),))", "diagonal")
        == report.results[1].outcome
    )


def test_an_exit_is_a_crash():
    report = examine(f"{HERE}:Leaving", ["TEN-2i", "TEN-2n"])
    assert "crashes (exit status 3)" == report.results[0].outcome.how
    assert (
        "TEN-2i  diagonal is a view: crashes (exit status 3) in diagonal at case" in report.table()
    )


def test_a_hang_ends_one_rule_only():
    report = examine(f"{HERE}:Hanging", ["TEN-2a", "TEN-2i", "TEN-2n"], seconds=2)
    assert ["Keeps", "Dies", "Keeps"] == words(report)
    expected = Dies("hangs (> 2 s)", "((1, 2), (('transpose', 0, 1), ('diagonal',)))", "diagonal")
    assert expected == report.results[1].outcome


def test_a_deadly_method_is_absent_after_three_rules():
    report = examine(f"{HERE}:Crashing", ["TEN-2i", "TEN-1a", "TEN-1b", "TEN-1c", "WRT-9"])
    assert ["Dies"] * 3 + ["Keeps", "Lacks"] == words(report)
    missing = "diagonal, which crashes (signal 11)"
    assert (missing in report.results[3].outcome.without, report.results[4].outcome) == (
        True,
        Lacks((missing,)),
    )


def test_an_import_that_hangs_is_not_run(monkeypatch):
    monkeypatch.setattr(process, "START_SECONDS", 3)
    assert "its import hangs (> 3 s)" == examine(f"{HERE}:Slow", RULES).not_run


def test_what_a_library_prints_is_no_message():
    report = examine(f"{HERE}:Printing", ["TEN-2i", "TEN-2a"])
    assert [Keeps, Keeps] == [type(result.outcome) for result in report.results]


def test_contained_is_in_process():
    assert check(adapter_of("numpy"), RULES) == examine("numpy", RULES)


def test_results_are_told_as_they_come():
    seen = []
    examine("numpy", RULES, found=seen.append)
    assert ["TEN-2a", "TEN-2i", "WRT-4", "WRT-9"] == [result.rule for result in seen]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Silent", "its import ended with exit status 1: no license"),
        ("Deviceless", "conformance: no device is there, expected one"),
    ],
)
def test_a_library_that_cannot_run_is_not_run(name, reason):
    report = examine(f"{HERE}:{name}", RULES)
    assert (report.not_run, report.results) == (reason, ())


@pytest.mark.parametrize(
    ("library", "message"),
    [
        (":Class", "library is ':Class', expected one of numpy, "),
        ("nump", "library is 'nump', expected one of numpy, "),
        ("no_such_module:X", "module 'no_such_module' is not found"),
        (f"{HERE}:Missing", "has no 'Missing', expected a class of adapters"),
        (f"{HERE}:NOT_AN_ADAPTER", "is 3, expected a subclass"),
    ],
)
def test_what_is_no_library_is_refused(library, message):
    with pytest.raises(ArgumentError, match=message):
        examine(library, RULES)


def test_a_misspelt_method_is_refused():
    """It would make rules absent, and nobody would look for it."""

    class Misspelt(Adapter):
        def setitm(self, a, key, value):
            a[key] = value

    message = r"method is 'setitm', expected one of Adapter's, or _setitm \(is 'setitem' meant\?\)"
    with pytest.raises(ArgumentError, match=message):
        check(Misspelt)


def test_a_method_with_other_parameters_is_refused():
    class Short(Adapter):
        def narrow(self, a, dim):
            return a

        def _helper(self):
            return None

    message = r"Short.narrow: its parameters are \(a, dim\), expected \(a, dim, start, length\)"
    with pytest.raises(ArgumentError, match=message):
        check(Short)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ArgumentError, match="rule is 'TEN-99', expected an id or a group"):
        examine("numpy", ["TEN-99"])


def test_a_missing_library_says_what_to_install():
    with pytest.raises(MissingExtraError, match=r"not installed, expected .* pip install nothing"):
        required("no_such_module", "nothing")


def test_shipped_adapters_are_short():
    for place in LIBRARIES.values():
        path = Path(*place.partition(":")[0].split(".")).with_suffix(".py")
        assert len((Path(__file__).parents[2] / path).read_text("utf-8").splitlines()) < 100


def test_the_command_prints_table_and_witness(capsys):
    assert main(["conformance", f"{HERE}:Mine", "numpy", "--rules", "TEN-2a", "TEN-1d"]) == 0
    printed = capsys.readouterr().out
    for text in (
        "TEN-2a",
        "mine 1.2 breaks TEN-2a: narrow is a view\n    a = np.array([0], 'int64')\n",
        "    b = np.take(a, range(0, 1), 0)\n",
        "\nmine 1.2: keeps 1, breaks 1, absent 0\n",
        ": keeps 2, breaks 0, absent 0\n",
    ):
        assert text in printed


def test_strict_is_a_status(capsys):
    assert main(["conformance", "numpy", "--rules", "TEN-2a", "--strict"]) == 0
    with pytest.raises(SystemExit) as exit:
        main(["conformance", f"{HERE}:Mine", "--rules", "TEN-2a", "--strict"])
    assert exit.value.code == 1


def test_nothing_that_ran_is_a_status(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["conformance", f"{HERE}:Deviceless", "--rules", "TEN-2a"])
    assert exit.value.code == 1
    assert "Deviceless: not run: conformance: no device" in capsys.readouterr().out


def test_errors_of_ours_are_a_line(capsys):
    assert main(["conformance", "nump"]) == 2
    assert capsys.readouterr().err.strip().startswith("aotlite: conformance: library is 'nump'")


def test_the_list_has_the_claims(capsys):
    assert main(["conformance", "--list", "--rules", "TEN-7d"]) == 0
    printed = capsys.readouterr().out
    assert (
        "overlap: Overlapping writes\n  TEN-7d  overlapping copies: refused or right\n" in printed
    )


def test_the_markdown_of_numpy(tmp_path, capsys):
    page = tmp_path / "page.md"
    rules = ["TEN-1d", "TEN-1e", "WRT-9", "IMM-7"]
    main(["conformance", "numpy", f"{HERE}:Deviceless", "--rules", *rules, "--markdown", str(page)])
    version = json.dumps(adapter_of("numpy").version).strip('"')
    preface = PREFACE.format(libraries=f"numpy {HERE}:Deviceless")
    assert preface + "\n" + GOLDEN.replace("VERSION", version) == page.read_text("utf-8")


GOLDEN = """\
- numpy VERSION: keeps 1, breaks 1, absent 1, choices 1
- tests.conformance.helpers.adapters:Deviceless: not run: conformance: no device is there, \
expected one

## Geometry of views

| rule | | numpy | tests.conformance.helpers.adapters:Deviceless |
|---|---|---|---|
| TEN-1d | a new array is dense in row-major order | keeps | not run |
| TEN-1e | geometry past the end of memory is refused | **breaks** | not run |

## Writes in place

| rule | | numpy | tests.conformance.helpers.adapters:Deviceless |
|---|---|---|---|
| WRT-9 | diagonal can be written | no | not run |

## Immutable arrays

| rule | | numpy | tests.conformance.helpers.adapters:Deviceless |
|---|---|---|---|
| IMM-7 | a functional update has the values of a write | absent | not run |

## What numpy VERSION breaks

**TEN-1e** geometry past the end of memory is refused

```python
a = np.array([0], 'int64')
b = as_strided(a[0:], (2,), [step * a.itemsize for step in (1,)])
# whether as_strided refused: got False, expected True
```

Documented: `as_strided` checks nothing, and reads memory past the end.
"""
