"""What every test run needs: one aotlite to test, and an honest count of torch comparisons."""

import gc
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

ROOT = Path(__file__).parents[1]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def _checkout_is_under_test() -> bool:
    """Whether `import aotlite` finds this checkout or nothing, rather than an installed aotlite."""
    spec = importlib.util.find_spec("aotlite")
    return spec is None or spec.origin is None or Path(spec.origin).parents[1] == ROOT


# An installed aotlite comes first on the path and is the one that is tested. Where there is none,
# the root at the path's end gives this process the checkout, and PYTHONPATH gives it to the
# processes that tests start. In both cases the root makes `tests.*` importable.
if _checkout_is_under_test():
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *paths])
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

# Hundreds of processes import the same modules: without its caches, which git ignores, Python
# compiles each anew in each.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

# A shared machine stalls for longer than Hypothesis's deadline; slowness is measured elsewhere.
# The same examples in every run; `--hypothesis-profile=explore` draws new ones.
# What the phase `explain` would add to a failure, "or any other value", costs tests of planted
# mistakes as much as the failure itself.
SHOWN = [phase for phase in Phase if phase is not Phase.explain]
settings.register_profile(
    "aotlite",
    deadline=None,
    print_blob=True,
    derandomize=True,
    phases=SHOWN,
    max_examples=60,
)
MORE = 6
"""Times as many examples are drawn in the long run, by laws that do not say how many."""
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("aotlite")


class Tally:
    """Counts over all workers, since every report reaches the controlling process."""

    def __init__(self) -> None:
        self.ran = 0
        self.skipped = 0
        self.passed = 0
        self.packages: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Rows that a worker ran as one item (tests/rows.py) have one report where they agree.
        rows = getattr(report, "rows", 1)
        self.passed += rows if report.when == "call" and report.passed else 0
        if not getattr(report, "compares_with_torch", False):
            return
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped += rows
        elif report.when == "call":
            self.ran += rows

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for package in sorted(self.packages or {_package_under_test()}):
            terminalreporter.write_line(f"aotlite under test: {package}")
        # `.ci/run` and readers of a whole run rely on the counts' line.
        selected = self.ran or self.skipped
        counts = f"{self.ran} ran, {self.skipped} skipped" if selected else "none selected"
        terminalreporter.write_line(f"PyTorch comparison tests: {counts}")
        terminalreporter.write_line(f"rows and tests that passed: {self.passed}")


class XdistTally(Tally):
    """A tally that also hears from each worker which aotlite it imported."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        output = getattr(node, "workeroutput", {})
        self.packages.add(output.get("aotlite", "unknown, a worker crashed"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="rewrite tests/goldens")
    parser.addoption("--cpu-times", metavar="FILE", help="write the processor time of each test")
    parser.addoption(
        "--cpu-limit",
        metavar="SECONDS",
        type=float,
        help="fail a test without the marker `slow` that takes more processor time",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Tests of the algorithm compare bits and compile thousands of functions; those of kernels name
    # their backend. What a test starts as another process has the default of every user.
    options: Any = importlib.import_module("aotlite.pipeline.options")
    options.DEFAULT_BACKEND = "reference"
    config.pluginmanager.register(Freezer(), "aotlite-freezer")
    config.pluginmanager.register(Clock(config.getoption("--cpu-limit")), "aotlite-clock")
    rows: Any = importlib.import_module("tests.rows")
    if hasattr(config, "workerinput"):
        if config.getoption("--cpu-limit") is None and config.getoption("--cpu-times") is None:
            config.pluginmanager.register(rows.Rows(), "aotlite-rows")
    else:
        config.pluginmanager.register(rows.Names(), "aotlite-names")
        distributed = config.pluginmanager.hasplugin("xdist")
        config.pluginmanager.register(XdistTally() if distributed else Tally(), "aotlite-tally")
        if config.getoption("--cpu-times"):
            ledger = Ledger(Path(config.getoption("--cpu-times")))
            config.pluginmanager.register(ledger, "aotlite-ledger")


SETTINGS = ("AOTLITE_DUMP", "AOTLITE_LOG", "AOTLITE_TRACE", "AOTLITE_VERIFY")
AT_START = [os.environ.get(name) for name in SETTINGS]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """The tests of a file leave the settings of aotlite as they were, for those behind them."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        now = [os.environ.get(name) for name in SETTINGS]
        assert now == AT_START, f"the file left {SETTINGS} as {now}, expected {AT_START}"
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["aotlite"] = _package_under_test()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with the marker `long` run only where it is asked for: `pytest -m long`."""
    thinning: Any = importlib.import_module("tests.thinning")
    thinning.mark_long(items)
    if "long" in config.option.markexpr:
        return
    kept: list[pytest.Item] = []
    long: list[pytest.Item] = []
    for item in items:
        (long if item.get_closest_marker("long") else kept).append(item)
    if long:
        items[:] = kept
        config.hook.pytest_deselected(items=long)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session):
    # Of the millions of objects that are made now, none is garbage.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    # Tests collect garbage, some of them after each step: what is there from the start, the tests
    # themselves above all, is not looked through each time.
    gc.collect()
    gc.freeze()


YOUNG = 100_000
"""New objects, less those that are gone, after which garbage is looked for: a hundred times as many
as usual. Tests that are about garbage collect it themselves."""


class Freezer:
    """What outlives a test, caches above all, is looked through once and not by each collection.

    Processes that run ten thousand tests have millions of objects, and tests collect garbage often:
    some sixty times. So what earlier tests have left is frozen before a test begins.
    """

    def __init__(self) -> None:
        self.was_full = False
        """Whether all objects have been looked through since the last test."""

    def collected(self, phase: str, info: dict[str, int]) -> None:
        self.was_full |= phase == "stop" and info["generation"] == 2

    def pytest_sessionstart(self) -> None:
        gc.callbacks.append(self.collected)
        gc.set_threshold(YOUNG, 10, 10)

    def pytest_sessionfinish(self) -> None:
        gc.callbacks.remove(self.collected)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self):
        young, *older = gc.get_count()
        if self.was_full or young > YOUNG // 4 or any(older):
            gc.collect()
            gc.freeze()
            self.was_full = False
        return (yield)


def _processor_seconds() -> float:
    """The processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Clock:
    """Takes the processor time of each test, with that of its children; a shared machine has no
    other time that can be compared. With a limit, a test that takes longer must say why: `slow`."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.start = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self):
        self.start = _processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):
        report = yield
        if call.when == "teardown":
            # It travels from worker to controller with the report.
            report.cpu_seconds = seconds = _processor_seconds() - self.start
            if self.limit is not None and seconds > self.limit and report.passed:
                if item.get_closest_marker("slow") is None:
                    report.outcome = "failed"
                    report.longrepr = (
                        f"took {seconds:.1f} s of a processor, expected at most {self.limit} s "
                        "of a test that does not say why by @pytest.mark.slow(why)"
                    )
        return report


class Ledger:
    """Writes the processor time of each test of all workers, the slowest first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.seconds[report.nodeid] = getattr(report, "cpu_seconds", 0.0)

    def pytest_sessionfinish(self) -> None:
        rows = sorted(self.seconds.items(), key=lambda row: -row[1])
        lines = [f"{seconds:.3f}\t{name}\n" for name, seconds in rows]
        self.path.write_text("".join(lines), encoding="utf-8")


def pytest_itemcollected(item: pytest.Item) -> None:
    if "torch" in getattr(item, "fixturenames", ()):
        item.add_marker("torch")
    if "long" in item.config.option.markexpr:
        _draw_more(item)


def _draw_more(item: Any) -> None:
    """In the long profile laws draw more examples, and tests of all journeys have more of them."""
    marker, test = item.get_closest_marker("draws"), getattr(item, "obj", None)
    count = 0 if marker is None else marker.kwargs["long"]
    if is_hypothesis_test(test):
        law: Any = test
        usual: Any = getattr(law, "_hypothesis_internal_use_settings", None) or settings.default
        more = settings(usual, max_examples=count or MORE * usual.max_examples)
        law._hypothesis_internal_use_settings = more
        item.add_marker("long")
    elif count:
        journeys: Any = importlib.import_module("tests.stages.helpers.journeys")
        journeys.EXAMPLES = count
        item.add_marker("long")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not HAS_TORCH and item.get_closest_marker("torch"):
        pytest.skip("PyTorch is not installed")
    known = sys.modules.get("aotlite.ir.symbols.cases.results")
    if known is not None:  # a test may plant a mistake in what finds them
        known.forget_results()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    # An attribute of a report travels from worker to controller with it.
    report.compares_with_torch = item.get_closest_marker("torch") is not None
    return report


@pytest.fixture(scope="session")
def torch():
    """PyTorch, for tests with the marker `torch`: an import at a module's top hides their skip."""
    module = pytest.importorskip("torch")
    # Each worker is a process of its own; threads on top of that only get in each other's way.
    module.set_num_threads(1)
    return module


def _package_under_test() -> str:
    import aotlite

    return os.path.dirname(os.path.abspath(aotlite.__file__))
