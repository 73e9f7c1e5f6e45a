"""The findings of `benchmarks/gpu.py` in tables: times, claims, failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from rich import box
from rich.table import Table

from benchmarks.gpu_programs import ROWS
from benchmarks.gpu_training import NAMES

COLUMNS = ("ours", "torch.compile", "torch", "cupy", "cupy.fuse", "jax")
SHARE, BACKWARD_SHARE = 0.9, 0.8
"""The targets, as shares of the bandwidth of a copy."""
RECORDED = 10.0
"""The most microseconds of a call of a recorded graph."""
FIRST = 1 / 3
"""The most of aotlite's first call, as a share of torch.compile's."""


def short(value: Any) -> str:
    """A finding in one line, without tracebacks."""
    if isinstance(value, dict):
        return ", ".join([f"{key} {short(each)}" for key, each in value.items() if key != "trace"])
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def times(found: dict[str, Any]) -> Table:
    """Milliseconds of every row and step, by library."""
    table = Table(box=box.MARKDOWN, title=str(found.get("machine", {}).get("device")))
    for head in ("ms", *COLUMNS, "of a copy"):
        table.add_column(head, justify="left" if head == "ms" else "right", no_wrap=True)
    for section in ("rows", "training"):
        for name, each in found.get(section, {}).items():
            seconds = each.get("seconds", {})
            cells = [f"{1e3 * seconds[key]:.3f}" if key in seconds else "-" for key in COLUMNS]
            share = each.get("share of a copy")
            table.add_row(name, *cells, "-" if share is None else f"{share:.0%}")
    return table


@attrs.frozen
class Claim:
    """A claim, and whether it holds: None if it was not measured."""

    what: str
    target: str
    found: str
    met: bool | None


def _claim(what: str, value: float | None, limit: float, *, least: bool, form: str) -> Claim:
    target = f"{'at least' if least else 'at most'} {form.format(limit)}"
    if value is None:
        return Claim(what, target, "-", None)
    met = value >= limit if least else value <= limit
    return Claim(what, target, form.format(value), met)


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """All claims, measured or not."""
    for name, row in ROWS.items():
        each = found.get("rows", {}).get(name, {})
        limit = BACKWARD_SHARE if row.backward else SHARE
        share = each.get("share of a copy")
        yield _claim(f"{name}: of a copy's bandwidth", share, limit, least=True, form="{:.0%}")
        yield _against(name, each)
    for name in NAMES:
        yield _against(name, found.get("training", {}).get(name, {}))
    calls = found.get("overhead", {})
    for name in [name for name in calls if name.startswith("recorded")] or ["recorded"]:
        each = calls.get(name, {})
        taken = None if each.get("not recorded") else each.get("microseconds")
        yield _claim(f"{name}: a call, µs", taken, RECORDED, least=False, form="{:.1f}")
    for name, each in (found.get("waits") or {"call": {}}).items():
        waits = each.get("waits")
        said = "-" if waits is None else "waits" if waits else "does not wait"
        met = None if waits is None else not waits
        yield Claim(f"{name}: waits for the device", "does not wait", said, met)
    both = found.get("first calls", {})
    taken, theirs = (both.get(name, {}).get("seconds") for name in ("ours", "torch.compile"))
    ratio = taken / theirs if taken and theirs else None
    yield _claim("first call: of torch.compile's", ratio, FIRST, least=False, form="{:.2f}")


def _against(name: str, each: dict[str, Any]) -> Claim:
    seconds = each.get("seconds", {})
    both = "ours" in seconds and "torch.compile" in seconds
    ratio = seconds["ours"] / seconds["torch.compile"] if both else None
    return _claim(f"{name}: of torch.compile's time", ratio, 1.0, least=False, form="{:.2f}")


def verdicts(found: dict[str, Any]) -> Table:
    """The claims, their targets, and whether they hold."""
    table = Table(box=box.MARKDOWN)
    for head in ("to be shown", "target", "found", "met"):
        table.add_column(head, no_wrap=True)
    words = {True: "yes", False: "NO", None: "not measured"}
    for each in claims(found):
        table.add_row(each.what, each.target, each.found, words[each.met])
    return table


def summary(found: dict[str, Any]) -> Iterator[str]:
    """Lines of the findings that are no times, and of all failures."""
    for section in ("bandwidth", "overhead", "waits", "first calls", "numerics", "tests"):
        for name, value in found.get(section, {}).items():
            yield f"{section}: {name}: {short(value)}"
    for section, name, value in _parts(found):
        if section in ("rows", "training") and (_is_wrong(value) or value.get("missing")):
            kept = {key: value[key] for key in ("error", "right", "missing") if key in value}
            yield f"{section}: {name}: {short(kept)}"


def _parts(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for section, part in found.items():
        if isinstance(part, dict):
            for name, value in part.items():
                if isinstance(value, dict):
                    yield section, name, value


def _is_wrong(value: dict[str, Any]) -> bool:
    return "error" in value or value.get("right") is False or bool(value.get("failed"))


def is_right(found: dict[str, Any]) -> bool:
    """Whether nothing failed, and the numbers are right."""
    return not any(_is_wrong(value) for _, _, value in _parts(found))
