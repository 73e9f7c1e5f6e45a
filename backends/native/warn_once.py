"""Warnings that point at the user's line, each text once a process.

Part of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import sys
import traceback
import warnings

from aotlite.backends.native.single_flight import Once

_shown = Once[None]()


def warn_once(text: str, more: str = "") -> bool:
    """Warns (RuntimeWarning) at the line that called aotlite, once a process for each text.

    `more` is appended to the text when it is shown. Returns whether it was shown now.
    """
    shown: list[bool] = []

    def show() -> None:
        shown.append(True)
        warn_caller(text + more)

    _shown.get(text, show)
    return bool(shown)


def warn_caller(text: str) -> None:
    """Warns (RuntimeWarning) at the line that called aotlite."""
    warnings.warn(text, RuntimeWarning, stacklevel=1 + _depth())


def _depth() -> int:
    """Returns the number of aotlite's frames from the caller's on; 0 if all are, as in a thread.

    Generated code belongs to no module; its file is called `<aotlite ...>`.
    """
    for depth, (frame, _) in enumerate(traceback.walk_stack(sys._getframe(1))):
        name = frame.f_globals.get("__name__", "")
        is_ours = name.startswith("aotlite.") or name == "contextlib"  # which enters our blocks
        if not is_ours and not frame.f_code.co_filename.startswith("<aotlite "):
            return depth
    return 0
