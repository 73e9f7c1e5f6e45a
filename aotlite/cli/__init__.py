"""The command line. Each command is a module here with `add_arguments` and `command`."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module

from aotlite import __version__
from aotlite.ir.errors import AotliteError, ArgumentError, FormatError, MissingExtraError

COMMANDS: dict[str, str] = {
    "demo": "train a small convolutional network on handwritten digits by two compiled functions",
    "explain": "print what every stage makes of a function: graphs, metadata, what is saved",
    "fuzz": "run random programs about views, writes and aliases, and shrink what differs",
    "conformance": "say which rules about shared memory an array library keeps",
    "cache": "show the disk cache of kernels and functions, empty it, or say why a call missed",
    "trace": "sum a trace of AOTLITE_LOG up by compilation, or write it for chrome://tracing",
    "doctor": "say which backends work here, and what to install for the others",
}
"""Name of a command, which is also its module's in this package -> description."""


EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("aotlite demo", "aotlite demo --epochs 3 --dump stages"),
    "explain": (
        "aotlite explain train.py:loss --arg 'f32[4,3]' --arg 'f32[3,2] requires_grad'",
        "aotlite explain model.py:Net.forward --arg 2.0 --kwarg 'x=f32[8]' --stage partition",
        "aotlite explain train.py:loss --arg 'f32[4,3] dynamic=0' --arg 'f32[3,2]'",
        "aotlite explain train.py:loss --arg 'f32[4,3]' --dynamic --stage conditions",
    ),
    "fuzz": (
        "aotlite fuzz --minutes 5 --seed 1",
        "aotlite fuzz --count 500 --ledger run.jsonl --out scripts",
        "aotlite fuzz --against numpy --minutes 1",
        "aotlite fuzz --function mine.py:compile",
    ),
    "conformance": (
        "aotlite conformance --list",
        "aotlite conformance numpy torch --rules views overlap",
        "aotlite conformance mine:MyAdapter --strict",
    ),
    "cache": ("aotlite cache", "aotlite cache why train:loss", "aotlite cache clear"),
    "trace": (
        "aotlite trace run.jsonl",
        "aotlite trace run.jsonl -o chrome.json",
    ),
    "doctor": ("aotlite doctor", "aotlite doctor --json"),
}
"""Name of a command -> lines that run it."""

STATUSES = "status: 0 well, 1 something failed or was found, 2 wrong use, 130 interrupted"
WRONG_USE = (ArgumentError, FormatError, MissingExtraError)
"""Errors by wrong input: a wrong value, a wrong file, or an extra that is not installed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit status, or exits with it.

    0: success; 1: something failed, or was found; 2: wrong use; 130: Ctrl-C; 141: the reader of the
    output went away (SIGPIPE). `conformance` exits with 3 for a fault of its own.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    args = _parsed(given)
    try:
        args.command(args)
        sys.stdout.flush()
    except AotliteError as error:
        print("\n".join([f"aotlite: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 2 if isinstance(error, WRONG_USE) else 1
    except KeyboardInterrupt:
        print("aotlite: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it is flushed once more
        return 141
    return 0


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed arguments. Exits with status 2, and the closest names, for an unknown
    command."""
    parser, commands = _parser(given)
    if not given:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    if given[0].startswith("-"):
        _check_option(parser, given[0])
    elif given[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        parser.error(f"command is {given[0]!r}, expected one of {known}{_near(given[0], COMMANDS)}")
    args, unknown = parser.parse_known_args(given)
    if unknown:
        sub = commands[given[0]]
        options = [each for action in sub._actions for each in action.option_strings]
        sub.error(f"unrecognized arguments: {' '.join(unknown)}{_near(unknown[0], options)}")
    return args


def _check_option(parser: argparse.ArgumentParser, given: str) -> None:
    """Exits with status 2 and the closest option if no option begins like this one."""
    known = [each for action in parser._actions for each in action.option_strings]
    if any(each.startswith(given) for each in known):
        return
    letter = [each for each in known if each.startswith(f"-{given.lower()}")]  # --version for -V
    meant = f". Did you mean {letter[0]}?" if letter else _near(given, known)
    parser.error(f"unrecognized arguments: {given}{meant}")


def _near(given: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(given.partition("=")[0], list(known), 1)
    return f". Did you mean {close[0]}?" if close else ""


def _parser(
    argv: Sequence[str],
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Returns the parser, and that of each command. Imports only the module of the command that
    runs, so that `aotlite --help` is fast."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="aotlite",
        description="Eager functions become pure forward and backward graphs.",
        epilog=f"{_examples(['aotlite demo', 'aotlite explain --help'])}\n\n{STATUSES}",
        formatter_class=shape,
    )
    parser.add_argument("--version", action="version", version=f"aotlite {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parsers = {}
    for name, purpose in COMMANDS.items():
        sub = parsers[name] = commands.add_parser(
            name,
            help=purpose,
            description=f"{name}: {purpose}.",
            epilog=_examples(EXAMPLES[name]),
            formatter_class=shape,
        )
        if argv[:1] == [name]:
            module = import_module(f"aotlite.cli.{name}")
            module.add_arguments(sub)
            sub.set_defaults(command=module.command)
    return parser, parsers


def _examples(lines: Sequence[str]) -> str:
    return "\n  ".join(["examples:", *lines])


def positive(text: str) -> float:
    """An argparse type: a finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0, expected a number that is")
    return value


positive.__name__ = "number"  # argparse: "invalid number value"


def number(least: int) -> Callable[[str], int]:
    """An argparse type: an integer of at least `least`."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small, expected at least {least}")
        return value

    parse.__name__ = "integer"
    return parse
