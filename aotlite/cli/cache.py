"""`aotlite cache`: shows the disk cache of compiled kernels, or empties it."""

from __future__ import annotations

import argparse
import os

from aotlite.backends.native.cache import artifact_cache, eviction, trusted_folders
from aotlite.ir.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite cache`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "clear"),
        default="show",
        help="show: the folder, how much is in it (default); clear: remove all of it",
    )


def command(args: argparse.Namespace) -> None:
    """Prints the folder and its entries, or removes them. Never makes the folder."""
    folder = artifact_cache.cache_folder()
    if folder is None:
        raise ArgumentError("cache: the home folder is unknown, expected a folder in AOTLITE_CACHE")
    print(f"folder: {folder}")
    refused = _refused(os.path.dirname(folder)) or _refused(folder)
    if args.action == "clear":
        if refused:
            raise ArgumentError(f"cache: {refused}, expected a folder that is this user's alone")
        removed = eviction.clear(folder)
        print(f"removed: {_amount(len(removed), sum(entry.size for entry in removed))}")
        return
    entries = eviction.entries(folder)
    print(f"kept: {_amount(len(entries), sum(entry.size for entry in entries))}")
    print(f"limit: {_megabytes(eviction.LIMIT)}; what was not used for longest goes first")
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
