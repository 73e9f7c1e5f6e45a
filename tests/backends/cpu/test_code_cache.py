"""The code of long texts on disk is the code that Python makes of them."""

from __future__ import annotations

import marshal
from pathlib import Path
from typing import Any

import pytest

from aotlite.backends.cpu import code_cache
from aotlite.backends.cpu.code_cache import LONG, kept_code
from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.cache.disk_cache import sha256

pytestmark = pytest.mark.rules("CPU-9")


def text(value: int = 0) -> str:
    lines = [f"    x{k} = x + {k + value}" for k in range(1 + LONG // 12)]
    return "\n".join(["def run(x):", *lines, f"    return x{len(lines) - 1} // 0"])


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose texts Python compiles."""
    found: list[str] = []

    def counted(text: str, file: str, mode: str) -> Any:
        found.append(file)
        return compile(text, file, mode)

    monkeypatch.setattr(code_cache, "compile", counted, raising=False)
    return found


def only_file(folder: Path) -> Path:
    (path,) = (folder / "kernels").glob("*/code.*.bin")
    return path


def error_of(code: Any) -> tuple[str, int]:
    scope: dict[str, Any] = {}
    exec(code, scope)
    with pytest.raises(ZeroDivisionError) as caught:
        scope["run"](1)
    last = caught.traceback[-1]
    return last.frame.code.raw.co_filename, last.lineno


def test_code_from_the_disk_is_that_of_the_text(cache: Path, compiled: list[str]) -> None:
    first, again = kept_code(text(), "<one>"), kept_code(text(), "<one>")
    assert ["<one>"] == compiled
    assert first == again
    assert error_of(first) == error_of(again)
    assert "<one>" == error_of(again)[0]
    for other, file in ((text(1), "<one>"), (text(), "<two>")):
        assert kept_code(other, file) == compile(other, file, "exec")
    assert ["<one>", "<one>", "<two>"] == compiled


def test_code_of_another_python_is_not_found(
    cache: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_code(text(), "<one>")
    monkeypatch.setattr(code_cache, "_PYTHON", "another")
    kept_code(text(), "<one>")
    assert 2 == len(compiled)


@pytest.mark.parametrize("data", [b"", b"no code", marshal.dumps([1])], ids=repr)
def test_a_file_that_is_no_code_is_removed(cache: Path, compiled: list[str], data: bytes) -> None:
    expected = kept_code(text(), "<one>")
    path = only_file(cache)
    path.unlink()
    other = path.with_name(f"code.{sha256(data).hexdigest()}.bin")
    other.write_bytes(data)
    other.chmod(0o600)
    assert expected == kept_code(text(), "<one>")
    assert 2 == len(compiled)
    assert not other.exists()
    assert expected == kept_code(text(), "<one>")
    assert 2 == len(compiled)


def test_damaged_code_is_compiled_again(cache: Path, compiled: list[str]) -> None:
    expected = kept_code(text(), "<one>")
    path = only_file(cache)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert expected == kept_code(text(), "<one>")
    assert 2 == len(compiled)


def test_code_of_a_short_text_is_not_kept(cache: Path) -> None:
    assert kept_code("def run(x): return x", "<short>").co_filename == "<short>"
    assert artifact_cache.contents("0" * 64) is None
    assert [] == list(cache.glob("kernels/*/code.*"))
