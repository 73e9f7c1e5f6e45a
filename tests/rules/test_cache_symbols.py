"""CACHE-20: entries whose sizes are symbols are kept, and serve the calls that they served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import aotlite as al
from aotlite.artifacts import recording
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.pipeline.size_regions.region import SizeRegion
from tests.artifacts import sized_programs
from tests.artifacts.looked_up import cached, outcomes

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
SCALE = 2.0


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))


def branching(x: Any, y: Any) -> Any:
    if x.shape[0] > 3:
        return (x @ y).sin().sum(0) * x.shape[1]
    return x * 2


def scaled(x: Any, n: int = 1) -> Any:
    return (x * SCALE * n).sum()


def called(compiled: Any, sizes: list[int]) -> list[Any]:
    found = []
    for n in sizes:
        x = al.ones(n, 4, requires_grad=True)
        out = compiled(x, al.ones(4, n))
        out.sum().backward()
        grad: Any = x.grad
        found.append((out.tolist(), grad.tolist()))
    return found


@pytest.mark.rules("CACHE-20", "CACHE-6")
@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=needs_compiler)])
def test_drawn_programs_with_sizes_do_restored_what_eager_does(backend, tmp_path):
    """The command `python -m tests.artifacts.sized_programs` runs any number."""
    figures = sized_programs.run(range(40, 45 if backend == "reference" else 42), tmp_path, backend)
    assert [] == figures.wrong
    assert figures.kept == figures.restored > 1
    assert 0 < figures.served < figures.asked


@pytest.mark.rules("CACHE-20")
def test_each_region_of_a_function_is_restored_with_its_conditions_and_proof():
    sizes = [5, 7, 2, 9, 3]
    fresh = called(branching, sizes)
    runs = []
    for expected in (["miss", "kept"] * 3, ["hit"] * 3):
        with outcomes() as found:
            compiled = cached(branching)
            assert fresh == called(compiled, sizes)
        assert expected == found
        runs.append(compiled)
    cold, warm = ([RowText.of(row) for row in run.regions(witnesses=True)] for run in runs)
    assert cold == warm
    assert ["s0 > 3: needed at s0=3, s1=5"] == warm[1][-1]


class RowText:
    """A row of a report, without its number."""

    @staticmethod
    def of(row: Any) -> Any:
        guards = [str(each) for each in row.guards]
        facts = row.arguments, guards, row.sizes, row.calls, row.proof, row.unknown
        return (*facts, [str(each) for each in row.needs])


@pytest.mark.rules("CACHE-20")
def test_sizes_that_the_capture_had_as_numbers_are_no_part_of_the_reads():
    """Which sizes are symbols counts: another call with other symbols is compiled."""
    x = al.ones(5, 4)
    cached(scaled, dynamic=True)(x, 3)
    with outcomes() as found:
        assert 5 * 9 * 2.0 * 7 == cached(scaled, dynamic=True)(al.ones(5, 9), 7).item()
        assert 40.0 == cached(scaled)(x).item()  # numbers, as nothing was called before
        assert 40.0 == cached(scaled, dynamic=True)(x).item()  # without the int
    assert ["hit", "miss", "kept", "miss", "kept"] == found


@pytest.mark.rules("CACHE-20", "CACHE-15")
def test_a_bundle_has_the_entries_of_all_sizes(tmp_path):
    compiled = cached(branching)
    fresh = called(compiled, [5, 7, 2])
    compiled.save(tmp_path / "a")
    ready = al.load(tmp_path / "a", branching, compiles=False)
    assert fresh == called(ready, [5, 7, 2])
    assert called(branching, [11, 1]) == called(ready, [11, 1])
    assert 3 == len(ready.entries)
    alone = al.load(tmp_path / "a")
    assert called(branching, [8]) == called(alone, [8])
    (row,) = alone.regions(witnesses=True)
    assert "not examined, since it was loaded without its function" == row.unknown


@pytest.mark.rules("CACHE-20", "DYN-3")
def test_an_entry_of_a_bundle_serves_no_tensor_whose_mark_it_does_not_agree_with(tmp_path):
    compiled = cached(scaled)
    compiled(al.ones(5, 4))
    compiled(al.ones(6, 4))
    compiled.save(tmp_path / "a")
    fixed = al.ones(6, 4)
    al.mark_static(fixed)
    with pytest.raises(al.GuardError, match="marked as static"):
        al.load(tmp_path / "a", scaled, compiles=False)(fixed)


@pytest.mark.rules("CACHE-20", "CACHE-14")
def test_derivatives_are_captured_at_the_sizes_of_the_first_call(tmp_path):
    """Program 1211 made small: at a size that is a multiple of 3 a rule knows more, and a capture
    there would be right for such sizes alone."""

    def filled(x: Any) -> Any:
        y = x * x
        y[: x.shape[0] % 3] = 3.0
        return y.sum()

    compiled = cached(filled, dynamic=True)
    compiled(al.ones(4, requires_grad=True))
    compiled.save(tmp_path / "a")
    ready = al.load(tmp_path / "a", filled, compiles=False)
    for n in (9, 5, 4):
        x = al.full((n,), 3.0, requires_grad=True)
        (first,) = al.autograd.grad(ready(x), x, create_graph=True)
        (second,) = al.autograd.grad((first * first).sum(), x)
        assert [0.0] * (n % 3) + [24.0] * (n - n % 3) == second.tolist()


@pytest.mark.rules("CACHE-20")
def test_named_sizes_and_bounds_are_those_of_the_cold_run():
    named = {"x": {0: al.Dim("n", max=8)}}
    for expected in (["miss", "kept"], ["hit"]):
        with outcomes() as found:
            compiled = cached(scaled, dynamic_shapes=named)
            assert 40.0 == compiled(al.ones(5, 4)).item()
            assert 64.0 == compiled(al.ones(8, 4)).item()
        assert expected == found
    (row,) = compiled.regions()
    assert (("s0: n",), ("s0 is 0 to 8",)) == (row.names, row.bounds)


@pytest.mark.rules("CACHE-20", "CACHE-15")
@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: al.Dim("n", max=8)}},
        [{0: al.Dim("n", min=2), 1: None}],
        ({0: True},),
    ],
    ids=["dict", "list", "tuple"],
)
def test_named_sizes_are_those_of_the_bundle(shapes, tmp_path):
    compiled = cached(scaled, dynamic_shapes=shapes)
    compiled(al.ones(5, 4))
    compiled.save(tmp_path / "a")
    ready = al.load(tmp_path / "a", scaled)
    assert ready.options.dynamic_shapes == shapes
    assert 64.0 == ready(al.ones(8, 4)).item()
    ready(al.ones(8, 4, 2))  # compiled, with the names of the bundle
    assert 2 == len(ready.entries)
    assert all("s0" in row.arguments[0] for row in ready.regions())


REASONS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "counts": (lambda x: x.nonzero(), (al.ones(3),), "a size depends on values of tensors"),
    "floats": (
        lambda x, f: x * f,
        (al.ones(3), 2.0),
        "the value argument 1, which each call computes",
    ),
}


@pytest.mark.rules("CACHE-3", "CACHE-20")
@pytest.mark.parametrize("case", REASONS)
def test_what_is_not_kept_with_symbols_has_its_reason(case):
    function, args, reason = REASONS[case]
    with outcomes() as found:
        cached(function, dynamic=True)(*args)
    assert (["miss", "bypass"], reason) == (found, found.why)


CHANGES = {
    "request": ("[[[0, 0], [null, null, null", "[[[0, 1], [null, null, null"),
    "room": ('"rooms": [["s0", 0, null]', '"rooms": [["s7", 0, null]'),
    "condition": (
        '"left":"s0","relation":">","right":3',
        '"left":"s0","relation":">","right":2',
    ),
    "guard": ('"guards": [0, 1]', '"guards": [0, 99]'),
}
"""Parts of a document, and other ones."""


@pytest.mark.rules("CACHE-17", "CACHE-20")
@pytest.mark.parametrize("part", CHANGES)
def test_a_document_whose_symbols_do_not_fit_together_is_a_format_error(part, tmp_path):
    before, after = CHANGES[part]
    compiled = cached(branching, dynamic=True)
    called(compiled, [5])
    compiled.save(tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    line, _, rest = data.partition(b"\n")
    assert before.encode() in rest
    changed = rest.replace(before.encode(), after.encode(), 1)
    head = json.loads(line)
    head |= {"sizes": [len(changed)], "sha256": sha256(changed).hexdigest()}
    (tmp_path / "a").write_bytes(json.dumps(head).encode() + b"\n" + changed)
    with pytest.raises(al.FormatError):
        called(al.load(tmp_path / "a", branching, compiles=False), [5])


@pytest.mark.rules("CACHE-20", "CACHE-3")
def test_what_is_other_when_it_is_read_back_is_not_kept(monkeypatch):
    """A document without the sizes of its graphs, and one that is read with another condition."""
    whole, read = recording.written_root, recording.decoded_entry

    def without_sizes(*records: Any) -> Any:
        cut, higher, (metas, numbers, _) = whole(*records)
        return cut, higher, (metas, numbers, ())

    def with_another(kept: Any) -> Any:
        entry = read(kept)
        del entry.symbols.sizes.table.log[0]
        return entry

    changes = {"written_root": without_sizes, "decoded_entry": with_another}
    reasons = []
    for name, change in changes.items():
        with monkeypatch.context() as patch, outcomes() as found:
            patch.setattr(recording, name, change)
            called(cached(branching, dynamic=True), [5])
        assert ["miss", "bypass"] == found
        reasons.append(found.why)
    assert reasons[0].startswith("its sizes cannot be read back (artifact: the graph branching")
    assert "its sizes are others when they are read back" == reasons[1]


@needs_compiler
@pytest.mark.rules("CACHE-20", "SIZ-1")
def test_a_restored_region_has_kernels_for_all_sizes():
    for _ in range(2):
        compiled = al.compile(branching, backend="cpu", artifact_cache=True, dynamic=True)
        called(compiled, [5, 7, 9])
    region = compiled.entries[0].guarded
    assert isinstance(region, SizeRegion)
    assert [] == [why for each in region.records.kernels for why in each.why_not]
    assert region._shared().why_not == []
    assert 3 == len(region.instances)


@pytest.mark.rules("CACHE-20")
def test_a_new_process_finds_the_entries_of_all_sizes(tmp_path):
    root = str(Path(__file__).parents[2])
    text = (
        # Behind what is installed: both processes import one aotlite.
        f"import sys; sys.path.append({root!r})\n"
        "from tests.artifacts.looked_up import cached, outcomes\n"
        "from tests.rules.test_cache_symbols import branching, called\n"
        "with outcomes() as found:\n"
        "    print(called(cached(branching), [5, 7, 2]), found)\n"
    )
    here = called(cached(branching), [5, 7, 2])
    script = tmp_path / "script.py"
    script.write_text(text)
    command = [sys.executable, str(script)]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"{here} ['hit', 'hit', 'hit']\n" == run.stdout
