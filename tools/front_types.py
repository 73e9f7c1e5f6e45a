"""Rewrites the block of `aotlite/__init__.py` that shows its lazy names to type checkers.

Run it after a change of the table `_LAZY` or of `_SUBMODULES`.
"""

import re
import subprocess
import sys

from source_files import ROOT

FRONT = ROOT / "aotlite" / "__init__.py"
BLOCK = re.compile(r"^if TYPE_CHECKING:\n(?:    .*\n)+", re.MULTILINE)


def renewed() -> str:
    """The text of the file with a block for the names that its tables have. Needs ruff."""
    sys.path.insert(0, str(ROOT))
    import aotlite

    owners = {**aotlite._LAZY, **dict.fromkeys(aotlite._SUBMODULES, "aotlite")}
    lines = [f"    from {owners[name]} import {name} as {name}\n" for name in sorted(owners)]
    source = FRONT.read_text(encoding="utf-8")
    (old,) = BLOCK.findall(source)
    return _sorted(source.replace(old, "if TYPE_CHECKING:\n" + "".join(lines)))


def _sorted(source: str) -> str:
    """The source with its imports in ruff's order."""
    command = [sys.executable, "-m", "ruff", "check", "--select=I", "--fix", "--quiet"]
    run = subprocess.run(
        [*command, f"--stdin-filename={FRONT}", "-"],
        input=source,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if not run.stdout:
        raise ImportError(run.stderr.strip() or "ruff gave nothing")
    return run.stdout


def main() -> None:
    FRONT.write_text(renewed(), encoding="utf-8")


if __name__ == "__main__":
    main()
