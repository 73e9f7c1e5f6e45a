"""The command line. Each command is a module here with `add_arguments` and `command`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from aotlite.ir.errors import AotliteError

COMMANDS: dict[str, str] = {
    "demo": "train a small convolutional network on handwritten digits by two compiled functions",
    "explain": "print what every stage makes of a function: graphs, metadata, what is saved",
    "fuzz": "run random programs about views, writes and aliases, and shrink what differs",
    "conformance": "say which rules about shared memory an array library keeps",
    "cache": "show the disk cache of compiled kernels, or empty it",
    "doctor": "say which backends work here, and what to install for the others",
}
"""Name of a command, and of its module in this package -> what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, 1 for an error of ours, 130 for Ctrl-C."""
    given = sys.argv[1:] if argv is None else list(argv)
    args = _parser(given).parse_args(given)
    try:
        args.command(args)
    except AotliteError as error:
        print("\n".join([f"aotlite: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("aotlite: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands; only the module of the command that is run is imported."""
    parser = argparse.ArgumentParser(
        prog="aotlite",
        description="Eager functions become pure forward and backward graphs.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        sub = commands.add_parser(name, help=purpose, description=f"{name}: {purpose}.")
        if name in argv:
            module = import_module(f"aotlite.cli.{name}")
            module.add_arguments(sub)
            sub.set_defaults(command=module.command)
    return parser


def number(least: int) -> Callable[[str], int]:
    """An argparse type: an integer of at least `least`."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small, expected at least {least}")
        return value

    parse.__name__ = "integer"
    return parse
