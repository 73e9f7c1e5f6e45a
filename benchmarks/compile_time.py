"""Measures the time to compile a graph's C text, and its dependence on flags.

`python -m benchmarks.compile_time` compiles the texts of some functions with aotlite's flags and
with variants of them, in turn; a figure is the minimum over the rounds, of the processor's time and
of the clock, in milliseconds. Then the same from Python in fresh processes: importing the
toolchain, finding a compiler and getting a library, with an empty disk cache and with a warm one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aotlite as al
from aotlite.backends.cpu.compiled_program import text_of
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.native.compiler.compilers import BARE, GCC_OPTIMIZE, Compiler
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.backends.reference import REFERENCE
from aotlite.cli import number
from benchmarks.common import machine, progress, table, wide_console

HEADERS = "".join(f"#include <{name}.h>\n" for name in ("math", "stdint", "stdlib", "string"))
NOTHING = "int run(void **slots) { return slots == 0; }\n"

Figures = tuple[float, float]
"""Milliseconds: of the processor, and by the clock."""


# --------------------------------------------------------------------------------------- the texts
def texts() -> dict[str, str]:
    """C texts by name."""
    rows, wide = al.ones(4096, 1024), al.ones(1 << 20)
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "gelu(x * w + b) + r": (
            lambda x, w, b, r: al.nn.functional.gelu(x * w + b) + r,
            (wide, wide, wide, wide),
        ),
        "softmax": (lambda x: x.softmax(-1), (rows,)),
        "layer norm": (lambda x: al.nn.functional.layer_norm(x, (1024,)), (rows,)),
    }
    made = {name: text(function, arguments) for name, (function, arguments) in functions.items()}
    return {"nothing": NOTHING, **made}


def text(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """The C text of the forward graph of a function."""
    found = []

    class Recorder:
        name = "recorder"

        def compile(self, graph: Any) -> Any:
            found.append(text_of(improved(program_of(graph), 2)).printed.text)
            return REFERENCE.compile(graph)

    al.compile(function, backend=Recorder())(*arguments)
    return str(found[0])


# ------------------------------------------------------------------------------------ the compiler
def variants(compiler: Compiler) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name -> the first lines of the text, and the flags."""
    ours = compiler.flags(True, "", False)
    without = {flag: tuple(each for each in ours if each != flag) for flag in ours}
    return {
        "our flags": ("", ours),
        "with the C library": ("", compiler.flags(True, "")),
        "without -pipe": ("", without.get("-pipe", ours)),
        "with start files": ("", without.get("-nostartfiles", ours)),
        "-O3": ("", tuple(flag for flag in ours if flag not in GCC_OPTIMIZE)),
        "-O1": ("", (*ours, "-O1")),
        "no semantic interposition": ("", (*ours, "-fno-semantic-interposition")),
        "four headers": (HEADERS, ours),
    }


def compiled(command: Sequence[str], flags: Sequence[str], text: str, folder: str) -> Figures:
    """Figures of one compilation."""
    source = os.path.join(folder, "text.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    behind = [flag for flag in flags if flag in BARE and flag.startswith("-l")]
    words = [*command, *flags, "-o", os.path.join(folder, "library.so"), source, *behind]
    before, start = children(), time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return 1e3 * (children() - before), 1e3 * (time.perf_counter() - start)


def children() -> float:
    """Seconds of the processor of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def flag_figures(compiler: Compiler, rounds: int) -> dict[str, dict[str, Figures]]:
    """By variant and text the least figures."""
    tried, found = variants(compiler), dict[str, dict[str, list[Figures]]]()
    sources = texts()
    with tempfile.TemporaryDirectory() as folder, progress() as bar:
        for _ in bar.track(range(rounds), description="flags"):
            for variant, (head, flags) in tried.items():
                for name, source in sources.items():
                    figures = compiled(compiler.command, flags, head + source, folder)
                    found.setdefault(variant, {}).setdefault(name, []).append(figures)
    return {
        variant: {name: least(figures) for name, figures in of.items()}
        for variant, of in found.items()
    }


def least(figures: Sequence[Figures]) -> Figures:
    """The least figure of each."""
    return min(each[0] for each in figures), min(each[1] for each in figures)


# ------------------------------------------------------------------------------- from Python
CHILD = """
import json, time
import aotlite as al
al.compile(lambda x: x * 2, backend="reference")(al.ones(2))
marks = [time.perf_counter()]
def mark(): marks.append(time.perf_counter())
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.native.compiler.toolchain import find_compiler
mark()
find_compiler()
mark()
load_c({text!r}, "text", libraries=False)
mark()
print(json.dumps([1e3 * (b - a) for a, b in zip(marks, marks[1:])]))
"""
STEPS = ("import", "find_compiler", "load_c")


def python_figures(rounds: int) -> Iterator[tuple[str, list[float]]]:
    """For an empty and for a warm cache the least milliseconds of each of STEPS."""
    code = CHILD.format(text=texts()["gelu(x * w + b) + r"])
    found: dict[str, list[list[float]]] = {"empty cache": [], "warm cache": []}
    with progress() as bar:
        for _ in bar.track(range(rounds), description="processes"):
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "AOTLITE_CACHE": folder}
                for of in found.values():
                    command = [sys.executable, "-c", code]
                    printed = subprocess.run(
                        command, env=environment, check=True, capture_output=True
                    )
                    of.append(json.loads(printed.stdout))
    for name, of in found.items():
        yield name, [min(figures) for figures in zip(*of, strict=True)]


# --------------------------------------------------------------------------------------- printing
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="benchmarks.compile_time", description=__doc__)
    parser.add_argument("--rounds", type=number(1), default=10, help="turns of each variant")
    args = parser.parse_args(argv)
    console = wide_console()
    compiler = find_compiler()
    if compiler is None:
        console.print("no C compiler works here")
        return
    for line in [*machine(), str(compiler), f"load average {os.getloadavg()[0]:.1f}"]:
        console.print(line)
    figures = flag_figures(compiler, args.rounds)
    made = table("\nmilliseconds of the processor / by the clock", "flags", *figures["our flags"])
    for variant, of in figures.items():
        made.add_row(variant, *(f"{used:.0f} / {clock:.0f}" for used, clock in of.values()))
    console.print(made)
    made = table("\nmilliseconds in a fresh process, gelu", "disk cache", *STEPS)
    for name, times in python_figures(args.rounds):
        made.add_row(name, *(f"{each:.1f}" for each in times))
    console.print(made)


if __name__ == "__main__":
    main()
