"""The file of a kept entry: a seal, the headers of its graphs, and the document.

    the seal             a line: a hash of the rest, which only this cache can make
    ["...", ...]         a line: the headers (REC-9)
    the document         as in a bundle

An entry whose seal is right was written here, of graphs that were verified: its headers are
believed, and its graphs read when they are first asked for. Those of another file are read at once,
with all checks. Rules: CACHE-5, CACHE-11, CACHE-19. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

import attrs

try:  # hashlib would load all of OpenSSL, 3 ms of a first call
    from _blake2 import blake2b
except ImportError:  # another Python
    from hashlib import blake2b

from aotlite.artifacts.files.kept_entry import KeptEntry, faults, kept_entry_of
from aotlite.backends.native.cache import artifact_cache, trusted_folders
from aotlite.backends.native.cache.disk_cache import DiskCache, key_of

_NUMBER = key_of("the number of seals")


def sealed(kept: KeptEntry) -> bytes:
    """The bytes of an entry's file."""
    rest = json.dumps(kept.headers).encode() + b"\n" + kept.written()
    seal = _seal(rest, _number() or _new_number())
    return seal.encode() + b"\n" + rest


def entry_of(data: bytes) -> KeptEntry:
    """The entry of a file's bytes. Raises FormatError for other bytes than those of an entry."""
    seal, _, rest = data.partition(b"\n")
    line, _, document = rest.partition(b"\n")
    kept, number = kept_entry_of(document), _number()
    if number is None or seal.decode("latin-1") != _seal(rest, number):
        return kept
    with faults():
        return attrs.evolve(kept, headers=tuple(json.loads(line)))


def _seal(rest: bytes, number: bytes) -> str:
    return blake2b(rest, key=number, digest_size=32).hexdigest()


def _number() -> bytes | None:
    """The random number of this cache; None before it has one. It lies beside the libraries: who
    can write it can write those."""
    cache = _cache()
    found = None if cache is None else cache.contents(_NUMBER)
    return found if found is not None and len(found) == 32 else None


def _new_number() -> bytes:
    """The number of a cache that had none, which is kept, if it can be: else nobody has it again,
    and the seal is none. Processes that begin at once have one."""
    number, cache = os.urandom(32), _cache()
    if cache is None:
        return number
    with suppress(OSError), cache.lock(_NUMBER):
        found = _number()
        if found is not None:
            return found
        cache.keep(_NUMBER, "seal", ".bin", number)
    return number


def _cache() -> DiskCache | None:
    """The folder of libraries, made and checked; None if it cannot be trusted. Nobody is warned:
    what is compiled does not depend on it."""
    folder = artifact_cache.cache_folder()
    if folder is None or trusted_folders.made(os.path.dirname(folder)):
        return None
    return None if trusted_folders.made(folder) else DiskCache(folder)
