"""The tool of mutation testing: sample, runs, ledger and counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

pytest.importorskip("cosmic_ray", reason="the extra `mutation` is not installed")

from cosmic_ray.mutating import mutate_code

from tests.mutation import equivalents, ledger
from tests.mutation.child import Verdict
from tests.mutation.ledger import Ledger, LedgerError
from tests.mutation.operators import OWN
from tests.mutation.reach import Reach, digest, load, unreached
from tests.mutation.sample import A_FUNCTION, sample
from tests.mutation.sites import Mutant, sites_in, sites_of, source_of
from tests.mutation.summary import kind_of, wilson
from tests.mutation.swapped import may_be_swapped
from tests.mutation.targets import FILES, ROOT, stratum_of

SMALL: dict[str, tuple[str, ...]] = {
    "functionalize": ("aotlite/stages/s7_simplify/dead_scatters.py",),
    "overlap": ("ir/geometry/lattice.py",),
}


def mutant_of(function: str, operator: str, ordinal: int) -> Mutant:
    key = f"ir/geometry/overlap.py::{function}::{operator}::{ordinal}"
    return next(m for site in sites_of("ir/geometry/overlap.py") for m in site if m.key == key)


# ------------------------------------------------------------------------------------- the sample
def test_the_sample_is_the_same_for_a_seed_and_spread_over_strata_and_functions() -> None:
    found = sample(3, 3, SMALL)
    assert found == sample(3, 3, SMALL) != sample(4, 3, SMALL)
    assert ["functionalize"] * 3 + ["overlap"] * 3 == [mutant.stratum for mutant in found]
    functions = [mutant.function for mutant in found]
    assert max(map(functions.count, functions)) <= A_FUNCTION
    assert len({mutant.key for mutant in found}) == len(found)
    assert all(mutant.source() not in (None, source_of(mutant.file)) for mutant in found)


def test_every_file_is_there_and_in_one_stratum() -> None:
    assert len(set(FILES)) == len(FILES)
    assert all((ROOT / file).is_file() and stratum_of(file) for file in FILES)


SOURCE = '''
from a import b


@b(1 + 1)
class Made:
    """1 + 1."""

    field: int = 1 + 1

    def __repr__(self) -> str:
        return str(1 + 1)


def f(x: int | None = 3) -> int | None:
    assert x != 4
    if x is None:
        raise ValueError(f"{1 + 1}", 1 + 1)
    return sum(zip([x], [x], strict=True)) + 1
'''


def test_texts_annotations_assertions_and_fields_are_left_out() -> None:
    found = {
        (m.operator, m.line) for site in sites_in("ir/geometry/overlap.py", SOURCE) for m in site
    }
    assert {line for _, line in found} <= {15, 17, 18, 19}
    assert ("NumberReplacer", 15) in found
    assert ("DeleteStatement", 18) in found
    assert ("ReplaceComparisonOperator_Is_IsNot", 17) in found
    assert ("ReplaceTrueWithFalse", 19) not in found
    assert 18 not in {line for operator, line in found if operator != "DeleteStatement"}


@pytest.mark.parametrize("operator", OWN)
def test_operators_do_what_their_examples_say(operator: type) -> None:
    given = {
        "DeleteStatement": ("if a:\n    b = 1\n", "if a:\n    pass\n"),
        "ReturnNone": ("def f():\n    return 1\n", "def f():\n    return None\n"),
        "ForceCondition": ("[a for a in b if a]", "[a for a in b if True]"),
        "DropOperand": ("x = a and b", "x = b"),
        "SwapMembership": ("a not in b", "a in b"),
        "SwapArguments": ("f(a, b, c)", "f(b, a, c)"),
    }
    before, after = given[operator.__name__]
    found = mutate_code(before, operator(), 0)
    assert found is not None
    assert after.split() == found.split()
    assert mutate_code("a", operator(), 0) is None


# ------------------------------------------------------------------------------------- the running


@attrs.frozen
class Trial:
    """A mutant, and the settings of its run."""

    mutant: Mutant
    text: str = ""
    """A text that is appended to its module."""
    seconds: float = 20.0
    """The limit for the import of its module."""
    swaps: bool = False


PAIRS = "overlap compare_pairs #0"


def trials() -> dict[str, Trial]:
    """The trials; the swapped one comes last, as its process imports aotlite."""
    return {
        "wrong": Trial(mutant_of("_meet", "ReturnNone", 2)),
        "equivalent": Trial(mutant_of("", "NumberReplacer", 2)),
        "hangs": Trial(mutant_of("_meet", "ReturnNone", 2), "\nwhile 1: 1", 1.0),
        "ends": Trial(mutant_of("_meet", "ReturnNone", 2), "\nimport os; os._exit(3)"),
        "raises": Trial(mutant_of("_meet", "ReturnNone", 2), "\n1 / 0"),
        "swapped": Trial(mutant_of("_meet", "ReturnNone", 2), swaps=True),
    }


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """The verdicts of all trials, from a fresh process, as this one has imported aotlite."""
    program = f"""
import attrs, json
from tests.mutation import child
from tests.mutation.sites import Mutant
from tests.mutation.running import Plan, run_all
from tests.mutation.reach import Reach

class Planted(Mutant):
    def source(self):
        return super().source() + text

child.preload()
found = {{}}
for name, trial in { ({name: attrs.asdict(each) for name, each in trials().items()})!r}.items():
    text, child.IMPORT = trial["text"], trial["seconds"]
    mutant = Planted(**trial["mutant"])
    reach = Reach("", {{{PAIRS!r}: 0.1}}, {{}}, {{mutant.file: {{mutant.line: [{PAIRS!r}]}}}})
    [(_, verdict)] = run_all([mutant], Plan(reach, swaps=trial["swaps"]))
    found[name] = attrs.asdict(verdict)
print(json.dumps(found))
"""
    found = subprocess.run(
        # -P is not given: the checkout, where it is run, comes before an installed aotlite.
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: Verdict(**each) for name, each in json.loads(found.stdout).items()}


@pytest.mark.slow("imports aotlite with six mutants, in processes of their own")
@pytest.mark.parametrize("name", ["wrong", "swapped"])
def test_a_wrong_answer_is_caught_by_its_property(verdicts: dict[str, Verdict], name: str) -> None:
    found = verdicts[name]
    assert ("caught", PAIRS) == (found.kind, found.by)
    assert found.text.startswith("AssertionError")


@pytest.mark.slow("imports aotlite with six mutants, where it is the first that asks for them")
def test_an_equivalent_mutant_survives_all_cases(verdicts: dict[str, Verdict]) -> None:
    """A number of steps after which a search is given up for a way that finds the same."""
    found = verdicts["equivalent"]
    assert ("survived", 1, 1) == (found.kind, found.cases, found.of)


@pytest.mark.slow("imports aotlite with six mutants, where it is the first that asks for them")
@pytest.mark.parametrize(
    ("name", "kind"), [("hangs", "hang"), ("ends", "crash"), ("raises", "crash")]
)
def test_hangs_and_crashes_are_contained(
    verdicts: dict[str, Verdict], name: str, kind: str
) -> None:
    assert kind == verdicts[name].kind


def test_code_is_swapped_where_it_did_not_run_before() -> None:
    mutant = mutant_of("_meet", "ReturnNone", 2)
    assert may_be_swapped(mutant, {("ir/geometry/overlap.py", 1)})
    assert not may_be_swapped(mutant, {("ir/geometry/overlap.py", mutant.line - 1)})
    assert not may_be_swapped(mutant_of("", "NumberReplacer", 2), set())


# ------------------------------------------------------------------------------- record and ledger
def test_only_cases_that_execute_the_statement_are_run() -> None:
    lines = {"ir/geometry/overlap.py": {800: ["a"], 801: ["a", "b"], 900: ["c"]}}
    reach = Reach("", {"a": 1.0, "b": 1.0, "c": 1.0}, {}, lines)
    assert ["a", "b"] == reach.cases_of("ir/geometry/overlap.py", 800, 802)
    assert [] == reach.cases_of("ir/geometry/overlap.py", 901, 901)
    source = Path("ir/geometry/overlap.py").read_text("utf-8").splitlines()
    at_import = source.index("_EXACT_RANK = 6") + 1
    assert ["a", "b", "c"] == reach.cases_of("ir/geometry/overlap.py", at_import, at_import)


def test_a_record_is_read_back_and_that_of_other_code_refused(tmp_path: Path) -> None:
    path = tmp_path / "reach.gz"
    lines = {"ir/geometry/overlap.py": {5: ["a"], 6: ["a", "b"]}}
    made = Reach(digest(), {"a": 1.0, "b": 1.5}, {"c": "slow"}, lines)
    made.save(path)
    assert made == load(path)
    assert {"ir/geometry/overlap.py": {5: [], 6: ["b"]}} == made.only(["a", "b", "d"], "a").lines
    assert {"a": 1.0} == made.only(["a"], None).seconds
    attrs.evolve(made, digest="").save(path)
    with pytest.raises(ValueError, match="is of other code"):
        load(path)


def test_unreached_lines_are_those_of_functions_that_no_case_executes() -> None:
    everything = unreached(Reach("", {}, {}, {}), "ir/geometry/overlap.py")
    assert "return False" in everything.values()
    assert "_EXACT_RANK = 6" not in everything.values()
    lines = {"ir/geometry/overlap.py": {line: ["a"] for line in everything}}
    assert {} == unreached(Reach("", {"a": 1.0}, {}, lines), "ir/geometry/overlap.py")


def ledger_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setattr(ledger, "sample", lambda seed, each: sample(seed, each, SMALL))
    return ledger.begin(path, 0, 2)


def test_a_ledger_is_gone_on_with_where_it_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    book = ledger_at(path, monkeypatch)
    first, second, *_ = book.mutants
    book.add(first, Verdict("caught", "a case"))
    book.add(second, Verdict("survived"))
    path.write_text(path.read_text()[:-20])
    again = ledger.read(path)
    assert book.mutants == again.mutants
    assert [first.key] == list(again.verdicts)
    assert book.mutants[1:] == again.missing()
    again.add(second, Verdict("caught", "another"))
    assert ledger.read(path).verdicts == {first.key: book.verdicts[first.key]} | {
        second.key: Verdict("caught", "another")
    }


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [('"version": 1', '"version": 0', "header"), (digest(), "0" * 16, "of other code")],
)
def test_a_ledger_of_another_version_or_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, text: str
) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger_at(path, monkeypatch)
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(LedgerError, match=text):
        ledger.read(path)


# --------------------------------------------------------------------------------------- the rates
def test_intervals_are_wilsons() -> None:
    """As R's prop.test without correction gives them."""
    assert (0.8256, 0.9448) == tuple(round(x, 4) for x in wilson(90, 100))
    assert (0.0, 0.2775) == tuple(round(x, 4) for x in wilson(0, 10))
    assert (0.0, 1.0) == wilson(0, 0)


def test_all_arguments_for_equivalence_are_about_lines_that_are_there() -> None:
    assert all(equivalents.load().values())


def test_an_argument_about_a_line_that_is_gone_is_refused(tmp_path: Path) -> None:
    mutant = mutant_of("_meet", "ReturnNone", 2)
    entry = '[[mutant]]\nkey = "{}"\ntext = "{}"\nreason = "none"\n'
    path = tmp_path / "equivalent.toml"
    path.write_text(entry.format(mutant.key, mutant.text))
    argued = equivalents.load(path)
    assert "equivalent" == kind_of(mutant, Verdict("survived"), argued)
    assert "caught" == kind_of(mutant, Verdict("caught"), argued)
    path.write_text(entry.format(mutant.key, "return 3"))
    with pytest.raises(equivalents.OutdatedError, match="_meet::ReturnNone::2"):
        equivalents.load(path)
