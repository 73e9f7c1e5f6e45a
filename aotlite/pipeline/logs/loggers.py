"""The loggers: events as lines of text, by Python's `logging`.

    aotlite.graphs  aotlite.guards  aotlite.recompiles  aotlite.partition  aotlite.kernels
    aotlite.cache   aotlite.autograd  aotlite.stages

A logger is off until it has a level of its own, or `aotlite` has one. Each line begins with the id
of the compilation. The text is made when a handler asks for it. Rules: LOG-1, GEN-9.
Spec: `specs/logs.md`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from logging import DEBUG, INFO, WARNING

import attrs

from aotlite.ir.forks import lock
from aotlite.ir.logs import LogEvent, listen, stop
from aotlite.pipeline.logs.artifact_text import text_of
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.s10_runtime.guards.failures import GuardCheck

NAMES = {
    "graphs": "joint, forward, backward and inference graphs; debug: every stage, metadata",
    "guards": "the guards of each entry, and the conditions on sizes; debug: their tests",
    "recompiles": "why a call needed another entry",
    "partition": "what is saved for the backward, or folded, how many bytes, and why",
    "kernels": "which kernels were loaded or compiled, in how many seconds; debug: their text",
    "cache": "hits and misses of the disk cache",
    "autograd": "backwards that were compiled, derivatives of them, tapes that were captured",
    "stages": "compilations and their seconds; debug: those of each stage",
}
"""The names of loggers, with what they say."""

ROOT = "aotlite"
TAPE = "tape-"
"""With what the ids of captured tapes begin."""
_OTHERS = {"kernels": ("aotlite.device_graphs",), "autograd": ("aotlite.compiled_autograd",)}
"""Loggers of single features, which get the level of a name, too."""

_LOGGERS = {name: logging.getLogger(f"{ROOT}.{name}") for name in NAMES}
if logging.getLogger(ROOT).level == logging.NOTSET:
    logging.getLogger(ROOT).setLevel(WARNING)  # the level of a program's root switches nothing on


def loggers_of(name: str) -> list[logging.Logger]:
    """The loggers that a name stands for."""
    return [_LOGGERS[name], *map(logging.getLogger, _OTHERS.get(name, ()))]


_REFRESHES = lock()


def refresh() -> None:
    """Listens if some logger is on, else does not. A program may set levels at any time."""
    with _REFRESHES:  # what one thread finds must not undo what another has found later
        if any(logger.isEnabledFor(INFO) for logger in _LOGGERS.values()):
            listen(log)
        else:
            stop(log)


def log(event: LogEvent) -> None:
    """A listener: hands an event to the loggers that are on."""
    for name, level, say in _lines(event):
        logger = _LOGGERS[name]
        if logger.isEnabledFor(level):
            message = Message(event.compile_id, say)
            logger.log(level, "%s", message, extra={"compile_id": event.compile_id})


@attrs.frozen(eq=False)
class Message:
    """The text of an event, made when a handler formats it; each line has the compilation's id."""

    compile_id: str
    say: Callable[[], str]

    def __str__(self) -> str:
        """
        >>> print(Message("3", lambda: "one line\\nanother line"))
        [3] one line
        [3] another line
        """
        return "\n".join([f"[{self.compile_id}] {line}" for line in self.say().split("\n")])


# ------------------------------------------------------------------------------- what is said
Line = tuple[str, int, Callable[[], str]]
"""A logger's name, a level, and a function that makes the text."""


def _lines(event: LogEvent) -> Iterator[Line]:
    facts = event.facts
    match event.name:
        case "artifact":
            yield from _artifact(event.compile_id, facts["stage"], event.made)
        case "guards":
            checks = facts["guards"]
            yield "guards", INFO, lambda: _guards(checks)
            yield "guards", DEBUG, lambda: "\n".join([each.test for each in checks])
        case "compile_start":
            given = facts["arguments"]
            yield "stages", INFO, lambda: f"compiles {facts['function']}({', '.join(given)})"
        case "compile":
            yield "stages", INFO, lambda: f"compiled {facts['function']}{_ended(event)}"
        case "stage":
            yield "stages", DEBUG, lambda: f"{facts['stage']}{_ended(event)}"
        case "verify":
            yield "stages", DEBUG, lambda: f"verify {facts['checked']}{_ended(event)}"
        case "instance":
            yield "stages", INFO, lambda: f"made for sizes {facts['sizes']}{_ended(event)}"
        case "kernel" | "compiler":
            yield "kernels", INFO, lambda: _kernel(event)
        case "fold":
            yield "partition", INFO, lambda: _fold(event)
        case "refold":
            yield "partition", INFO, lambda: _refold(event)
        case "cache":
            yield "cache", INFO, lambda: " ".join([f"{k} {v}" for k, v in facts.items()])
        case "recompile":
            yield "recompiles", INFO, lambda: _recompile(event)
        case "backward" | "order" | "tape":
            level = WARNING if "error" in facts else INFO
            yield "autograd", level, lambda: f"{_derivative(event)}{_ended(event)}"


_MAIN = {"4 joint", "5 desugar", "8 partition, forward", "8 partition, backward"}
"""The stages whose graphs are shown without debug."""


def _artifact(compile_id: str, stage: str, made: object) -> Iterator[Line]:
    if compile_id.startswith(TAPE):
        level = INFO if stage.startswith("7 simplify") else DEBUG
        yield "autograd", level, lambda: f"{stage}\n{text_of(made)}"
    elif isinstance(made, Partition):
        yield "partition", INFO, lambda: f"{stage}\n{text_of(made)}"
        if made.backward is None:  # it is shown as no stage of its own
            yield "graphs", INFO, lambda: f"inference graph\n{made.forward}"
    elif stage == "8 partition, conditions":
        yield "guards", INFO, lambda: f"{stage}\n{made}"
    elif stage.startswith("9 lower"):
        yield "kernels", DEBUG, lambda: f"{stage}\n{made}"
    else:
        level = INFO if stage in _MAIN or ", order" in stage else DEBUG
        yield "graphs", level, lambda: f"{stage}\n{text_of(made)}"


def _guards(checks: Sequence[GuardCheck]) -> str:
    lines = [f"  {each.subject}: expected {each.expected}" for each in checks]
    return "\n".join([f"{len(checks)} guards", *lines])


def _recompile(event: LogEvent) -> str:
    facts = event.facts
    reasons = [f"  {each}" for each in facts["reasons"]]
    return "\n".join([f"compiled {facts['function']} again", *reasons])


def _kernel(event: LogEvent) -> str:
    facts = event.facts
    if event.name == "compiler":
        return f"{facts['compiler']} compiled {facts['name']}{_ended(event)}"
    text = f"{facts['characters']:,} characters of {facts['language']}"
    if facts.get("different", 0) < facts.get("kernels", 0):
        text = f"{facts['different']} different ones of {facts['kernels']}, {text}"
    return f"kernels of {facts['name']}, {text}{_ended(event)}"


def _fold(event: LogEvent) -> str:
    facts = event.facts
    head = f"folded of {facts['graph']}: {facts['ops']} ops, {facts['bytes']:,} bytes"
    lines = [f"  folded: {each}" for each in facts["folded"]]
    lines += [f"  not folded: {place}: {why}" for place, why in facts["not_folded"].items()]
    lines += [f"  runs at each call: {each}" for each in facts["refused"]]
    return "\n".join([head, *lines])


def _refold(event: LogEvent) -> str:
    facts = event.facts
    of = ", ".join(facts["changed"]) or "constants"
    text = f"{facts['ran']} ops ran, {facts['shared']} values were held, {facts['bytes']:,} bytes"
    return f"folded values of {facts['graph']} for other {of}: {text}{_ended(event)}"


def _derivative(event: LogEvent) -> str:
    facts = event.facts
    match event.name:
        case "order":
            return f"derivatives of order {facts['order']}"
        case "tape":
            return f"tape of {facts['nodes']} nodes"
    return f"backward {facts['graph']}"


def _ended(event: LogEvent) -> str:
    error = event.facts.get("error")
    failed = "" if error is None else f", failed: {error}"
    return f": {1e3 * event.seconds:.1f} ms{failed}"
