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
from collections.abc import Callable, Iterable, Sequence
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
_CHUNK: Final = 1 << 20
"""The bytes that are inflated at once."""
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
            "sha256": _digest([(each,) for each in members.values()]),
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


def unpacked(
    data: bytes,
    max_bytes: int = MAX_BYTES,
    check: Callable[[Document, Sequence[int]], object] | None = None,
) -> Archive:
    """The content of a file. Raises FormatError for one that is not as `packed` writes it.

    `check` gets the texts, and the bytes of the arrays, before one of these is inflated. The arrays
    are writable.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            infos = _infos(file, max_bytes)
            _check_gapless(data, file)
            manifest = _manifest(_inflated(file, infos.pop("program.json")))
            names = _names(manifest)
            if list(infos) != names:
                raise _wrong("the members of the archive are others", "those that it lists")
            count = 1 + manifest["graphs"]
            texts = [_inflated(file, infos[name]) for name in names[:count]]
            made = [_text(each, name) for each, name in zip(texts, names, strict=False)]
            document = Document(made[0], tuple(made[1:]))
            sizes = [_size(file, infos[name]) for name in names[count:]]
            if check is not None:
                check(document, sizes)
            pairs = zip(names[count:], sizes, strict=True)
            arrays = [_array(file, infos[name], size) for name, size in pairs]
    except FormatError:
        raise
    except _BROKEN as error:
        raise noted(
            _wrong("the file is no archive, or is cut off", "one as save() writes"),
            f"{error}"[:200],
        ) from None
    members = [*[(each,) for each in texts], *[(_header(x.size), x) for x in arrays]]
    if _digest(members) != manifest["sha256"]:
        raise _wrong("the digest of the members is another", "that of the file")
    return Archive(document, tuple(arrays))


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
    if texts["program.json"] > _MANIFEST:
        size = texts["program.json"]
        raise _wrong(f"the member program.json has {size} bytes", f"at most {_MANIFEST}")
    if sum(texts.values()) > MOST_TEXT:
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


def _digest(members: Iterable[tuple[Any, ...]]) -> str:
    """The digest of members, each in parts."""
    made = hashlib.sha256()
    for parts in members:
        made.update(sum(map(len, parts)).to_bytes(8, "little"))
        for part in parts:
            made.update(part)
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


def _size(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """The bytes of the array of a member, whose header is compared with the one for its length."""
    with file.open(info) as member:
        head = member.read(min(len(_header(0)) + 64, info.file_size))
    for each in (len(_header(0)), len(_header(0)) + 64):
        size = info.file_size - each
        if size >= 0 and len(_header(size)) == each and head.startswith(_header(size)):
            return size
    raise _wrong(f"{info.filename} has another header or length", "a flat array of bytes")


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> np.ndarray:
    """The array of so many bytes in a member, which is inflated into its memory."""
    made = np.empty(size, np.uint8)
    view: Any = made.data
    with file.open(info) as member:
        member.read(info.file_size - size)
        at = 0
        while at < size:
            part = member.read(min(_CHUNK, size - at))
            if not part:
                raise _wrong(f"{info.filename} ends early", f"{info.file_size} bytes")
            view[at : at + len(part)] = part
            at += len(part)
    return made


def _wrong(got: str, expected: str) -> FormatError:
    return FormatError(f"program: {got}, expected {expected}")
