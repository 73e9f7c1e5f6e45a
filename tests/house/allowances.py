"""Allowances: the counts of the checks that the tree may still have, in allowances.toml.

They only fall. An exceeded allowance is a complaint; so is one that is no longer needed, until the
file is written anew. Only the command raises a number, and writes the reason beside it.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.house.checks import Check

FILE = Path(__file__).with_name("allowances.toml")
HEAD = """\
# How much of what the checks of this folder count there still is. These numbers only fall:
#     python -m tests.house --write
# lowers them to what there is. `--moved` takes them from one key to another where modules moved;
# their sum does not grow. One that has to grow says why:
#     python -m tests.house --write --raise "lines ir" --because "what it is needed for"
"""
RAISING = (
    "Where new code needs more, and only then: "
    'python -m tests.house --write --raise "{check} {key}" --because "what it is needed for"'
)


@dataclass(frozen=True)
class Allowances:
    """The allowances of one check: numbers by key, and the reasons of raised ones."""

    most: Mapping[str, int] = field(default_factory=dict)
    because: Mapping[str, str] = field(default_factory=dict)


def read(text: str) -> dict[str, Allowances]:
    return {
        section: Allowances(
            {
                _key(key): each if isinstance(each, int) else each["most"]
                for key, each in found.items()
            },
            {
                _key(key): each["because"]
                for key, each in found.items()
                if not isinstance(each, int)
            },
        )
        for section, found in tomllib.loads(text).items()
    }


def _key(key: str) -> str:
    """A codemod of names may have given a package's own module its file's name."""
    return key.removesuffix(".__init__")


def complaints(check: Check, counts: Mapping[str, int], allowed: Allowances) -> Iterator[str]:
    """Returns the exceeded allowances, and those no longer needed."""
    for key, count in counts.items():
        most = allowed.most.get(key, 0)
        if count > most:
            limit = f", allowed are {most}" if most else ""
            text = f"{check.name}: {key} has {count}{limit}; expected {check.expected}"
            yield f"{text}. {RAISING.format(check=check.name, key=key)}" if check.may_grow else text
    for key, most in allowed.most.items():
        least = check.allowance(counts.get(key, 0))
        if most > least + check.slack:
            yield f"{check.name}: {key} needs {least}, allowed are {most}; run --write"


class CannotWrite(Exception):
    """An allowance would have to grow."""


def rewritten(
    check: Check,
    counts: Mapping[str, int],
    allowed: Allowances,
    raised: Iterable[str] = (),
    because: str = "",
    moved: bool = False,
) -> Allowances:
    """Returns allowances lowered to the counts; those in `raised` may grow, and all if `moved`.

    One that grows again keeps its earlier reasons. Raises CannotWrite if another one would have to
    grow, or with `moved` their sum.
    """
    needed = {key: check.allowance(count) for key, count in counts.items()}
    grown = {key for key, most in needed.items() if counts[key] > allowed.most.get(key, 0)}
    unasked = sorted(grown - set(raised))
    if unasked and moved:
        unasked = [] if _sum_shrinks(counts, allowed, raised) else unasked
    if unasked:
        told = [
            f"{check.name} {each}: {needed[each]}, was {allowed.most.get(each, 0)}"
            for each in unasked
        ]
        raise CannotWrite("\n".join(told))
    most = {
        key: each if key in grown else min(each, allowed.most.get(key, each))
        for key, each in needed.items()
    }
    reasons = {key: each for key, each in allowed.because.items() if key in most}
    reasons |= {key: _joined(reasons.get(key, ""), because) for key in raised if key in grown}
    return Allowances(most, reasons)


def _joined(earlier: str, because: str) -> str:
    """All reasons of a number that grew; one that says an earlier one again stands once."""
    if because in earlier:
        return earlier
    kept = [each for each in earlier.split("; ") if each and each not in because]
    return "; ".join([*kept, because])


def _sum_shrinks(counts: Mapping[str, int], allowed: Allowances, raised: Iterable[str]) -> bool:
    """Whether numbers only moved between keys, so that their sum does not grow."""
    fixed = set(raised)
    now = sum(count for key, count in counts.items() if key not in fixed)
    return now <= sum(each for key, each in allowed.most.items() if key not in fixed)


def written(sections: Mapping[str, Allowances]) -> str:
    """The text of the file."""
    parts = [HEAD]
    for name, each in sections.items():
        rows = (_row(key, each.most[key], each.because.get(key)) for key in sorted(each.most))
        parts.append("\n".join([f"[{name}]", *rows, ""]))
    return "\n".join(parts)


def _row(key: str, most: int, because: str | None) -> str:
    if because is None:
        return f'"{key}" = {most}'
    text = because.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{key}" = {{ most = {most}, because = "{text}" }}'
