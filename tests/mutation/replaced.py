"""Modules whose source is replaced as they are imported; the files stay as they are."""

from __future__ import annotations

import importlib.machinery
from pathlib import Path
from types import CodeType
from typing import Any


def replace_source(path: Path, source: str) -> None:
    """Makes this process import `source` in place of a file, for the rest of its life."""
    loader: Any = importlib.machinery.SourceFileLoader
    read = loader.get_code

    def get_code(self: Any, name: str) -> CodeType | None:
        if Path(self.path).resolve() != path:
            found: CodeType | None = read(self, name)
            return found
        return compile(source, self.path, "exec", dont_inherit=True)

    loader.get_code = get_code
