"""META-26: pickles of metadata carry a version, and others are refused; files of graphs go on."""

from __future__ import annotations

import copy
import importlib
import pickle
import pickletools
import pkgutil
import zlib
from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.ir import serialize
from aotlite.ir.errors import FormatError
from aotlite.stages import records
from aotlite.stages.records import pickle_format
from aotlite.stages.records.base import Record
from tests.rules.helpers.written_before import FILES, PICKLES

FINGERPRINT = 734139242
"""Of what is pickled in format version 1. Where it differs, pickles do: raise the version."""


def kinds() -> list[type[Any]]:
    """The records of every module of `aotlite.stages.records`, whatever else is loaded."""
    found = pkgutil.walk_packages(records.__path__, f"{records.__name__}.")
    modules = [importlib.import_module(each.name) for each in found]
    return [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
    ]


def fingerprint() -> int:
    """A number of the names that stand in pickles, and of the fields of the records."""
    found = {
        f"{kind.__module__}.{kind.__qualname__} {[f.name for f in attrs.fields(kind)]}"
        for kind in kinds()
    }
    step = al.compile(loss)
    step(al.ones(2, 3).requires_grad_(), al.ones(3, 2))
    data = pickle.dumps((a_meta(), step.meta, step.partition))
    found |= {name for name in names_in(data) if name.startswith("aotlite.")}
    return zlib.crc32("\n".join(sorted(found)).encode())


def names_in(data: bytes) -> set[str]:
    """The classes and functions that a pickle looks up."""
    found: set[str] = set()
    words: list[str] = []
    memo: list[str | None] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "STACK_GLOBAL":
            found.add(".".join(words[-2:]))
            memo.append(None)
        elif opcode.name == "MEMOIZE":
            memo.append(words[-1] if words else None)
        elif opcode.name == "BINGET" and argument is not None:
            words.append(memo[argument] or "")
        elif isinstance(argument, str):
            words.append(argument)
    return found


def a_meta() -> Any:
    compiled = al.compile(lambda x: (x[0].mul_(2), x.t()))
    compiled(al.ones(2, 3))
    return compiled.meta


@pytest.mark.rules("META-26")
@pytest.mark.parametrize("kind", PICKLES)
def test_metadata_pickled_before_there_were_versions_is_refused(kind: str) -> None:
    with pytest.raises(FormatError, match="version 0.*expected 1; compile the function with this"):
        pickle.loads(PICKLES[kind])


@pytest.mark.rules("META-26")
def test_metadata_of_another_version_is_refused_before_its_classes_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meta = a_meta()
    with monkeypatch.context() as patch:
        patch.setattr(pickle_format, "VERSION", 2)
        data = pickle.dumps(meta)
    data = data.replace(b"function_meta", b"not_yet_known")
    with pytest.raises(FormatError, match="metadata has format version 2, of another release, "):
        pickle.loads(data)
    with pytest.raises(FormatError, match="version 'x'"):
        pickle_format.checked_format("x")  # type: ignore[arg-type]


@pytest.mark.rules("META-26")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_each_protocol_carries_the_version_once(protocol: int) -> None:
    meta = a_meta()
    data = pickle.dumps((meta, meta.inputs, meta), protocol)
    assert 1 == data.count(b"checked_format")
    first, inputs, again = pickle.loads(data)
    assert first is again and first.inputs is inputs
    assert [] == meta.differences(first)


def test_copies_of_records_are_equal_to_them() -> None:
    meta = a_meta()
    for made in (copy.copy(meta), copy.deepcopy(meta)):
        assert made is not meta and [] == meta.differences(made)
        assert made.explain() == meta.explain()


@pytest.mark.rules("META-26")
def test_what_is_pickled_changes_with_the_version_alone() -> None:
    assert 1 == pickle_format.VERSION
    assert FINGERPRINT == fingerprint()


@pytest.mark.rules("SER-1")
@pytest.mark.parametrize("text", FILES, ids=["forward", "backward"])
def test_files_of_graphs_are_read_and_written_as_before_the_moves(text: str) -> None:
    graph = serialize.loads(text)
    assert text == serialize.dumps(graph)


def test_graphs_in_files_of_before_are_those_of_today() -> None:
    forward, backward = (serialize.loads(text) for text in FILES)
    assert "select_scatter" in forward.code and "transpose" in backward.code
    step = al.compile(loss)
    step(al.ones(2, 3).requires_grad_(), al.ones(3, 2))
    assert step.backward_graph is not None
    # The inverse of a view names its size by now, where it was inferred.
    before = backward.code.replace("view(restride, (-1,))", "view(restride, (4,))")
    assert [forward.code, before] == [step.forward_graph.code, step.backward_graph.code]


def loss(x: Any, w: Any) -> Any:
    y = (x @ w).view(-1)
    y[0].mul_(2)
    return y.sum(), x[1]
