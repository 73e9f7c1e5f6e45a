"""`save` and `load`: the kept entries of a compiled function as one file, for other processes.

`saved` makes the file of a compiled function whose entries were kept or restored; `LoadedBundle`
has those of a file, with their records decoded, for `lookup`. Rules: CACHE-15 to CACHE-18.
Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import attrs

from aotlite.artifacts.entry_records import DecodedEntry, decoded_entry
from aotlite.artifacts.files.bundle_file import MAX_BYTES, Bundle, bundle_of
from aotlite.artifacts.files.kept_entry import KeptEntry
from aotlite.artifacts.reads.function_names import name_of
from aotlite.artifacts.reads.option_reads import (
    options_as_data,
    options_from,
    options_of,
    portable_versions,
    versions,
)
from aotlite.artifacts.reads.value_images import NoImage
from aotlite.ir.errors import (
    ArgumentError,
    AutogradError,
    FormatError,
    GuardError,
    UnsupportedError,
    noted,
)
from aotlite.ir.filesystem.atomic_files import read_whole, write_whole
from aotlite.pipeline import CompiledEntry
from aotlite.pipeline.options import Options, switch
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.region import shown_partition


# ------------------------------------------------------------------------------------------- saving
@attrs.frozen
class LeftOutEntry:
    """An entry that `save(partial=True)` has not written."""

    number: int
    """That of its compilation."""
    arguments: str
    """The tensors among its arguments."""
    reason: str

    def __str__(self) -> str:
        """`entry 3 (f32[2, 4]) cannot be kept, since f calls time.time`."""
        return f"entry {self.number} ({self.arguments}) cannot be kept, since {self.reason}"


class SavedEntries:
    """The method of a compiled function that writes its entries as a file."""

    function: Any
    options: Options
    entries: list[CompiledEntry]
    bundle: LoadedBundle | None = None
    """The entries of the file that the function was loaded from."""
    _name: str

    def save(
        self, path: str | os.PathLike[str], *, partial: bool = False
    ) -> tuple[LeftOutEntry, ...] | None:
        """Writes all entries to a file, which `aotlite.load` reads in another process (CACHE-15).

        The function must have been compiled with `artifact_cache=True`, and called or prepared, or
        loaded. An entry that no file can hold (CACHE-3) is an UnsupportedError with its reason;
        with `partial` it is left out, with a warning, and the entries that are left out are
        returned. A file of this name is replaced as a whole.
        """
        of, left_out, kept = _of(self), tuple(_left_out(self)), tuple(_kept(self))
        if left_out and not (switch("partial", partial) and kept):
            raise _unkept(self, left_out, len(kept))
        write_whole(path, Bundle(self._name, *of, kept).written())
        if left_out:
            reasons = "; ".join(map(str, left_out))
            warnings.warn(f"save: {self._name} is saved without {reasons}", stacklevel=2)
        return left_out if partial else None


def _left_out(compiled: SavedEntries) -> Iterator[LeftOutEntry]:
    name = compiled._name
    if not compiled.options.artifact_cache:
        raise ArgumentError(
            f"save: {name} is compiled without artifact_cache, expected "
            "compile(fn, artifact_cache=True)"
        )
    if not compiled.entries and compiled.bundle is None:
        raise ArgumentError(
            f"save: {name} has no entries, expected a call, or prepare(*args), before"
        )
    for entry in compiled.entries:
        if not isinstance(entry.kept, KeptEntry):
            arguments = ", ".join([f"{each.meta}" for each in entry.meta.inputs][:_SHOWN])
            more = ", ..." if len(entry.meta.inputs) > _SHOWN else ""
            yield LeftOutEntry(entry.number, f"{arguments}{more}" or "no tensors", f"{entry.kept}")


_SHOWN = 4


def _unkept(
    compiled: SavedEntries, left_out: Sequence[LeftOutEntry], kept: int
) -> UnsupportedError:
    first, *others = left_out
    of = str(first).replace(" cannot", f" of {compiled._name} cannot", 1)
    error = UnsupportedError(
        f"save: {of}, expected one of which all reads can be compared in another process"
    )
    is_sized = any(word in each.reason for each in left_out for word in ("symbol", "size"))
    words = "entry" if kept == 1 else "entries"
    return noted(
        error,
        *[f"Nor can {each}".replace(" cannot be kept", " be kept") for each in others],
        f"save(path, partial=True) writes the {kept} other {words}." if kept else None,
        "With dynamic=False each size has an entry of its own, without symbols."
        if is_sized
        else None,
    )


def _of(compiled: SavedEntries) -> tuple[str, dict[str, Any]]:
    """The name of the function, and the options as data."""
    function, options = compiled.function, compiled.options
    try:
        given = options_as_data(options)
        same = options_of(options_from(given)) == options_of(options)
    except NoImage as error:
        raise UnsupportedError(
            f"save: {compiled._name} has {error}, expected options that another process compares"
        ) from error
    if not same:
        raise UnsupportedError(
            f"save: the options of {compiled._name} have compilers of several kinds, expected "
            "those that have a name"
        )
    name = function.of if isinstance(function, WithoutFunction) else name_of(function)
    return name, given


def _kept(compiled: SavedEntries) -> Iterator[KeptEntry]:
    """The entries of the file from which the function was loaded, and those kept since."""
    loaded = () if compiled.bundle is None else compiled.bundle.kept
    new = [entry.kept for entry in compiled.entries if isinstance(entry.kept, KeptEntry)]
    for kept in (*loaded, *[each for each in new if not any(each is x for x in loaded)]):
        reads = kept.reads
        if reads.lines[: len(versions())] == versions():
            reads = reads.portable(portable_versions())
        yield attrs.evolve(kept, reads=reads)


# ------------------------------------------------------------------------------------------ loading
class WithoutFunction:
    """Stands for the function of a bundle that was loaded without it."""

    def __init__(self, name: str, of: str) -> None:
        self.__name__, self.of = name, of
        self.__qualname__ = name

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise noted(
            GuardError(
                f"load: {self.__name__} would run as a function here, expected a call that an "
                "entry of the bundle serves"
            ),
            _ADVICE,
        )


_ADVICE = "Load it with its function: aotlite.load(path, function)."


@attrs.frozen(eq=False)
class LoadedBundle:
    """The entries of a file, as `lookup` asks for them."""

    entries: tuple[DecodedEntry, ...]
    has_function: bool
    compiles: bool
    """Whether a call that no entry serves is compiled; else it is an error."""
    left_out: int = 0
    """How many entries of the file need the function, where there is none."""
    kept: tuple[KeptEntry, ...] = ()
    """All entries of the file."""

    def newest(self) -> StageRecords | None:
        """The records of the last entry, as users see them; None if there is none."""
        if not self.entries:
            return None
        cut = self.entries[-1].cut
        return attrs.evolve(cut, partition=shown_partition(cut.partition))

    def fixed(self, options: Options) -> tuple[tuple[str, str], ...]:
        """Versions and options as reads. Raises NoImage."""
        return *portable_versions(), *options_of(options)

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raises GuardError: no entry serves a call, since `why`."""
        raise noted(
            GuardError(f"load: no entry of {name} serves this call: {why}"),
            f"{self.left_out} more need its function, by which they read tensors."
            if self.left_out
            else None,
            None if self.has_function else _ADVICE,
        )


def needs_function_for_derivatives(function: str) -> AutogradError:
    """The error of a derivative of a gradient, for which the function is captured (CACHE-14)."""
    error = AutogradError(
        f"backward: {function} was loaded without its function, expected it for derivatives of "
        "gradients"
    )
    return noted(error, _ADVICE)


def load_bundle(
    path: str | os.PathLike[str], function: Any, compiles: bool, max_bytes: int = MAX_BYTES
) -> tuple[Any, Options, LoadedBundle]:
    """The function, the options and the entries of a file. Raises FormatError for another file, and
    ArgumentError if all entries need the function and none is given."""
    try:
        bundle = bundle_of(read_whole(path, max_bytes, "bundle"))
        options = bundle.made_options()
        entries = [decoded_entry(kept) for kept in bundle.entries]
    except FormatError as error:
        raise noted(error, f"in the file {os.fspath(path)!r}") from None
    if function is None:
        alone = tuple(_without_function(entries, bundle.name))
        function = WithoutFunction(bundle.name, bundle.function)
        left_out = len(entries) - len(alone)
        return function, options, LoadedBundle(alone, False, False, left_out, bundle.entries)
    return function, options, LoadedBundle(tuple(entries), True, compiles, kept=bundle.entries)


def _without_function(entries: Sequence[DecodedEntry], name: str) -> Iterator[DecodedEntry]:
    """The entries that need no function, without the guards on what only it leads to."""
    needs = [each.kept.needs() for each in entries]
    if all(needs):
        raise noted(
            ArgumentError(
                f"load: {name} is loaded without its function and reads the tensor {needs[0]}, "
                "expected the function, which leads to it"
            ),
            _ADVICE,
        )
    for each, needed in zip(entries, needs, strict=True):
        if not needed:
            yield attrs.evolve(each, guards=each.kept.guards_of_arguments())
