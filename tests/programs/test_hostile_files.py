"""PRG-6, REC-10: a file of a program that anybody wrote is refused, or runs within its memory."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.export import load, program
from aotlite.ir.errors import FormatError
from aotlite.programs.archive import Archive, unpacked
from aotlite.programs.files import packed
from tests.programs.hostile_files import PROGRAMS, archive_of, changed, fate


def with_meta(archive: Archive, graph: int, old: list[Any], new: list[Any]) -> bytes:
    """The file with another shape of at most two sizes in one graph."""
    graphs = list(archive.document.graphs)
    root = json.loads(graphs[graph])
    for meta in root["metas"]:
        if meta["shape"] == old:
            meta["shape"], meta["stride"] = new, [*new[1:], 1]
    graphs[graph] = json.dumps(root)
    document = attrs.evolve(archive.document, graphs=tuple(graphs))
    return Archive(document, archive.arrays).packed("0")


@pytest.mark.rules("PRG-6", "REC-10")
@pytest.mark.parametrize("size", [50, 10**9])
@pytest.mark.parametrize("function", [lambda x: (x**3).sum(), lambda x: x.mul_(2).sum()])
def test_graph_of_larger_inputs_is_refused(function: Any, size: int, tmp_path: Path) -> None:
    made = program(function, al.ones(2))
    archive = unpacked(packed(made.records, made.state))
    path = tmp_path / "larger"
    path.write_bytes(with_meta(archive, 1, [2], [size]))
    with pytest.raises(
        FormatError, match=rf"primals_0 of a forward.*\[{size}\], expected f32\[2\]"
    ):
        load(path)


@pytest.mark.rules("PRG-6", "REC-10")
def test_graph_with_other_symbols_is_refused(tmp_path: Path) -> None:
    archive = archive_of(PROGRAMS["symbols"])
    path = tmp_path / "symbols"
    path.write_bytes(with_meta(archive, 1, ["s0", 3], ["s0", 9]))
    with pytest.raises(FormatError, match=r"primals_0 of a forward.*9\], expected f32"):
        load(path)


@pytest.mark.rules("PRG-6", "REC-10")
@pytest.mark.parametrize("name", PROGRAMS)
def test_file_with_one_other_value_is_refused_or_runs_in_its_memory(name: str) -> None:
    """The backend is of NumPy, whose arrays raise errors of other kinds at their ends."""
    each, rng = PROGRAMS[name], random.Random(5)
    archive = archive_of(each)
    fates = [fate(each, changed(archive, rng)) for _ in range(40)]
    assert fates.count("refused") > 10


@pytest.mark.rules("PRG-6", "REC-10")
def test_whole_base_has_the_meta_of_its_argument(tmp_path: Path) -> None:
    archive = archive_of(PROGRAMS["overlap"])
    text = archive.document.text.replace('"whole":false', '"whole":true')
    assert text != archive.document.text
    document = attrs.evolve(archive.document, text=text)
    path = tmp_path / "whole"
    path.write_bytes(Archive(document, archive.arrays).packed("0"))
    with pytest.raises(FormatError, match="synthetic_base_0 is"):
        load(path)


@pytest.mark.rules("PRG-6", "REC-10")
def test_result_whose_gradient_has_another_layout_is_loaded(tmp_path: Path) -> None:
    """Not all that differs is wrong: the gradient of an expanded result is dense."""
    x = al.ones(3, 2, requires_grad=True)
    made = program(lambda x: (x.sum(0).expand(3, 2), x * 2), x)
    made.save(tmp_path / "expanded")
    found, _ = load(tmp_path / "expanded", backend="reference")(x)
    found.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[3.0, 3.0]] * 3
