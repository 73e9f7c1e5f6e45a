"""Records of drawn programs, written and read back; and documents with something changed.

    python -m tests.rules.helpers.record_programs --count 1000 --changes 100000

prints how many programs had no difference, and how many changed documents were refused or read.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import optree

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.errors import FormatError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files import dumps
from aotlite.ir.graph.role import ROLES
from aotlite.pipeline.arguments import call_of, flat_results, on_leaves
from aotlite.pipeline.journey import STAGES, retraced
from aotlite.pipeline.options import make_options
from aotlite.pipeline.record_files import Decoded, Document, at_rest, decoded, encoded
from aotlite.pipeline.request import Compilation, Request
from aotlite.pipeline.size_regions.choice import symbolic_sizes
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.guards.snapshots import Same, Snapshot
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts
from aotlite.testing.engines.interpreter import setup_of
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.generate.random_programs import draw


@attrs.frozen
class Cut:
    """What a function is after stage 8."""

    records: StageRecords
    facts: GuardedFacts
    guards: Sequence[Any]
    hints: dict[str, int]
    outside: dict[str, object]

    @property
    def document(self) -> Document:
        return encoded(
            (self.records, self.facts), guards=self.guards, outside=self.outside, places=False
        )


def cut_of(function: Callable[..., Any], *args: Any, **options: Any) -> Cut:
    """The records of a function, captured for these arguments and not run."""
    how = make_options(**{"backend": "reference", **options})
    call = call_of(args, {})
    sizes = symbolic_sizes(function, call, (), how, {}, [])
    given = call.leaves, call.tensors(), flat_results, "program", sizes
    request = Request(function, on_leaves(function, call), *given)
    found: list[Any] = []

    def keep(captured: Any, records: StageRecords) -> None:
        found.extend([at_rest(records), GuardedFacts.of(captured, records.meta)])

    retraced(request, Compilation.begin(how, STAGES), keep)
    table = None if sizes is None or not sizes.table.symbols else sizes.table
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    outside = {"function": function, **{f"cell {i}": each for i, each in enumerate(cells)}}
    outside |= {f"global {name}": function.__globals__[name] for name in names}
    guards, hints = ((), {}) if table is None else (table.log, dict(table.hints))
    records, facts = found
    return Cut(records, facts, guards, hints, outside)


def drawn(seed: int) -> Cut | None:
    """The records of the program of a seed; None for one that compilation refuses."""
    program = draw(seed)
    call = program.calls[0]
    _, args = setup_of(LIBRARY, call)
    with nullcontext() if call.grad else LIBRARY.no_grad():
        try:
            return cut_of(program.function_of(LIBRARY), *args, dynamic=False)
        except UnsupportedError:
            return None


def faults(cut: Cut) -> list[str]:
    """The differences of the records from those that are read back, to the last field."""
    document = cut.document
    back = decoded(document, outside=cut.outside)
    mine: list[Any] = list(back.root)
    its: list[Any] = [cut.records, cut.facts]
    if cut.hints:
        mine, its = ([each.at(cut.hints) for each in pair] for pair in (mine, its))
    found = list(_unlike("", its, mine))
    found += mine[0].differences(its[0])
    again = encoded(back.root, guards=back.guards, outside=cut.outside, places=False)
    return found + ([] if again == document else ["the document, written again"])


def _unlike(path: str, a: Any, b: Any) -> Iterator[str]:
    if type(a) is not type(b):
        yield f"{path} is a {type(b).__name__}, expected a {type(a).__name__}"
    elif isinstance(a, Graph):
        if dumps(a, places=False) != dumps(b, places=False):
            yield f"{path} is another graph"
    elif isinstance(a, Snapshot):
        yield from _unlike(path, a.content, b.content)
    elif isinstance(a, Same):
        yield from _unlike(path, a.thing, b.thing)
    elif isinstance(a, ViewChain):
        steps = [[(s.op, s.args, s.operand, s.result) for s in chain] for chain in (a, b)]
        if steps[0] != steps[1]:
            yield f"{path} has other views"
    elif isinstance(a, BaseException):
        if a.args != b.args or getattr(a, "__notes__", []) != getattr(b, "__notes__", []):
            yield f"{path} is {b!r}, expected {a!r}"
    elif isinstance(a, (tuple, list)):
        if len(a) != len(b):
            yield f"{path} has {len(b)} items, expected {len(a)}"
        for place, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from _unlike(f"{path}[{place}]", x, y)
    elif isinstance(a, dict):
        yield from _unlike(f"the keys of {path}", list(a), list(b))
        yield from _unlike(path, list(a.values()), list(b.values()))
    elif _is_record(a):
        for field in attrs.fields(type(a)):
            yield from _unlike(
                f"{path}.{field.name}", getattr(a, field.name), getattr(b, field.name)
            )
    elif not (a is b or (a == b and (isinstance(a, frozenset) or repr(a) == repr(b))) or a != a):
        yield f"{path} is {b!r}, expected {a!r}"


def _is_record(value: Any) -> bool:
    kind = type(value)
    plain = (*ROLES, optree.PyTreeSpec)
    known = kind.__module__.startswith(("aotlite.stages.", "aotlite.pipeline."))
    return attrs.has(kind) and known and not isinstance(value, plain)


# ------------------------------------------------------------------------------------- changes
def changed(document: Document, rng: random.Random) -> Document:
    """The document with one thing changed: bytes, or a value of its JSON."""
    texts = [document.text, *document.graphs]
    which = rng.randrange(len(texts)) if rng.random() < 0.3 else 0
    text = texts[which]
    if rng.random() < 0.3:
        place = rng.randrange(len(text))
        end = place + rng.choice([0, 1, 1, 5, len(text)])
        texts[which] = text[:place] + rng.choice(["", "0", '"', "[", "]", "9" * 30]) + text[end:]
    else:
        root = json.loads(text)
        _change(root, rng)
        texts[which] = json.dumps(root, separators=(",", ":"))
    return Document(texts[0], tuple(texts[1:]))


def _change(root: Any, rng: random.Random) -> None:
    """Replaces a random value inside by another one of the text, or by something odd."""
    places = [(root, key) for key in root]
    for holder, key in places:
        inner = holder[key]
        if isinstance(inner, (dict, list)):
            keys: Any = inner if isinstance(inner, dict) else range(len(inner))
            places += [(inner, k) for k in keys]
    holder, key = rng.choice(places)
    other, at = rng.choice(places)
    odd: list[Any] = [
        None,
        True,
        -1,
        0,
        1 << 62,
        1 << 70,
        0.5,
        "",
        "x",
        [],
        {},
        {"ref": 0},
        {"ref": 10**6},
    ]
    value = json.loads(json.dumps(other[at])) if rng.random() < 0.5 else rng.choice(odd)
    if isinstance(holder, dict) and rng.random() < 0.1:
        del holder[key]
    else:
        holder[key] = value


def read_changed(cut: Cut, document: Document) -> Decoded | None:
    """What is read of a document; None if it is refused. Raises whatever is no FormatError."""
    try:
        return decoded(document, outside=cut.outside)
    except FormatError:
        return None


def main(count: int, changes: int, seed: int) -> Counter[str]:
    """Compares programs, and reads changed documents; prints what is wrong."""
    found: Counter[str] = Counter()
    cuts = []
    for number in range(seed, seed + count):
        cut = drawn(number)
        found["programs" if cut else "refused by compile"] += 1
        if cut is None:
            continue
        cuts.append(cut)
        wrong = faults(cut)
        if wrong:
            found["programs with differences"] += 1
            print(f"seed {number}: {wrong[:3]}", flush=True)
    rng = random.Random(seed)
    documents = [cut.document for cut in cuts[:100]]
    for _ in range(changes):
        which = rng.randrange(len(documents))
        made = changed(documents[which], rng)
        begin = time.perf_counter()
        try:
            read = read_changed(cuts[which], made)
        except Exception as error:
            found["changed documents that raise something else"] += 1
            print(f"{type(error).__name__}: {error}"[:300], flush=True)
            continue
        found["slow"] += time.perf_counter() - begin > 1
        found["changed documents refused" if read is None else "changed documents read"] += 1
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    total = main(chosen.count, chosen.changes, chosen.seed)
    print(dict(total))
    wrong = "programs with differences", "changed documents that raise something else", "slow"
    sys.exit(any(total[each] for each in wrong))
