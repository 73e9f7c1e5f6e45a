"""Rewrites the block of `aotlite/__init__.py` that shows its lazy names to type checkers.

Run it after a change of the table `_LAZY` or of `_SUBMODULES`.
"""

import re
import subprocess
import sys

from source_files import ROOT

FRONT = ROOT / "aotlite" / "__init__.py"
BLOCK = re.compile(r"^if TYPE_CHECKING:\n(?:    .*\n)+", re.MULTILINE)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    import aotlite

    owners = {**aotlite._LAZY, **dict.fromkeys(aotlite._SUBMODULES, "aotlite")}
    lines = [f"    from {owners[name]} import {name} as {name}\n" for name in sorted(owners)]
    source = FRONT.read_text(encoding="utf-8")
    (old,) = BLOCK.findall(source)
    FRONT.write_text(source.replace(old, "if TYPE_CHECKING:\n" + "".join(lines)), encoding="utf-8")
    # Ruff has an order of its own.
    command = [sys.executable, "-m", "ruff", "check", "--select=I", "--fix", "--quiet", str(FRONT)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
