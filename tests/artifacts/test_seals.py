"""CACHE-19: graphs of an entry that this cache has written are read when they are asked for; those
of any other file at once, with all checks."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.artifacts.files import seal, store
from aotlite.artifacts.files.kept_entry import KeptEntry
from aotlite.artifacts.reads.read_set import ReadSet
from aotlite.backends.native.cache.disk_cache import sha256
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.graph.files.headers import GraphHeader
from tests.artifacts import random_programs
from tests.artifacts.looked_up import outcomes
from tests.ir.serialize.test_headers import is_unread

pytestmark = [
    pytest.mark.rules("CACHE-19", "REC-9"),
    pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def layered(x: Any, w: Any) -> Any:
    """Saved values in two layouts, a result that is an input, and one that is never read."""
    hidden = (x @ w).tanh()
    return (hidden.t() * hidden.sum()).exp().mean(), x


def stepped(x: Any, w: Any) -> Any:
    """Writes its first argument."""
    y = x * 2
    y.add_(w[0])
    w.mul_(0.5)
    return y[1:], y.sum()


def args() -> tuple[Any, Any]:
    made = [np.sin(np.arange(9.0, dtype=np.float32) + k).reshape(3, 3) for k in range(2)]
    return al.tensor(made[0], requires_grad=True), al.tensor(made[1])


def compiled(function: Callable[..., Any]) -> Any:
    return al.compile(function, backend="cpu", artifact_cache=True, dynamic=False)


def run(function: Callable[..., Any]) -> tuple[Any, list[Any]]:
    """The compiled function, and the results and gradients of a call."""
    made, given = compiled(function), args()
    results = made(*given)
    results[0].sum().backward()
    found = [*results, given[0].grad, given[1]]
    return made, [each.detach().numpy().tolist() for each in found]


def restored(function: Callable[..., Any]) -> tuple[Any, list[Any]]:
    """`run`, of a call that the cache serves."""
    with outcomes() as found:
        made = run(function)
    assert ["hit"] == found
    return made


def halves(made: Any) -> tuple[Any, Any]:
    partition = made.entries[0].partition
    return partition.forward, partition.backward


def the_file(function: Callable[..., Any]) -> Path:
    (variant,) = store.variants(f"{__name__}:{function.__name__}")
    return Path(variant.path)


def replaced(path: Path, data: bytes) -> Path:
    """The file with other bytes, under the checksum of these."""
    path.unlink()
    name, _, suffix = path.name.split(".")
    other = path.with_name(f"{name}.{sha256(data).hexdigest()}.{suffix}")
    other.write_bytes(data)
    other.chmod(0o600)
    return other


@pytest.mark.parametrize("function", [layered, stepped])
def test_no_graph_of_a_restored_entry_is_read_to_run_it(function):
    fresh, before = run(function)
    again, after = restored(function)
    assert before == after
    forward, backward = halves(again)
    assert is_unread(forward)
    # One of the two results of `stepped` gets no gradient: that is another backward graph.
    assert is_unread(backward) == (function is layered)
    for graph, known in zip((forward, backward), halves(fresh), strict=True):
        assert str(known) == str(graph)
        assert not is_unread(graph)


@pytest.mark.parametrize("function", [layered, stepped])
def test_kernels_that_are_gone_are_made_of_the_graphs_again(function, folder):
    _, before = run(function)
    shutil.rmtree(folder / "kernels")
    again, after = restored(function)
    assert before == after
    assert not any(map(is_unread, halves(again)))


def test_without_the_number_of_the_cache_graphs_are_read_at_once(folder):
    _, before = run(layered)
    shutil.rmtree(folder / "kernels" / seal._NUMBER)
    again, after = restored(layered)
    assert before == after
    assert not any(map(is_unread, halves(again)))


def test_a_number_that_cannot_be_kept_seals_nothing_and_warns_nobody(folder, monkeypatch):
    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    for fails, sealed in ((True, False), (False, True)):
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error")
            if fails:
                patch.setattr(seal.DiskCache, "keep", full)
            data = seal.sealed(
                KeptEntry(
                    "f", ReadSet((), frozenset(), None, (), (), (), (), ()), [], {}, b"[]\n", ("x",)
                )
            )
        assert bool(seal.entry_of(data).headers) == sealed


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n", 2)


def headers_with(change: Callable[[Any], None]) -> bytes:
    seal, line, document = lines_of(the_file(layered))
    made = [json.loads(each) for each in json.loads(line)]
    for header in made:
        change(header)
    return b"\n".join([seal, json.dumps(list(map(json.dumps, made))).encode(), document])


FORGED = {
    "another kernel": lambda: headers_with(lambda x: x.update(digest="0" * 64)),
    "larger metas": lambda: headers_with(
        lambda x: x.update(metas=[[dtype, [4000, *s[1:]], t] for dtype, s, t in x["metas"] if s])
    ),
    "nothing is read": lambda: headers_with(lambda x: x.update(unread=[0])),
    "other roots": lambda: headers_with(lambda x: x.update(roots=[-1] * len(x["roots"]))),
    "no headers": lambda: (
        b"\n".join([lines_of(the_file(layered))[0], b"[]"]) + b"\n" + lines_of(the_file(layered))[2]
    ),
    "no JSON": lambda: (
        b"\n".join([lines_of(the_file(layered))[0], b"{"]) + b"\n" + lines_of(the_file(layered))[2]
    ),
    "no seal": lambda: b"\n".join([b"", *lines_of(the_file(layered))[1:]]),
    "the seal of another entry": lambda: b"\n".join(
        [lines_of(the_file(stepped))[0], *lines_of(the_file(layered))[1:]]
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_headers_that_this_cache_has_not_sealed_are_not_believed(forged):
    """The checksum in the name is right, as anybody can make it."""
    _, before = run(layered)
    run(stepped)
    data = FORGED[forged]()
    path = replaced(the_file(layered), data)
    again, after = restored(layered)
    assert before == after
    assert not any(map(is_unread, halves(again)))
    assert path.exists()


def test_a_graph_of_a_file_without_the_seal_is_checked_before_the_call():
    """What a seal would put off is a miss here."""
    _, before = run(layered)
    data = the_file(layered).read_bytes()
    damaged = data.replace(b'"target":"tanh"', b'"target":"wanh"')
    assert damaged != data
    path = replaced(the_file(layered), damaged)
    with outcomes() as found:
        _, after = run(layered)
    assert ["miss", "kept"] == found
    assert before == after
    assert not path.exists()


def test_a_seal_needs_every_byte():
    run(layered)
    data = the_file(layered).read_bytes()
    assert seal.entry_of(data).headers
    for at in range(65, len(data), 97):
        other = bytearray(data)
        other[at] ^= 1
        try:
            made = seal.entry_of(bytes(other))
        except al.FormatError:
            continue
        assert () == made.headers, at


def test_drawn_programs_of_graphs_that_are_not_read_do_what_eager_does(monkeypatch):
    """The command `python -m tests.artifacts.random_programs --backend cpu` runs any number."""
    read: list[Any] = []
    whole = GraphHeader.nodes

    def counted(self: Any) -> Any:
        read.append(self)
        return whole(self)

    monkeypatch.setattr(GraphHeader, "nodes", counted)
    figures = random_programs.run(range(5), "cpu")
    assert [] == figures.wrong
    assert figures.warm["hit"] > 8
    assert len(read) < figures.warm["hit"]
