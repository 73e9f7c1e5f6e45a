"""Whose code a code object is: a user's, an installed package's, Python's, or aotlite's own.

A package that is installed, and not by `pip install --editable`, is named by its version; a user's
code by its digest. Rule: CACHE-8. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import enum
import os
import sysconfig
from functools import cache, lru_cache
from types import CodeType

import attr
import attrs
import numpy as np
import optree

from aotlite.backends import lookup
from aotlite.ir import errors
from aotlite.pipeline import journey


class Owner(enum.Enum):
    """Whose code it is."""

    USER = "user"
    PACKAGE = "package"
    """An installed package: one that the user wrote is told from others by its place alone."""
    PYTHON = "Python"
    OURS = "aotlite's, or of a package that it calls"


CHECKED = (Owner.USER, Owner.PACKAGE)
"""Code that is compared by its text: that of Python and of aotlite counts by version."""


def owner_of(code: CodeType) -> Owner:
    """Whose code this is, by its file."""
    return _owner(code.co_filename)


@lru_cache(maxsize=8192)
def _owner(file: str) -> Owner:
    if file.startswith("<frozen "):
        return Owner.PYTHON
    if file.startswith("<aotlite") or file.startswith("<attrs generated") and "aotlite." in file:
        return Owner.OURS
    path = os.path.abspath(file)
    for owner, folders in _folders():
        if any(path.startswith(folder) for folder in folders):
            return owner
    return Owner.USER


@cache
def own_folders() -> tuple[str, ...]:
    """The folders of aotlite's own code: a checkout has `ir` and `backends` beside the package."""
    of_modules = journey.__file__, lookup.__file__, errors.__file__
    package, *inner = [os.path.dirname(os.path.abspath(file)) for file in of_modules]
    return os.path.dirname(package), *inner


@cache
def _folders() -> tuple[tuple[Owner, tuple[str, ...]], ...]:
    """The folders of packages, the innermost first."""
    here, *rest = own_folders()
    tree = [here, *rest]
    users = tuple([os.path.join(here, name) + os.sep for name in ("testing", "conformance")])
    for package in (np, optree, attr, attrs):  # which aotlite calls
        tree += map(os.path.abspath, package.__path__)
    ours = tuple([folder + os.sep for folder in tree])
    paths = sysconfig.get_paths()
    installed = {paths["purelib"], paths["platlib"]}
    python = {paths["stdlib"], paths["platstdlib"], os.path.dirname(os.path.abspath(os.__file__))}
    return (
        (Owner.USER, users),
        (Owner.OURS, ours),
        (Owner.PACKAGE, tuple([each + os.sep for each in installed])),
        (Owner.PYTHON, tuple([each + os.sep for each in python])),
    )
