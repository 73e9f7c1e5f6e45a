"""`aotlite cache`: shows what is kept on disk, empties it, or says why a function was not found."""

from __future__ import annotations

import argparse
import os

from aotlite.artifacts.files import misses, store
from aotlite.backends.native.cache import artifact_cache, eviction, trusted_folders
from aotlite.ir.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite cache`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("info", "show", "clear", "why"),
        default="info",
        help="info, or show: the folders, how much is in them (default); clear: remove all of it; "
        "why: which read made the last look-up of a function miss, or that it was a hit",
    )
    parser.add_argument("function", nargs="?", help="of `why`: the function, as module:name")


def command(args: argparse.Namespace) -> None:
    """Prints the folders and their entries, or removes these. Never makes a folder."""
    if (args.action == "why") != (args.function is not None):
        if args.function is None:
            raise ArgumentError(
                "cache: why has no function, expected `aotlite cache why module:name`"
            )
        raise ArgumentError(
            f"cache: {args.action} has the function {args.function!r}, expected none: "
            "a function is for `why`"
        )
    kernels = artifact_cache.cache_folder()
    artifacts = store.folder()
    if kernels is None or artifacts is None:
        raise ArgumentError("cache: the home folder is unknown, expected a folder in AOTLITE_CACHE")
    if args.action == "why":
        _say_why(args.function)
        return
    _act(kernels, eviction.LIMIT, args.action)
    if os.path.exists(artifacts):
        _act(artifacts, store.LIMIT, args.action)


def _say_why(function: str) -> None:
    found = misses.last(function)
    if found is None:
        form = "" if ":" in function else ", or its name is another: it is given as module:name"
        print(f"nothing is known of {function}: it was not looked up{form}")
    elif found.outcome != "hit":
        print(f"{found.outcome}: {found.why}")
        advice = misses.instead(found.why) if found.outcome == "bypass" else ""
        if advice:
            print(f"instead: {advice}")
    else:
        print("hit: all reads of the last look-up are those of a kept entry")
        if found.before is not None:
            print(f"before, {found.before.outcome}: {found.before.why}")


def _act(folder: str, limit: int, action: str) -> None:
    print(f"folder: {folder}")
    refused = _refused(os.path.dirname(folder)) or _refused(folder)
    if action == "clear":
        if refused:
            raise ArgumentError(f"cache: {refused}, expected a folder that is this user's alone")
        removed = eviction.clear(folder)
        print(f"removed: {_amount(len(removed), sum(entry.size for entry in removed))}")
        return
    entries = eviction.entries(folder)
    print(f"kept: {_amount(len(entries), sum(entry.size for entry in entries))}")
    print(f"limit: {_megabytes(limit)}; what was not used for longest goes first")
    if refused:
        print(f"not used: {refused}")


def _refused(folder: str) -> str:
    if os.name != "posix":
        return f"C is compiled on Linux and macOS, and not on {os.name}"
    return trusted_folders.refusal(folder) if os.path.exists(folder) else ""


def _amount(count: int, size: int) -> str:
    return f"{count:,} {'file' if count == 1 else 'files'}, {_megabytes(size)}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
