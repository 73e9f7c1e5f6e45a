"""Runs mypy over the whole project and checks that it looked at every file.

mypy does not know that `ir/` and `backends/` are `aotlite.ir` and `aotlite.backends`, so it runs in
`typecheck/`, a git-ignored folder of symbolic links laid out as the packages install.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from source_files import OTHER_FOLDERS, PACKAGES, ROOT, python_files

LAYOUT = ROOT / "typecheck"


def main() -> int:
    """0 if mypy has no complaint and checked every file; else 1."""
    links = {**_package_links(), **_folder_links()}
    _lay_out(links)
    config = os.path.join(os.pardir, "setup.cfg")
    tops = sorted({link.parts[0] for link in links})
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, *tops],
        cwd=LAYOUT,
        env={**os.environ, "MYPYPATH": os.pathsep.join([str(LAYOUT), str(LAYOUT / "tools")])},
        capture_output=True,
        text=True,
        check=False,
    )
    # Complaints name the real files, not the links.
    print(re.sub(r"^aotlite/(ir|backends)/", r"\1/", run.stdout, flags=re.MULTILINE), end="")
    print(run.stderr, end="", file=sys.stderr)
    seen = _files_checked(run.stdout)
    expected = sum(1 for _ in python_files(*PACKAGES, *OTHER_FOLDERS))
    print(f"mypy: {seen} files checked, {expected} expected")
    return int(run.returncode != 0 or seen != expected)


def _files_checked(output: str) -> int:
    """The number in mypy's last line; 0 if it stopped before the check."""
    counts = re.findall(r"(?:in|checked) (\d+) source files?\)?$", output, re.MULTILINE)
    return int(counts[-1]) if counts else 0


def _package_links() -> dict[Path, Path]:
    """Link in the layout -> its target, for the three packages."""
    package = ROOT / "aotlite"
    links = {
        Path("aotlite", entry.name): entry
        for entry in package.iterdir()
        if entry.name != "__pycache__" and (entry.is_dir() or entry.suffix == ".py")
    }
    return links | {Path("aotlite", name): ROOT / name for name in PACKAGES if name != "aotlite"}


def _folder_links() -> dict[Path, Path]:
    """The same for the other folders that hold Python files."""
    return {Path(name): ROOT / name for name in OTHER_FOLDERS if any(python_files(name))}


def _lay_out(links: dict[Path, Path]) -> None:
    """Makes these links in `typecheck/`; right ones stay."""
    (LAYOUT / "aotlite").mkdir(parents=True, exist_ok=True)
    for old in [*LAYOUT.iterdir(), *(LAYOUT / "aotlite").iterdir()]:
        if old.is_symlink() and old.relative_to(LAYOUT) not in links:
            old.unlink()
    for link, target in links.items():
        place = LAYOUT / link
        if not place.is_symlink():
            place.symlink_to(os.path.relpath(target, place.parent))


if __name__ == "__main__":
    sys.exit(main())
