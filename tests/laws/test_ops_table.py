"""The page of ops is what the op table and the laws say now."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def generated(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    try:
        import ops_table

        return ops_table.page()
    finally:
        for name in ("ops_table", "source_files"):
            sys.modules.pop(name, None)


def test_the_page_of_ops_is_up_to_date(monkeypatch):
    shown = (ROOT / "specs" / "ops.md").read_text(encoding="utf-8")
    assert generated(monkeypatch) == shown, "run tools/ops_table.py"
