"""`python -m benchmarks.tape` prints what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import tape


def test_every_row_is_printed_and_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "tape.json"
    tape.main(["--blocks", "1", "--rounds", "7", "--json", str(file)])
    printed = capsys.readouterr().out
    figures = json.loads(file.read_text())["figures"]
    for row in ("engine", "capture", "look", "match", "replay", "step"):
        assert f"| {row}" in printed
        assert figures[row] > 0
    assert figures["match"] < figures["replay"] < figures["engine"]


def test_rows_that_ask_for_something_say_whether_it_is_met(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = dict.fromkeys(("engine", "look", "match"), 1.0)
    found = {"nodes": 100.0, "capture": 31.0, "replay": 0.24, "step": 0.26, **rows}
    monkeypatch.setattr(tape, "measure", lambda *args: found)
    tape.main([])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "| " in line]
    met = {cells[1]: cells[7] for cells in lines if len(cells) == 9}
    assert met == {
        "row": "met", "engine": "-", "capture": "no", "look": "-", "match": "-", "replay": "yes",
        "step": "no",
    }  # fmt: skip
