"""Sums the processor times of tests, which `pytest --cpu-times FILE` writes, by file or function.

python tools/cpu_times.py FILE                 # the forty files that take longest
python tools/cpu_times.py FILE --before OTHER  # what changed since, the largest change first
python tools/cpu_times.py FILE --by test       # rows of a parametrized test together
"""

import argparse
from collections import defaultdict
from pathlib import Path

ENDS = {"folder": "/", "file": "::", "test": "["}
"""What ends the name of a group: the last `/`, the first `::` or `[`."""


def main(arguments: list[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--before", type=Path, metavar="OTHER")
    parser.add_argument("--by", choices=ENDS, default="file")
    parser.add_argument("--most", type=int, default=40, metavar="ROWS")
    given = parser.parse_args(arguments)
    now = summed(given.file.read_text("utf-8"), given.by)
    old = summed(given.before.read_text("utf-8") if given.before else "", given.by)
    rows = [(now.get(name, 0.0), old.get(name, 0.0), name) for name in now.keys() | old.keys()]
    rows.sort(key=lambda row: (-abs(row[0] - row[1]), row[2]))
    whole = (sum(now.values()), sum(old.values()), "all")
    for seconds, before, name in [whole, *rows[: given.most]]:
        was = f", was {before:8.1f} s" if given.before else ""
        print(f"{seconds:8.1f} s{was}  {name}")
    return 0


def summed(text: str, by: str) -> dict[str, float]:
    """The seconds of each group in the lines `seconds <tab> name of a test`."""
    found: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        seconds, name = line.split("\t", 1)
        place = name.partition(ENDS["file"])[0]
        if by == "folder":
            group = place.rpartition(ENDS["folder"])[0]
        else:
            group = place if by == "file" else name.partition(ENDS["test"])[0]
        found[group] += float(seconds)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
