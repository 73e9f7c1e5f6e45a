"""The reads that no call changes: versions, and the options of the compiled function.

An option that is a function, an observer or a folder for dumps is a reason not to keep entries.
Rules: CACHE-2, CACHE-3. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import optree

from aotlite.artifacts.reads.call_images import Line
from aotlite.artifacts.reads.code_owners import own_folders
from aotlite.artifacts.reads.value_images import NoImage
from aotlite.backends.lookup import backend_from
from aotlite.backends.protocol import Backend
from aotlite.ir.graph.files.parser import parsed
from aotlite.ir.provenance.library_files import file_states
from aotlite.pipeline.options import Options, make_options
from aotlite.pipeline.size_regions.named_dimensions import Dim

_NOT_READ = frozenset(
    "recompile_limit recompile_limit_is_error instance_limit enable_log artifact_cache "
    "strict_cache dynamic dynamic_shapes".split()
)
"""Options on which entries for sizes in numbers do not depend; those for symbols are not kept."""
_BACKENDS = ("backend", "fw_compiler", "bw_compiler", "inference_compiler")


def fixed_lines(options: Options) -> tuple[Line, ...]:
    """Versions and options. Raises NoImage for an option that cannot be compared."""
    return *versions(), *options_of(options)


def options_of(options: Options) -> tuple[Line, ...]:
    """The options that entries depend on. Raises NoImage for one that cannot be compared."""
    return tuple(_options(options))


def _options(options: Options) -> Iterator[Line]:
    for field in attrs.fields(Options):
        if field.name in _NOT_READ:
            continue
        value = getattr(options, field.name)
        if field.name in _BACKENDS:
            yield f"option {field.name}", _backend_words(field.name, value)
        elif type(value) in (int, bool, str, type(None)) and field.name != "dump":
            yield f"option {field.name}", repr(value)
        elif value:
            raise NoImage(f"the option {field.name}, a value that has no words of its own")
    if options.verify == 2:
        raise NoImage("the option verify=True, which asks for every stage to run")


def _backend_words(option: str, backend: Backend | None) -> str:
    if backend is None:
        return "None"
    for name in ("auto", "cpu", "loops", "reference"):
        known: Any = backend_from(name)
        if backend == known:
            return name
        impatient = getattr(known, "without_waiting", None)
        if impatient is not None and backend == impatient():
            return f"{name}, which does not wait"
    raise NoImage(f"the option {option}, a backend {backend.name!r} that is none of aotlite's own")


@cache
def versions() -> tuple[Line, ...]:
    """The versions on which every entry depends."""
    versions = f"NumPy {np.__version__}, ml_dtypes {ml_dtypes.__version__}"
    return (
        ("the files of aotlite", _sources()),
        ("the version of Python", sys.version),
        ("the versions of libraries", f"{versions}, optree {optree.__version__}"),
    )


@cache
def portable_versions() -> tuple[Line, ...]:
    """The same versions, in words that another machine with equal packages has, too (CACHE-16)."""
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        ("the files of aotlite", _contents()),
        ("the version of Python", f"{sys.implementation.name} {python} on {sys.platform}"),
        versions()[2],
    )


@cache
def _contents() -> str:
    """The digest of aotlite's own files, by their contents, wherever they lie."""
    package, *inner = own_folders()
    found = {}
    for folder, start in [(package, package), *[(each, os.path.dirname(each)) for each in inner]]:
        for words in file_states(folder):
            path = words.rsplit(" ", 3)[0]
            if not path.endswith(".py"):
                continue
            name = os.path.relpath(path, start).replace(os.sep, "/")
            with open(path, "rb") as file:
                found[name] = sha256(file.read()).hexdigest()
    return sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]


def options_as_data(options: Options) -> dict[str, Any]:
    """The options of a function whose entries are kept, as JSON: what `options_from` reads. Raises
    NoImage."""
    found: dict[str, Any] = {}
    for field in attrs.fields(Options):
        value = getattr(options, field.name)
        if field.name in _BACKENDS:
            name, _, impatient = _backend_words(field.name, value).partition(", ")
            if value is not None:
                found[field.name] = name
            if impatient:
                found["wait"] = False
        elif type(value) in (int, bool, str) and value != field.default:
            found[field.name] = value
    if options.dynamic_shapes is not None:
        found["dynamic_shapes"] = json.dumps(_shape_words(options.dynamic_shapes))
    return {**found, "verify": options.verify}


def options_from(data: Mapping[str, Any]) -> Options:
    """The options of JSON. Raises ArgumentError, TypeError, ValueError or FormatError for what are
    none."""
    given = dict(data)
    if type(given.get("dynamic_shapes")) is str:
        given["dynamic_shapes"] = _shapes_of(parsed(given["dynamic_shapes"], MOST_SHAPES, 48))
    return make_options(**given)


MOST_SHAPES = 1 << 19
"""The most bytes of an option `dynamic_shapes`."""


def _shape_words(value: object) -> Any:
    """What `dynamic_shapes` says, as JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case Dim(name=name, min=least, max=most):
            return {"dim": [name, least, most]}
        case dict():
            return {"dict": [[_shape_words(x), _shape_words(y)] for x, y in value.items()]}
        case list() | tuple() if type(value) in (list, tuple):
            return {type(value).__name__: [_shape_words(each) for each in value]}
    raise NoImage(f"the option dynamic_shapes, with a {type(value).__qualname__}")


def _shapes_of(words: Any) -> Any:
    match words:
        case None | bool() | int() | str():
            return words
        case {"dim": [name, least, most]}:
            return Dim(name, min=least, max=most)
        case {"dict": [*pairs]}:
            return {_shapes_of(key): _shapes_of(each) for key, each in pairs}
        case {"list": [*items]}:
            return [_shapes_of(each) for each in items]
        case {"tuple": [*items]}:
            return tuple([_shapes_of(each) for each in items])
    raise ValueError(f"dynamic_shapes has {words!r:.60}")


@cache
def _sources() -> str:
    """Sizes and times of aotlite's own files, as the keys of kernels have them (CPU-9): in a
    checkout the version does not tell two states apart."""
    found = sorted({each for folder in own_folders() for each in file_states(folder)})
    return sha256("\n".join(found).encode("utf-8", "surrogateescape")).hexdigest()[:16]
