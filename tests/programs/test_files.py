"""PRG-5, PRG-6, PRG-8: files of programs are data, and what is read was written so."""

from __future__ import annotations

import io
import json
import os
import random
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.export import load, program
from aotlite.ir.errors import FormatError, UnsupportedError
from aotlite.programs.archive import VERSION, Archive, unpacked
from aotlite.programs.files import packed, program_of
from tests.programs.drawn_programs import fate, flipped, rewritten, saved
from tests.programs.released import FILES, MADE, Released, observed

TRAINING = FILES / "1.training.aotlite"
DATA = TRAINING.read_bytes()


@pytest.mark.rules("PRG-8")
@pytest.mark.parametrize("each", Released.all(), ids=lambda each: each.path.stem)
def test_files_of_released_versions_load_and_run(each: Released) -> None:
    """A file is never changed: whoever has to, breaks the files of users."""
    found = observed(each.name, load(each.path, backend="reference"))
    assert _flat(each.expected) == pytest.approx(_flat(json.loads(json.dumps(found))), rel=1e-5)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [x for each in value for x in _flat(each)] if isinstance(value, list) else [value]


@pytest.mark.rules("PRG-8")
def test_there_is_a_file_of_each_program_in_the_present_version() -> None:
    assert {f"{VERSION}.{name}.aotlite" for name in MADE} <= set(os.listdir(FILES))


@pytest.mark.rules("PRG-5")
def test_equal_programs_give_equal_bytes_and_a_whole_file(tmp_path: Path) -> None:
    made = load(TRAINING)
    first, second = tmp_path / "first", tmp_path / "second"
    made.save(first)
    load(first).save(second)
    assert first.read_bytes() == second.read_bytes()
    assert {"first", "second"} == set(os.listdir(tmp_path))
    with zipfile.ZipFile(first) as file:
        assert not any(name.endswith(".pkl") for name in file.namelist())
        assert b"pickle" not in b"".join(map(file.read, file.namelist()))
    with pytest.raises(FileNotFoundError):
        made.save(tmp_path / "none" / "there")


@pytest.mark.rules("PRG-6")
def test_file_with_bytes_changed_is_refused() -> None:
    rng = random.Random(0)
    for _ in range(60):
        made = flipped(DATA, rng)
        try:
            records, state = program_of(made)
        except FormatError:
            continue
        assert packed(records, state) == DATA  # bits of the archive that say nothing


@pytest.mark.rules("PRG-6")
def test_file_of_other_records_is_refused_or_loaded() -> None:
    """Its digest is right: somebody has written it so."""
    rng = random.Random(1)
    calls = [each for seed in range(2) for each in saved(seed)]
    fates = [fate(each, rewritten(each.data, rng)) for each in calls for _ in range(10)]
    assert fates.count("refused") > len(fates) / 2


def zipped(change: Callable[[dict[str, bytes]], object], twice: str = "") -> bytes:
    """The file of the training step with other members; one of them may be there twice."""
    with zipfile.ZipFile(io.BytesIO(DATA)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    change(members)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
        if twice:
            file.writestr(twice, members[twice])
    return made.getvalue()


def said(name: str, size: int) -> bytes:
    """The file with another size of a member in its directory."""
    data = bytearray(DATA)
    place = data.rindex(name.encode()) - 46  # its entry in the directory
    data[place + 24 : place + 28] = size.to_bytes(4, "little")
    return bytes(data)


def manifest(**changes: object) -> bytes:
    def change(members: dict[str, bytes]) -> None:
        members["program.json"] = json.dumps(json.loads(members["program.json"]) | changes).encode()

    return zipped(change)


def of_arrays() -> bytes:
    """A file of which most arrays are missing."""
    archive = unpacked(DATA)
    return Archive(archive.document, archive.arrays[:1]).packed("0")


def between() -> bytes:
    """A file with a member that its directory does not have."""
    made = io.BytesIO(DATA)
    with zipfile.ZipFile(made, "a") as file:
        file.writestr("code.py", b"print()")
        del file.filelist[-1]
    return made.getvalue()


ODD: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "no archive, or is cut off"),
    "a pickle": (lambda: b"\x80\x04N.", "no archive, or is cut off"),
    "half of it": (lambda: DATA[: len(DATA) // 2], "no archive, or is cut off"),
    "a path": (
        lambda: zipped(lambda members: members.update({"../../etc/passwd": b"x"})),
        "the members of the archive are others",
    ),
    "a member less": (
        lambda: zipped(lambda members: members.pop("records.json")),
        "the members of the archive are others",
    ),
    "another order": (
        lambda: zipped(lambda members: members.update(records=members.pop("records.json"))),
        "the members of the archive are others",
    ),
    "another format": (lambda: manifest(format="x"), "another format"),
    "a newer version": (lambda: manifest(version=VERSION + 1), "the version is 2"),
    "version 0": (lambda: manifest(version=0), "no integer of 1 or more"),
    "many graphs": (lambda: manifest(graphs=10**9), "other keys or values"),
    "an unknown key": (lambda: manifest(code="x"), "other keys or values"),
    "another digest": (lambda: manifest(sha256="0" * 64), "the digest of the members"),
    "a state of fewer bytes": (lambda: of_arrays(), "a row of another form"),
    "a bomb": (
        lambda: zipped(lambda members: members.update({"arrays/0.npy": b"\0" * (1 << 22)})),
        "bytes, expected at most 1000000",
    ),
    "long texts": (lambda: said("records.json", (1 << 28) + 1), "bytes, expected at most"),
    "a long program.json": (
        lambda: zipped(lambda members: members.update({"program.json": b" " * 70_000})),
        "the member program.json has 70000 bytes, expected at most 65536",
    ),
    "bytes before it": (lambda: b"#!/bin/sh\n" + DATA, "bytes beside the members"),
    "bytes behind it": (lambda: DATA + b"\n", "bytes beside the members"),
    "a comment": (
        lambda: DATA[:-2] + b"\2\0hi",
        "bytes beside the members",
    ),
    "bytes between": (lambda: between(), "bytes beside the members"),
    "a member twice": (lambda: zipped(len, twice="records.json"), "is there twice"),
}


@pytest.mark.rules("PRG-6")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("make, words", ODD.values(), ids=ODD)
def test_odd_archive_is_refused(make: Callable[[], bytes], words: str, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(make())
    with pytest.raises(FormatError) as caught:
        load(path, max_bytes=1_000_000)
    assert words in str(caught.value)
    assert str(path) in caught.value.__notes__[-1]
    assert ["odd"] == os.listdir(tmp_path)


@pytest.mark.rules("PRG-6")
def test_member_is_inflated_no_further_than_its_directory_says() -> None:
    """The directory says 1,000 bytes, and 64 MB of spaces are there."""
    bomb = zipped(lambda members: members.update({"records.json": b" " * (1 << 26)}))
    at = bomb.rindex(b"records.json") - 46
    made = bytearray(bomb)
    made[at + 24 : at + 28] = (1_000).to_bytes(4, "little")
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="no archive, or is cut off"):
            program_of(bytes(made))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 23


SURROGATE = "a\ud800b"


@pytest.mark.rules("PRG-5", "REC-4")
@pytest.mark.parametrize(
    "function, args",
    [
        (lambda x: (SURROGATE, x * 1), (al.ones(2),)),
        (lambda x: {SURROGATE: x * 1}, (al.ones(2),)),
        (lambda x, text: x * 1, (al.ones(2), SURROGATE)),
        (lambda batch: batch[SURROGATE] * 1, ({SURROGATE: al.ones(2)},)),
    ],
)
def test_text_that_no_file_keeps_is_refused_when_it_is_saved(function: Any, args: Any) -> None:
    made = program(function, *args)
    made(*args)
    with pytest.raises(UnsupportedError, match=r"a text is 'a.ud800b', expected one without"):
        packed(made.records, made.state)


@pytest.mark.rules("PRG-6")
def test_storages_of_a_plan_are_its_own() -> None:
    """Its numbers are names of variables in the function of an entry."""

    def moved(x: Any, y: Any) -> Any:
        x.set_(y)
        return x * 1

    made = program(moved, al.ones(2), al.ones(2))
    archive = unpacked(packed(made.records, made.state))
    assert '"old":0' in archive.document.text
    text = archive.document.text.replace('"old":0', '"old":-1')
    file = Archive(attrs.evolve(archive.document, text=text), archive.arrays).packed("0")
    with pytest.raises(FormatError, match="is storages that it does not have, expected its own"):
        program_of(file)


def bomb(header: int, size: int) -> bytes:
    """The file with an array of many zeros, whose header says another length."""

    def change(members: dict[str, bytes]) -> None:
        name = max(each for each in members if each.endswith(".npy"))
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({header},), }}"
        text += " " * (-(len(text) + 11) % 64) + "\n"
        head = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
        members[name] = head + b"\0" * size

    return zipped(change)


@pytest.mark.rules("PRG-6")
@pytest.mark.parametrize("header", [1 << 26, 1 << 20])
def test_array_is_not_inflated_before_its_header_and_tensor_are_compared(header: int) -> None:
    made = bomb(header, 1 << 26)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            program_of(made)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert header == 1 << 26 or peak < 1 << 24
    assert peak < 3 << 25  # the array once


@pytest.mark.rules("PRG-6", "CACHE-17")
def test_wrong_kind_of_file_names_the_other_function(tmp_path: Path) -> None:
    path, bundle = tmp_path / "program", tmp_path / "bundle"
    path.write_bytes(DATA)
    with pytest.raises(FormatError) as caught:
        al.load(path)
    assert "A program is read by aotlite.export.load(path)." in caught.value.__notes__
    bundle.write_bytes(b'{"format": "aotlite bundle", "version": 1}\n')
    with pytest.raises(FormatError) as caught:
        load(bundle)
    assert "A bundle is read by aotlite.load(path)." in caught.value.__notes__


@pytest.mark.rules("PRG-6")
def test_read_makes_no_room_for_max_bytes(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"no archive")
    tracemalloc.start()
    try:
        for read in (load, al.load):
            with pytest.raises(FormatError):
                read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 22
    with pytest.raises(al.ArgumentError, match="'max_bytes' is None, expected a number of bytes"):
        load(path, max_bytes=None)  # type: ignore[arg-type]


@pytest.mark.rules("PRG-5")
def test_error_of_save_names_the_users_path(tmp_path: Path) -> None:
    path = tmp_path / "none" / "there"
    with pytest.raises(FileNotFoundError) as caught:
        load(TRAINING).save(path)
    assert caught.value.filename == str(path)
