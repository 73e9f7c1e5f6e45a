"""Fresh disk caches, and machines with and without compilers."""

import pytest

from aotlite.backends.native.compiler import compilers
from tests.backends.cpu.helpers.compilers import GCC, SCRIPT, forget


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of a disk cache of this test's own, not made yet; $CC is not set."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("AOTLITE_CACHE", str(folder))
    monkeypatch.delenv("CC", raising=False)
    forget()
    yield folder
    forget()


@pytest.fixture
def compiler(cache, tmp_path, monkeypatch):
    """Makes $CC a script that works when it is tried out, and then does what it is given."""

    def make(body):
        path = tmp_path / "compiler"
        path.write_text(SCRIPT.format(gcc=GCC, body=body))
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))
        forget()

    return make


@pytest.fixture
def no_compiler(cache, monkeypatch):
    """No compiler is installed."""
    monkeypatch.setattr(compilers, "which", lambda _: None)
    monkeypatch.setattr(compilers, "_zig", lambda: None)
