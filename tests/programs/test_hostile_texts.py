"""PRG-6, PYX-3: texts of a file become no code: of a file of NumPy, of a print, of messages."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import AotliteError, FormatError
from aotlite.programs import ExportedProgram
from aotlite.programs.archive import Archive
from aotlite.programs.files import program_of
from tests.programs.hostile_files import PROGRAMS, Hostile, archive_of

HOSTILE = (
    "x\n    pass\nopen('/pwned', 'w')\ndef _z():\n    # ",
    '"""\nopen("/pwned", "w")\n"""',
    "a\u2028open('/pwned')",
    "a\x85open('/pwned')\x0cb",
    "a\ropen('/pwned')",
    "x=open('/pwned')",
    "x[open('/pwned')]",
    "x)(open('/pwned'",
    "ends with \\",
    "(?P<",
    "\\g<9>",
)


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all texts in JSON."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(inner, (*path, key))
    elif type(value) is str:
        yield path


def with_text(archive: Archive, number: int, path: tuple[Any, ...], added: str) -> Archive:
    """The archive with a text behind, or in the place of, one of its texts."""
    document = archive.document
    root = json.loads(document.text if number < 0 else document.graphs[number])
    *way, last = path
    inner = root
    for key in way:
        inner = inner[key]
    inner[last] = added
    made, graphs = json.dumps(root), list(document.graphs)
    if number >= 0:
        graphs[number] = made
    text = made if number < 0 else document.text
    return Archive(attrs.evolve(document, text=text, graphs=tuple(graphs)), archive.arrays)


def shape_of(text: str) -> str:
    """The tree of a file without its texts, and without names that a text may give."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def places_of(archive: Archive) -> list[tuple[int, tuple[Any, ...]]]:
    document = archive.document
    each = [(-1, document.text), *enumerate(document.graphs)]
    return [(number, path) for number, text in each for path in texts(json.loads(text))]


def file_of(archive: Archive) -> str | None:
    """The file of NumPy of an archive, whose print has no line of the attacker's; None where the
    archive, or its file, is refused."""
    try:
        loaded = ExportedProgram(*program_of(archive.packed("0")), backend="reference")
    except FormatError:
        return None
    for printed in (str(loaded), repr(loaded)):
        assert not any(line.lstrip().startswith("open(") for line in printed.splitlines())
    try:
        return loaded.to_python()
    except AotliteError:
        return None


def _named(batch: Any, x: Any) -> Any:
    return batch["y"] * x + 1


COUNT = 60


TEXTS = {
    "state": PROGRAMS["state"],
    "a cube": PROGRAMS["a cube"],
    "items": Hostile(_named, lambda: ({"y": al.ones(2)}, al.ones(2))),
}


@pytest.mark.rules("PRG-6", "PYX-3")
@pytest.mark.parametrize("name", TEXTS)
def test_text_of_a_file_becomes_no_code(name: str) -> None:
    archive, rng = archive_of(TEXTS[name]), random.Random(2)
    expected = file_of(archive)
    assert expected is not None
    places = places_of(archive)
    written = 0
    for number, path in rng.sample(places, min(len(places), COUNT)):
        text = file_of(with_text(archive, number, path, rng.choice(HOSTILE)))
        if text is not None:
            written += 1
            calls = [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Name)]
            assert "open" not in {each.id for each in calls}
    assert written > 3


@pytest.mark.rules("PRG-6", "PYX-3")
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("field", ["text", "file", "function"])
def test_place_in_a_graph_is_a_comment(hostile: str, field: str) -> None:
    archive = archive_of(PROGRAMS["a cube"])
    expected = file_of(archive)
    assert expected is not None
    text = file_of(with_text(archive, 1, ("places", 0, field), hostile))
    assert text is not None
    assert shape_of(text) == shape_of(expected)


@pytest.mark.rules("PYX-3")
@pytest.mark.parametrize(
    "file",
    ["C:\\Users\\new\\x.py", 'a"""b.py', "a\nb.py", "x\\", 'end"', "N{dash}\\N{x}", "\u2028"],
)
def test_file_of_a_function_whose_file_has_an_odd_name_runs(file: str) -> None:
    scope: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x*2+1", file, "exec"), scope)
    text = al.compile(scope["f"]).to_python(args=(al.ones(2),))
    made: dict[str, Any] = {}
    exec(compile(text, "made", "exec"), made)
    assert made["f"](np.ones(2, np.float32)).tolist() == [3.0, 3.0]
