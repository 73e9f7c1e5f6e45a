"""The read set of a compilation: all that it read, as lines of a name and an image.

    aotlite          its version, and those of Python and NumPy      (CACHE-2)
    option ...       options that are no defaults                    (CACHE-2)
    the sizes ...    which are symbols; not of a bundle              (CACHE-20)
    grad mode ...    modes of the thread                             (CACHE-2)
    argument 0 ...   containers, metadata, values, memory            (CACHE-10)
    SCALE ...        closures, globals, attributes, by access path   (CACHE-7)
    code of ...      functions that ran, and are found by name only  (CACHE-8)
    $NAME            environment variables                           (CACHE-9)
    get_...()        states of aotlite that were asked for           (CACHE-9)
    the files ...    where the code lies; not of a bundle            (CACHE-16)

A `ReadSet` is made when an entry is kept. `differences` makes the same lines of a later call, for
the same names in the same order: the kept entry serves the call iff no line differs.
Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.artifacts.reads.access_path_words import path_of
from aotlite.artifacts.reads.call_images import (
    Line,
    argument_lines,
    library_line,
    memory_lines,
    mode_lines,
    setting_line,
    state_lines,
)
from aotlite.artifacts.reads.code_digests import digest_of, nested
from aotlite.artifacts.reads.function_names import function_named
from aotlite.artifacts.reads.value_images import Images, NoImage
from aotlite.artifacts.reads.watched_names import WHOLE, value_of
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AotliteError
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath, take

NO_SUCH = "(nothing comparable)"
NOT_COMPARED: Line = ("", "")
_FILES = "the files of the code"


@attrs.frozen(eq=False)
class CallContext:
    """A call for which an entry is compiled, or looked up: what the reads of both are made of."""

    function: Any
    leaves: Sequence[Any]
    form: Any
    """The containers of the arguments, as `FlatArguments.form`."""
    fixed: tuple[Line, ...]
    """Versions and options."""
    is_portable: bool = False
    """Whether the reads are those of a bundle: files may lie elsewhere."""
    is_again: bool = False
    """Whether its tensors stand for those of a call that was compared (CACHE-14)."""
    is_unbound: bool = False
    """Whether there is no function: what only it leads to is not compared (CACHE-18)."""
    requests: str = "none"
    """Which sizes are to be symbols, in words; not compared with a bundle (CACHE-20)."""


@attrs.frozen
class Match:
    """How a call compares with a read set."""

    equal: int
    """How many reads are as they were, up to the first that is not."""
    difference: tuple[str, str, str] | None
    """The name of the first read that differs, its image then and now; None if none does."""


@attrs.frozen
class ReadSet:
    """The reads of one compilation, as plain data."""

    lines: tuple[Line, ...]
    """All names and images, in order."""
    ran: frozenset[str]
    """The digests of the code that ran."""
    names: frozenset[str] | None
    """The names of attributes that this code may ask for; None for any."""
    places: tuple[Any, ...]
    """The access paths whose values were read, in words."""
    found: tuple[tuple[str, tuple[Any, ...]], ...]
    """Functions that ran and that no access path leads to: by module and name, each with access
    paths from it."""
    environment: tuple[str, ...]
    """The environment variables that were read."""
    inputs: tuple[tuple[str, Any], ...]
    """The inputs of the graph by name: the number of an argument, or the access path in words."""
    offsets: tuple[str, ...]
    """The inputs of which the offset counts."""
    states: tuple[str, ...] = ()
    """The questions for states of aotlite that were asked, by name."""
    sized: tuple[int, ...] = ()
    """The flat arguments that are symbols, or have some for sizes: conditions compare these."""

    def lines_now(self, call: CallContext, images: Images | None = None) -> Iterator[Line]:
        """The same lines, of this call. Raises NoImage for a value without an image, and what a
        step of an access path raises where other objects lie there."""
        images = Images(self.ran, self.names) if images is None else images
        leaves = list(call.leaves)
        yield from call.fixed
        any_of = call.is_again or call.is_portable
        yield NOT_COMPARED if any_of else ("the sizes that are symbols", call.requests)
        yield from _but(mode_lines(), all_of=call.is_again)
        yield setting_line(images)
        for line, leaf in argument_lines(images, call.form, leaves, self.sized):
            yield NOT_COMPARED if call.is_again and isinstance(leaf, Tensor) else line
        for words in self.places:
            path = path_of(words, call.function)
            is_compared = path.argument is not None or not call.is_unbound
            yield (str(path), images.of(path.resolve(leaves))) if is_compared else NOT_COMPARED
        for name, paths in self.found:
            if call.is_unbound:
                yield from [NOT_COMPARED] * (1 + len(paths))
            else:
                yield from _found_lines(images, name, paths)
        for variable in self.environment:
            name = "the environment" if variable == WHOLE else f"${variable}"
            yield name, repr(value_of(variable))
        yield from state_lines(self.states)
        yield NOT_COMPARED if call.is_unbound else library_line(images, self.names)
        sized = [name for name, at in self.inputs if at in self.sized]
        memory = memory_lines(self._tensors(call), self.offsets, sized)
        yield from _but(memory, all_of=call.is_again)
        if not call.is_portable:
            yield _FILES, repr(sorted(images.files))

    def portable(self, fixed: Sequence[Line]) -> ReadSet:
        """The reads of a bundle: with these versions in front, and without places of files."""
        rest = [line for line in self.lines[len(fixed) :] if line[0] != _FILES]
        return attrs.evolve(self, lines=(*fixed, *rest))

    def match(self, call: CallContext) -> Match:
        """How many reads of this call are as they were, and the first that is not."""
        now, equal = self.lines_now(call), 0
        for name, before in self.lines:
            try:
                other, found = next(now)
            except StopIteration:
                return Match(equal, (name, before, NO_SUCH))
            except NoImage as error:
                return Match(equal, (name, before, f"{NO_SUCH}: {error}"))
            except (AttributeError, LookupError, TypeError, ValueError, AotliteError) as error:
                return Match(equal, (name, before, f"{NO_SUCH}: {type(error).__name__}: {error}"))
            if (other, found) == NOT_COMPARED:
                equal += 1
                continue
            if other != name:
                return Match(equal, (name, before, f"{NO_SUCH}: {other} is there"))
            if found != before:
                return Match(equal, (name, before, found))
            equal += 1
        return Match(equal, None)

    def _tensors(self, call: CallContext) -> dict[str, Tensor]:
        leaves, found = list(call.leaves), dict[str, Tensor]()
        for name, at in self.inputs:
            value = leaves[at] if type(at) is int else path_of(at, call.function).resolve(leaves)
            if not isinstance(value, Tensor):
                raise NoImage(f"{name} is no tensor")
            found[name] = value
        return found


def _but(lines: Iterable[Line], *, all_of: bool) -> Iterator[Line]:
    """The lines; none of them compared if `all_of` them were before."""
    return (NOT_COMPARED if all_of else line for line in lines)


def _found_lines(images: Images, name: str, paths: Sequence[Any]) -> Iterator[Line]:
    function = function_named(name)
    yield f"code of {name}", NO_SUCH if function is None else images.of(function)
    for words in paths if function is not None else ():
        path = path_of(words, function)
        yield f"{path} of {name}", images.of(path.resolve([]))


# ------------------------------------------------------------------------------------- which places
def read_places(
    places: Sequence[AccessPath], leaves: list[Any], ran: frozenset[str]
) -> list[AccessPath]:
    """The places whose values were read: a variable of a function is read only if that ran."""
    return [place for place in places if _was_read(place, leaves, ran)]


_OF_FUNCTIONS = ("cell", "global", "default")


def _was_read(place: AccessPath, leaves: list[Any], ran: frozenset[str]) -> bool:
    value = place.function if place.argument is None else leaves[place.argument]
    for kind, key in place.path:
        is_functions = kind in _OF_FUNCTIONS and isinstance(value, types.FunctionType)
        if is_functions and not ran.intersection(map(digest_of, nested(value.__code__))):
            return False
        value = take(value, kind, key)
        if value is NOTHING:
            return True
    return True
