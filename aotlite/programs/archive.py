"""The archive of a program: one zip file of texts and arrays, and no pickle.

    program.json        format, version, aotlite's version, the number of members, their digest
    records.json        the records (`pipeline/record_files`)
    graphs/0.json ...   the graphs (`ir/graph/files`)
    arrays/0.npy  ...   the bytes of the state's storages

Equal programs give equal bytes. No name of an archive is a path on the disk: members are looked up
by the names above, and others are refused. Sizes are checked before anything is inflated.
Spec: `specs/programs.md`, PRG-5 and PRG-6.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
import zlib
from typing import Any, Final

import attrs
import numpy as np

from aotlite.ir.errors import FormatError, noted
from aotlite.ir.graph.files import MAX_BYTES as MAX_TEXT
from aotlite.ir.graph.files.parser import parsed
from aotlite.pipeline.record_files import Document

FORMAT: Final = "aotlite program"
VERSION: Final = 1
"""Raised when the meaning of a file changes, or the format gains something. Files of every released
version load for ever: those of `tests/programs/files` are never changed (PRG-8)."""
MAX_BYTES: Final = 1 << 31
"""The default limit on the bytes of all members together."""
MOST_MEMBERS: Final = 20_000
MOST_TEXT: Final = MAX_TEXT
"""The most bytes of all texts together."""
_MANIFEST: Final = 1 << 16
"""The most bytes of program.json."""
_KEYS: Final = frozenset(("format", "version", "aotlite", "graphs", "arrays", "sha256"))
_BROKEN: Final = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, KeyError, IndexError, OverflowError),
)
"""What the module zipfile raises for files that are no archives."""


@attrs.frozen
class Archive:
    """What an archive holds."""

    document: Document
    arrays: tuple[np.ndarray, ...]
    """Flat arrays of bytes."""

    def packed(self, version: str) -> bytes:
        """The bytes of the file; `version` is that of aotlite."""
        members = dict(self._members())
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "aotlite": version,
            "graphs": len(self.document.graphs),
            "arrays": len(self.arrays),
            "sha256": _digest(members.values()),
        }
        text = json.dumps(manifest, indent=1).encode() + b"\n"
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
            for name, data in {"program.json": text, **members}.items():
                info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
                info.external_attr = 0o644 << 16
                file.writestr(info, data)
        return made.getvalue()

    def _members(self) -> list[tuple[str, bytes]]:
        found = [("records.json", self.document.text.encode())]
        graphs = enumerate(self.document.graphs)
        found += [(f"graphs/{k}.json", text.encode()) for k, text in graphs]
        return found + [(f"arrays/{k}.npy", _npy(each)) for k, each in enumerate(self.arrays)]


def unpacked(data: bytes, max_bytes: int = MAX_BYTES) -> Archive:
    """The content of a file. Raises FormatError for one that is not as `packed` writes it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            infos = _infos(file, max_bytes)
            _check_gapless(data, file)
            manifest = _manifest(_inflated(file, infos.pop("program.json")))
            names = _names(manifest)
            if list(infos) != names:
                raise _wrong("the members of the archive are others", "those that it lists")
            members = [_inflated(file, infos[name]) for name in names]
    except FormatError:
        raise
    except _BROKEN as error:
        raise noted(
            _wrong("the file is no archive, or is cut off", "one as save() writes"),
            f"{error}"[:200],
        ) from None
    if _digest(members) != manifest["sha256"]:
        raise _wrong("the digest of the members is another", "that of the file")
    count = 1 + manifest["graphs"]
    texts = [_text(each, name) for each, name in zip(members[:count], names, strict=False)]
    arrays = [_array(each, name) for each, name in zip(members[count:], names[count:], strict=True)]
    return Archive(Document(texts[0], tuple(texts[1:])), tuple(arrays))


def _infos(file: zipfile.ZipFile, max_bytes: int) -> dict[str, zipfile.ZipInfo]:
    infos = file.infolist()
    if len(infos) > MOST_MEMBERS:
        raise _wrong(f"there are {len(infos)} members", f"at most {MOST_MEMBERS}")
    total = sum([info.file_size for info in infos])
    if total > max_bytes:
        error = _wrong(f"the members have {total} bytes", f"at most {max_bytes}")
        raise noted(error, "a larger file is read with a larger max_bytes")
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        if info.filename in found:
            raise _wrong(f"the member {info.filename[:60]!a} is there twice", "each once")
        known = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
        if info.flag_bits & 0x1 or info.compress_type not in known:
            raise _wrong(f"the member {info.filename[:60]!a} is encrypted or packed", "deflated")
        found[info.filename] = info
    if "program.json" not in found:
        raise _wrong("there is no member program.json", "a program")
    texts = {name: each.file_size for name, each in found.items() if not name.endswith(".npy")}
    if texts["program.json"] > _MANIFEST or sum(texts.values()) > MOST_TEXT:
        raise _wrong(f"the texts have {sum(texts.values())} bytes", f"at most {MOST_TEXT}")
    return found


def _check_gapless(data: bytes, file: zipfile.ZipFile) -> None:
    """Refuses bytes before, between and behind the members, which no digest has."""
    at = 0
    for info in file.infolist():
        if info.header_offset != at:
            break
        name, extra = struct.unpack_from("<HH", data, at + 26)
        at += 30 + name + extra + info.compress_size
    if at != file.start_dir or data[-22:-18] != b"PK\5\6":
        raise _wrong("there are bytes beside the members of the archive", "none")


def _inflated(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The bytes of a member, and no more of them than the directory says."""
    with file.open(info) as member:
        return member.read(info.file_size)


def _manifest(data: bytes) -> dict[str, Any]:
    root = parsed(data, _MANIFEST)
    if type(root) is not dict or root.get("format") != FORMAT:
        raise _wrong("program.json has another format", f'"{FORMAT}"')
    version = root.get("version")
    if type(version) is not int or version < 1:
        raise _wrong("the version is no integer of 1 or more", f"1 to {VERSION}")
    if version > VERSION:
        raise noted(
            _wrong(f"the version is {version}", f"at most {VERSION}"),
            "a newer aotlite wrote this: load it with that one, or export the program again",
        )
    counts = [root.get(key) for key in ("graphs", "arrays")]
    if root.keys() != _KEYS or not all(type(x) is int and 0 <= x <= MOST_MEMBERS for x in counts):
        raise _wrong("program.json has other keys or values", f"{', '.join(sorted(_KEYS))}")
    return root


def _names(manifest: dict[str, Any]) -> list[str]:
    graphs = [f"graphs/{k}.json" for k in range(manifest["graphs"])]
    return ["records.json", *graphs, *[f"arrays/{k}.npy" for k in range(manifest["arrays"])]]


def _digest(members: Any) -> str:
    made = hashlib.sha256()
    for data in members:
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return made.hexdigest()


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _wrong(f"{name} is no text", "text in UTF-8") from None


# ------------------------------------------------------------------------------------------- npy
def _header(size: int) -> bytes:
    """The header of an npy file of so many bytes: version 1.0, aligned to 64 bytes."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def _npy(array: np.ndarray) -> bytes:
    return _header(array.size) + array.tobytes()


def _array(data: bytes, name: str) -> np.ndarray:
    """The array of an npy file, whose header is compared with the one for its length."""
    start = len(_header(0))
    for size in (len(data) - start, len(data) - start - 64):
        if size >= 0 and data.startswith(_header(size)) and len(_header(size)) + size == len(data):
            return np.frombuffer(data, np.uint8, size, len(data) - size)
    raise _wrong(f"{name} has another header or length", "a flat array of bytes")


def _wrong(got: str, expected: str) -> FormatError:
    return FormatError(f"program: {got}, expected {expected}")
