"""The pool under the compilers' own checkers: data races, and memory that is not its."""

import shutil
import subprocess
from pathlib import Path

import pytest

from aotlite.backends.cpu.runtime.runtime_library import runtime_text

STRESS = Path(__file__).with_name("stress.c")
GCC = shutil.which("gcc")


@pytest.mark.long
@pytest.mark.skipif(GCC is None, reason="needs gcc with its sanitizers")
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_pool_and_arenas_are_clean(tmp_path, sanitizer):
    assert "right\n" == stressed(tmp_path, runtime_text(), sanitizer, rounds=5000)


@pytest.mark.long
@pytest.mark.skipif(GCC is None, reason="needs gcc with its sanitizers")
def test_checker_sees_a_race(tmp_path):
    """Chunks that are claimed by a plain write run twice, and a job may not end."""
    claim = "if (!atomic_compare_exchange_weak(&pool.state, &state, state - 1)) continue;"
    text = runtime_text()
    assert claim in text
    racy = text.replace(claim, "atomic_store(&pool.state, state - 1);")
    assert "right\n" != stressed(tmp_path, racy, "thread", rounds=2000, limit=30)


def stressed(folder, text, sanitizer, rounds, limit=300):
    """What the program prints, complaints included."""
    source, program = folder / "stress.c", folder / "stress"
    source.write_text(text + STRESS.read_text("utf-8"))
    flags = ["-O1", "-g", "-std=gnu11", f"-fsanitize={sanitizer}", "-pthread"]
    subprocess.run([GCC, *flags, "-o", program, source], check=True, capture_output=True)
    try:
        run = subprocess.run([program, str(rounds)], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"did not end in {limit} s"
    return run.stdout + run.stderr
