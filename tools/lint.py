"""Runs ruff over the whole project and checks that it looked at every file."""

import subprocess
import sys

from source_files import OTHER_FOLDERS, PACKAGES, ROOT, python_files


def main() -> int:
    """0 if ruff has no complaint and saw every file; else 1."""
    ruff = [sys.executable, "-m", "ruff", "check"]
    code = subprocess.run([*ruff, "."], cwd=ROOT, check=False).returncode
    listing = subprocess.run(
        [*ruff, "--show-files", "."], cwd=ROOT, check=True, capture_output=True, text=True
    )
    seen = sum(line.endswith(".py") for line in listing.stdout.splitlines())
    expected = sum(1 for _ in python_files(*PACKAGES, *OTHER_FOLDERS))
    print(f"ruff: {seen} files checked, {expected} expected")
    return int(code != 0 or seen != expected)


if __name__ == "__main__":
    sys.exit(main())
