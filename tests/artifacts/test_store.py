"""CACHE-5, CACHE-11, CACHE-12: any file is a hit with the right entry, or a miss."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import aotlite as al
from aotlite.artifacts.files import misses, store
from aotlite.artifacts.files.seal import entry_of, sealed
from aotlite.backends.native.cache.disk_cache import DiskCache, sha256
from tests.artifacts.looked_up import cached, outcomes


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def scaled(x: Any) -> Any:
    return (x * 2.0).sum()


NAME = f"{__name__}:scaled"


def run() -> float:
    found: float = cached(scaled)(al.ones(3, requires_grad=True)).item()
    return found


def the_file() -> Path:
    (variant,) = store.variants(NAME)
    return Path(variant.path)


def replaced(data: bytes) -> Path:
    """The file, with other bytes and the checksum of these in its name."""
    path = the_file()
    path.unlink()
    name, _, suffix = path.name.split(".")
    other = path.with_name(f"{name}.{sha256(data).hexdigest()}.{suffix}")
    other.write_bytes(data)
    other.chmod(0o600)
    return other


def lines_of(data: bytes) -> list[bytes]:
    """The seal, the headers, the reads, the sizes of the records and these."""
    return data.split(b"\n", 4)


def with_line(number: int, change: Any) -> bytes:
    lines = lines_of(the_file().read_bytes())
    lines[number] = change(lines[number])
    return b"\n".join(lines)


def with_head(change: Any) -> bytes:
    def changed(line: bytes) -> bytes:
        head = json.loads(line)
        change(head)
        return json.dumps(head).encode()

    return with_line(2, changed)


DAMAGES = {
    "another format": lambda: with_head(lambda head: head.update(format=99)),
    "no format": lambda: with_head(lambda head: head.pop("format")),
    "no reads": lambda: with_head(lambda head: head.pop("reads")),
    "a number for the reads": lambda: with_head(lambda head: head.update(reads=3)),
    "lines that are no pairs": lambda: with_head(lambda head: head["reads"].update(lines=[[1]])),
    "no guards": lambda: with_head(lambda head: head.update(guards=None)),
    "an unknown guard": lambda: with_head(lambda head: head["guards"].append(["exec", "1"])),
    "an unknown step": lambda: with_head(
        lambda head: head["guards"].append(["value", [None, [["import", "os"]]]])
    ),
    "an unknown role": lambda: with_head(lambda head: head["facts"].update(inputs=[["x", 0]])),
    "no records": lambda: b"\n".join([*lines_of(the_file().read_bytes())[:3], b""]),
    "no texts": lambda: b"\n".join([*lines_of(the_file().read_bytes())[:3], b"[]", b""]),
    "records of another kind": lambda: b"\n".join(
        [*lines_of(the_file().read_bytes())[:3], b"[2]", b"[]"]
    ),
    "other sizes": lambda: with_line(3, lambda line: line.replace(b"[", b"[-1, 1, ")),
    "a graph with a fault": lambda: the_file().read_bytes().replace(b'"aotlite graph"', b'"graph"'),
    "half of it": lambda: the_file().read_bytes()[: the_file().stat().st_size // 2],
    "nothing": lambda: b"",
    "deep nesting": lambda: b"[" * 1_000_000,
    "no JSON": lambda: b"\x80\x04}q\x00.",
}


@pytest.mark.rules("CACHE-5", "CACHE-11")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_document_with_a_fault_is_a_miss_and_is_removed(damage):
    assert 6.0 == run()
    path = replaced(DAMAGES[damage]())
    begun = time.monotonic()
    with outcomes() as found:
        assert 6.0 == run()
    assert ["miss", "kept"] == found
    assert time.monotonic() - begun < 10
    assert not path.exists()
    with outcomes() as found:
        assert 6.0 == run()
    assert ["hit"] == found


@pytest.mark.rules("CACHE-5")
def test_bytes_that_are_not_those_that_were_kept_are_a_miss():
    run()
    path = the_file()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with outcomes() as found:
        assert 6.0 == run()
    assert ["miss", "kept"] == found


@pytest.mark.rules("CACHE-11")
def test_random_damages_raise_nothing_and_import_nothing():
    """Each has the right checksum, as a hostile file has: it may say another graph, no more."""
    draw = random.Random(0)
    for _ in range(25):
        run()
        data = bytearray(the_file().read_bytes())
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.choice(b'0123456789[]{}",:ae \x00')
        path = replaced(bytes(data))
        modules = set(sys.modules)
        compiled = cached(scaled)
        with contextlib.suppress(al.AotliteError):  # of a call of another graph
            compiled(al.ones(3, requires_grad=True))
        assert 1 == len(compiled.entries)
        assert modules == set(sys.modules)
        for left in (path, *[Path(variant.path) for variant in store.variants(NAME)]):
            store.remove(str(left))


@pytest.mark.rules("CACHE-12")
def test_a_file_that_others_may_write_is_not_read(folder):
    run()
    the_file().chmod(0o666)
    with outcomes() as found:
        run()
    assert ["miss", "kept"] == found
    (folder / "artifacts").chmod(0o777)
    assert [] == list(store.variants(NAME))
    with outcomes() as found:
        assert 6.0 == run()
    assert ["miss", "bypass"] == found
    assert "there is no folder for it that only this user can write" == found.why


@pytest.mark.rules("CACHE-12")
def test_a_function_keeps_its_last_used_variants(monkeypatch):
    monkeypatch.setattr(store, "MOST_VARIANTS", 3)
    for size in range(1, 6):
        cached(scaled)(al.ones(size))
    assert 3 == len(list(store.variants(NAME)))
    with outcomes() as found:
        cached(scaled)(al.ones(5))
        cached(scaled)(al.ones(1))
    assert ["hit", "miss", "kept"] == found


@pytest.mark.rules("CACHE-12")
def test_a_folder_that_cannot_be_written_compiles_as_without_a_cache(monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskCache, "keep", full)
    with outcomes() as found:
        assert 6.0 == run()
    assert ["miss", "bypass"] == found
    assert found.why.endswith("artifacts cannot be written: No space left on device")


@pytest.mark.rules("CACHE-13")
def test_the_outcome_of_the_last_lookup_is_kept_once():
    assert misses.last(NAME) is None
    run()
    assert misses.LookupOutcome("miss", "nothing is kept of it") == misses.last(NAME)
    cached(scaled)(al.ones(4, requires_grad=True))
    found = misses.last(NAME)
    assert found is not None and "miss" == found.outcome
    assert found.why.startswith("argument 0 is ") and "float32[4]" in found.why
    run()
    assert misses.LookupOutcome("hit", before=found) == misses.last(NAME)
    folder = Path(store.folder() or "") / store.outcome_key(NAME)
    assert 1 == len(os.listdir(folder))


def test_a_document_is_read_as_it_was_written():
    run()
    data = the_file().read_bytes()
    assert data == sealed(entry_of(data))
