"""Looks a call up among the kept entries, and keeps the entries of new compilations.

`api` calls `entry_for` where it would compile. Rules: CACHE-3 to CACHE-6, GEN-9.
Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from aotlite.artifacts.bundle import LoadedBundle, needs_function_for_derivatives
from aotlite.artifacts.entry_records import DecodedEntry, check_call, decoded_entry
from aotlite.artifacts.files import store
from aotlite.artifacts.files.guard_words import guards_of
from aotlite.artifacts.files.kept_entry import KeptEntry, facts_of_words
from aotlite.artifacts.files.misses import LookupOutcome, in_words, instead, note, note_hit
from aotlite.artifacts.files.symbol_words import request_words
from aotlite.artifacts.reads.function_names import name_of
from aotlite.artifacts.reads.option_reads import fixed_lines
from aotlite.artifacts.reads.read_set import CallContext
from aotlite.artifacts.reads.value_images import NoImage
from aotlite.artifacts.recording import Recording
from aotlite.artifacts.restoring import begun, restored
from aotlite.artifacts.symbolic_entries import CaptureAgain
from aotlite.artifacts.symbolic_records import values_of
from aotlite.ir.collector import collector_paused
from aotlite.ir.errors import AotliteError, FormatError, UnsupportedError, noted
from aotlite.ir.logs import emit
from aotlite.pipeline import CompiledEntry, Request, compile_once
from aotlite.pipeline.logs.loggers import refresh
from aotlite.pipeline.options import Options
from aotlite.pipeline.size_regions.tensor_marks import against_marks


def compiler_for(
    options: Options, form: Any, bundle: LoadedBundle | None
) -> Callable[[Request, Options], CompiledEntry]:
    """`compile_once`, or `entry_for` where entries are kept, or were loaded from a `bundle`; `form`
    has the containers of the arguments (`FlatArguments.form`)."""
    is_asked = options.artifact_cache or bundle is not None
    return partial(entry_for, form=form, bundle=bundle) if is_asked else compile_once


def entry_for(
    request: Request, options: Options, *, form: Any, bundle: LoadedBundle | None = None
) -> CompiledEntry:
    """The entry for a call: the loaded or kept one whose reads this call repeats, else a new one,
    which is kept.

    What cannot be kept is compiled as without a cache; with `strict_cache` it raises
    UnsupportedError with the reason (CACHE-3). Where a bundle forbids to compile, it raises
    GuardError (CACHE-18).
    """
    refresh()
    name = request.name
    if bundle is not None:
        loaded = _loaded(bundle, request, options, form)
        if loaded is not None:
            return loaded
    try:
        name = name_of(request.function)
        fixed, requests = fixed_lines(options), request_words(request.sizes)
        context = CallContext(request.function, request.leaves, form, fixed, requests=requests)
    except NoImage as error:
        _bypass(name, str(error), options)
        entry = compile_once(request, options)
        entry.kept = str(error)
        return entry
    with collector_paused():
        found = _found(name, context, request, options)
    if found is not None:
        return found
    return _compiled(Recording(name, context), request, options)


# ------------------------------------------------------------------------------------------- hits
def _loaded(
    bundle: LoadedBundle, request: Request, options: Options, form: Any
) -> CompiledEntry | None:
    """The entry of a bundle that serves a call; None where there is none, and one is compiled."""
    nearest, most = "the bundle has no entries", -1
    entries: tuple[DecodedEntry, ...] = ()
    try:
        given = request.function, request.leaves, form, bundle.fixed(options)
        call = CallContext(*given, is_portable=True, is_unbound=not bundle.has_function)
    except NoImage as error:
        nearest = f"it cannot be compared: {error}"
    else:
        entries = bundle.entries
    for each in entries:
        match = each.kept.reads.match(call)
        if match.difference is None:
            with _as_one_file():
                entry = _restored(each, call, request, options)
            mark = entry and against_marks(entry, request, options.num_params_buffers)
            if entry is not None and mark is None:
                _say("hit", request.name, number=entry.number, of="bundle")
                return entry
            nearest, most = "the guards of the entry refuse the call", match.equal
            nearest = nearest if mark is None else f"{mark}"
        elif match.equal > most:
            nearest, most = in_words(match.difference), match.equal
    _say("miss", request.name, nearest, of="bundle")
    if not bundle.compiles:
        bundle.refuse(request.name, nearest)
    return None


def _found(
    name: str, context: CallContext, request: Request, options: Options
) -> CompiledEntry | None:
    nearest, most = "nothing is kept of it", -1
    for variant in store.variants(name):
        match = variant.kept.reads.match(context)
        why = None if match.difference is None else in_words(match.difference)
        if why is None:
            try:
                entry = _restored(decoded_entry(variant.kept), context, request, options)
            except Exception as error:  # a document that no compilation wrote (CACHE-5)
                store.remove(variant.path)
                why = f"the kept entry is of no use: {type(error).__name__}: {error}"
            else:
                if entry is not None:
                    store.note_use(variant.path)
                    note_hit(name)
                    _say("hit", name, number=entry.number)
                    return entry
                why = "the guards of the kept entry refuse the call"
        if match.equal > most:
            nearest, most = why, match.equal
    _say("miss", name, nearest)
    note(name, LookupOutcome("miss", nearest))
    return None


@contextmanager
def _as_one_file() -> Iterator[None]:
    """Raises FormatError for the errors of records that do not fit together."""
    try:
        yield
    except AotliteError:
        raise
    except Exception as error:
        raise FormatError(
            f"bundle: an entry has parts that do not fit together, expected those of one "
            f"compilation ({type(error).__name__}: {str(error)[:200]})"
        ) from error


def _restored(
    found: DecodedEntry, context: CallContext, request: Request, options: Options
) -> CompiledEntry | None:
    """The entry of kept records, for this call; None if its guards refuse the call."""
    leaves, kept, cut = list(context.leaves), found.kept, found.cut
    facts = facts_of_words(kept.facts, guards_of(found.guards, context.function, leaves))
    reals, symbols = facts.tensors(leaves), found.symbols
    if symbols is not None and not symbols.admits(leaves):
        return None
    check_call(cut, reals, values_of(symbols, leaves))
    of_families = [role for family in cut.meta.families for role in family.members]
    members = {id(reals[role]) for role in of_families if role in reals}
    same = partial(_is_as_it_was, kept, attrs.evolve(context, leaves=()))
    again = CaptureAgain(request, begun(options), members, same)
    entry: CompiledEntry | None
    if symbols is None:
        cut = again.with_tape(cut, found.higher)
        of = leaves, reals, cut.meta, cut.convention.bases, cut.partition
        entry = restored(request, cut, facts.values(*of), again.compilation)
    else:
        entry = again.with_symbols(cut, found.higher, symbols, facts)
    if entry is None or entry.guarded.why_not(leaves) is not None:
        return None
    entry.kept = kept
    return entry


def _is_as_it_was(kept: KeptEntry, context: CallContext, leaves: list[Any]) -> bool:
    if context.is_unbound:
        raise needs_function_for_derivatives(kept.function)
    now = attrs.evolve(context, leaves=leaves, is_again=True)
    return kept.reads.match(now).difference is None


# ----------------------------------------------------------------------------------- compilations
def _compiled(recording: Recording, request: Request, options: Options) -> CompiledEntry:
    watched = recording.watch.around(request.call)
    entry = compile_once(attrs.evolve(request, call=watched, keep=recording.take), options)
    kept, why = recording.kept, recording.reason
    if kept is not None:
        why = store.keep(kept, request.name) or ""
    entry.kept = kept if kept is not None else why
    if why:
        _bypass(recording.name, why, options)
    else:
        _say("kept", recording.name, number=entry.number)
    return entry


def _bypass(name: str, why: str, options: Options) -> None:
    """Says why nothing is kept. Raises UnsupportedError with `strict_cache`."""
    _say("bypass", name, why)
    note(name, LookupOutcome("bypass", why))
    if options.strict_cache:
        advice = instead(why)
        raise noted(
            UnsupportedError(
                f"compile: {name} cannot be kept in the artifact cache, since {why}, expected a "
                "function of which all reads can be compared in another process"
            ),
            *([f"Instead: {advice}."] if advice else []),
            "Leave out strict_cache, and it is compiled as without a cache. (CACHE-3)",
        )


def _say(
    outcome: str, name: str, why: str = "", number: int | None = None, of: str = "artifact"
) -> None:
    facts = {"of": of, "name": name, "outcome": outcome}
    said = {**facts, "why": why} if why else facts
    emit("cache", lambda: said, compile_id=None if number is None else str(number))
