"""`aotlite demo`: two compiled functions train a network that reads handwritten digits.

Each batch runs `loss = compiled_loss(model, images, labels)`, an eager `loss.backward()`, and
`compiled_update(optimizer)`. `run` trains and returns figures; `command` prints them.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import aotlite
from aotlite import inspect
from aotlite.cli import number
from aotlite.cli.digits import EAGER, Functions, Session, loss, predict, step, update
from aotlite.cli.measure import alternating_medians, saved_bytes
from aotlite.data import load_digits
from aotlite.ir.errors import ArgumentError

EPOCHS = 10
BATCH = 64
EAGER_STEPS = 20


@attrs.frozen(kw_only=True)
class DemoResult:
    """The figures of one training. Times are in seconds, sizes in bytes."""

    seed: int
    accuracy: float
    """The share of test digits read right, in eval mode."""
    losses: tuple[float, ...]
    """The loss at each step."""
    train_accuracies: tuple[float, ...]
    """The accuracy of each epoch, counted while training."""
    seconds: float
    """The time of the whole training, compilation included."""
    first_step_seconds: float
    """The time of the first step, which compiles the functions."""
    variants: dict[str, int]
    """The number of compilations of each function: a new learning rate compiles nothing again."""
    written: dict[str, tuple[str, ...]]
    """The places of the tensors that each function writes."""
    compiled_step_seconds: float | None
    """The median time of a compiled step; None without eager steps."""
    eager_step_seconds: float | None
    whole_step_seconds: float | None
    """The median time of a step that is one compiled function, backward and update included."""
    compiled_saved_bytes: int
    """The bytes that one compiled loss keeps for its backward."""
    eager_saved_bytes: int


# ------------------------------------------------------------------------------------ the training
def compiled_functions(dump: str | None = None, backend: object = None) -> Functions:
    """Returns the three functions, compiled. Each dumps its stages into a folder below `dump`."""

    def compiled(function: Callable[..., object]) -> Any:
        folder = str(Path(dump) / function.__name__) if dump else None
        return aotlite.compile(function, dump=folder, backend=backend)

    return Functions(compiled(loss), compiled(update), compiled(predict))


def run(
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
    batch: int = BATCH,
    eager_steps: int = EAGER_STEPS,
    dump: str | None = None,
    backend: Any = None,
    quiet: bool = False,
) -> DemoResult:
    """Trains once by compiled functions and returns the figures. Shows a progress bar unless
    `quiet`.

    Afterwards it times `eager_steps` steps of each kind on copies; 0 times none. `dump` is a folder
    for the stages of each function. Raises ArgumentError for a batch larger than the training set.
    """
    digits = load_digits()
    if not 2 <= batch <= len(digits.train_labels):
        raise ArgumentError(
            f"demo: batch is {batch}, expected 2 to {len(digits.train_labels)}, the training digits"
        )
    functions = compiled_functions(dump, backend)
    session = Session(functions, digits, seed, batch)
    for _ in _progress(session.train(epochs), session, epochs, quiet):
        pass
    return _result(session, functions, eager_steps, backend)


def _result(
    session: Session, functions: Functions, eager_steps: int, backend: Any = None
) -> DemoResult:
    accuracy = session.accuracy()
    images, labels = next(session.epoch())
    compiled_seconds = eager_seconds = whole_seconds = None
    if eager_steps:
        twins = [session.twin(functions), session.twin(EAGER)]
        steps: list[Callable[[], Any]]
        steps = [lambda twin=twin: twin.step(images, labels) for twin in twins]  # type: ignore[misc]
        whole, third = aotlite.compile(step, backend=backend), session.twin(EAGER)
        steps.append(lambda: whole(third.model, third.optimizer, images, labels).item())
        compiled_seconds, eager_seconds, whole_seconds = alternating_medians(steps, eager_steps)
    twin = session.twin(EAGER)
    outside = [*twin.model.parameters(), *twin.model.buffers(), images, labels]
    return DemoResult(
        seed=session.seed,
        accuracy=accuracy,
        losses=tuple(session.losses),
        train_accuracies=tuple(session.train_accuracies),
        seconds=sum(session.step_seconds),
        first_step_seconds=session.step_seconds[0],
        variants={name: len(each.entries) for name, each in _items(functions)},
        written={name: _written(name, each) for name, each in _items(functions)},
        compiled_step_seconds=compiled_seconds,
        eager_step_seconds=eager_seconds,
        whole_step_seconds=whole_seconds,
        compiled_saved_bytes=inspect.saved_bytes(functions.loss.partition),  # type: ignore[attr-defined]
        eager_saved_bytes=saved_bytes(loss(twin.model, images, labels), outside),
    )


def _items(functions: Functions) -> list[tuple[str, Any]]:
    return [(name, getattr(functions, name)) for name in ("loss", "update", "predict")]


def _written(name: str, compiled: Any) -> tuple[str, ...]:
    """Returns the places of the tensors that a function writes, as paths from its arguments."""
    first = "optimizer" if name == "update" else "model"
    updated = compiled.entries[0].meta.updated
    return tuple([each.place.replace("argument 0", first, 1) for each in updated])


# ----------------------------------------------------------------------------------- what is shown
def _progress(steps: Iterable[None], session: Session, epochs: int, quiet: bool) -> Iterator[None]:
    """Yields the steps, with a progress bar unless `quiet`."""
    if quiet:
        yield from steps
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("compiling", total=epochs * session.batches)
        for step in steps:
            bar.update(task, advance=1, description=f"loss {session.losses[-1]:.4f}")
            yield step


def report(result: DemoResult, console: Console) -> None:
    """Prints the figures of a training."""
    console.print(f"accuracy on the test digits: [bold]{result.accuracy:.2%}[/bold]")
    console.print(
        f"{len(result.losses)} steps in {result.seconds:.1f} s; the first, in which the functions "
        f"are compiled, took {result.first_step_seconds:.2f} s"
    )
    console.print(_costs(result))
    for name, places in result.written.items():
        variants = result.variants[name]
        times = "once" if variants == 1 else f"{variants} times"
        console.print(f"[bold]{name}[/bold], compiled {times}, writes ", end="")
        console.print(_listed(places), markup=False, highlight=False)
    console.print(_HOW_TO_SEE, highlight=False, soft_wrap=True)


def _costs(result: DemoResult) -> Table:
    table = Table("", "compiled", "eager", "compiled / eager")
    compiled, eager = result.compiled_step_seconds, result.eager_step_seconds
    if compiled is not None and eager is not None:
        ratio = f"{compiled / eager:.2f}"
        table.add_row("time a step", f"{compiled * 1e3:.1f} ms", f"{eager * 1e3:.1f} ms", ratio)
    whole = result.whole_step_seconds
    if whole is not None and eager is not None:
        ratio = f"{whole / eager:.2f}"
        table.add_row("as one graph", f"{whole * 1e3:.1f} ms", f"{eager * 1e3:.1f} ms", ratio)
    compiled, eager = result.compiled_saved_bytes, result.eager_saved_bytes
    table.add_row("saved for backward", _kib(compiled), _kib(eager), f"{compiled / eager:.2f}")
    return table


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB"


def _listed(places: tuple[str, ...]) -> str:
    if not places:
        return "nothing in place"
    found = list(dict.fromkeys(re.sub(r"\[\d+\]$", "[...]", place) for place in places))
    return "in place:" + "".join(f"\n  {place}" for place in found)


_HOW_TO_SEE = """\
To see each stage:
  aotlite demo --dump FOLDER             a file for every stage of every function
  AOTLITE_DUMP=FOLDER python train.py    the same of your own program
  compiled.forward_graph.print_readable(), compiled.backward_graph.print_readable()
  print(compiled.meta.explain())         what a function reads, writes and returns"""


# -------------------------------------------------------------------------------------- the command
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite demo`."""
    for name, default, least, purpose in (
        ("--seed", 0, 0, "seed of the initial values, of dropout and of the order of digits"),
        ("--seeds", 1, 1, "train this many times, with seeds from --seed on, and print the mean"),
        ("--epochs", EPOCHS, 1, "how often to go through the training digits"),
        ("--batch", BATCH, 2, "digits a step"),
        ("--eager-steps", EAGER_STEPS, 0, "steps of each kind to time afterwards; 0 for none"),
    ):
        parser.add_argument(
            name,
            type=number(least),
            default=default,
            metavar="N",
            help=f"{purpose} (default: %(default)s)",
        )
    parser.add_argument(
        "--backend",
        choices=("auto", "cpu", "loops", "reference"),
        default="auto",
        help="who compiles (default: %(default)s)",
    )
    parser.add_argument(
        "--dump", metavar="FOLDER", help="write every stage of every function to files there"
    )


def command(args: argparse.Namespace) -> None:
    """Runs `aotlite demo`: trains and prints the figures, or the mean accuracy of several seeds."""
    console = Console()
    options = {"epochs": args.epochs, "batch": args.batch}
    options |= {"dump": args.dump, "backend": args.backend}
    if args.seeds == 1:
        report(run(seed=args.seed, eager_steps=args.eager_steps, **options), console)
        return
    accuracies = []
    for seed in itertools.islice(itertools.count(args.seed), args.seeds):
        result = run(seed=seed, eager_steps=0, quiet=True, **options)
        accuracies.append(result.accuracy)
        console.print(f"seed {seed}: {result.accuracy:.2%} in {result.seconds:.1f} s")
    console.print(f"mean of {args.seeds} seeds: [bold]{statistics.mean(accuracies):.2%}[/bold]")
