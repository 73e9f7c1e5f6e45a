"""LOG-1: loggers are off, lazy, and change nothing."""

import gc
import logging
import os
import re
import subprocess
import sys
import time
import weakref
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir import logs
from aotlite.ir.graph import Graph
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.pipeline.logs.log_options import LEVELS, parsed
from aotlite.pipeline.logs.loggers import NAMES
from aotlite.stages.records.metadata import explain_text
from tests.end_to_end.helpers.cases import cases
from tests.end_to_end.helpers.worlds import body_of, differences, run_call
from tests.rules.helpers.logs import kept, logged


def loss(x, w):
    x[0].mul_(2.0)
    return (x @ w).exp().sum()


def arguments(rows=4):
    return al.ones(rows, 3), al.ones(3, 2).requires_grad_()


def step(**options):
    compiled = al.compile(loss, backend="reference", **options)
    compiled(*arguments()).backward()
    return compiled


class Unprintable:
    """What a text would be made of raises."""

    def __enter__(self):
        self._patches = [
            mock.patch.object(Graph, "__str__", self._refuse),
            mock.patch.object(explain_text, "_partition_lines", self._refuse),
            mock.patch.object(explain_text, "_meta_lines", self._refuse),
        ]
        for each in self._patches:
            each.start()

    def __exit__(self, *_):
        for each in self._patches:
            each.stop()

    @staticmethod
    def _refuse(*_):
        raise AssertionError("a text was made")


# ------------------------------------------------------------------------------- off, and lazy
@pytest.mark.rules("LOG-1")
def test_nothing_is_formatted_and_no_clock_is_read_while_nobody_listens():
    with Unprintable(), mock.patch.object(time, "perf_counter_ns", Unprintable._refuse):
        step()
    with Unprintable(), pytest.raises(AssertionError, match="a text was made"):
        str(step().forward_graph)


@pytest.mark.rules("LOG-1")
def test_a_logger_that_is_off_makes_no_text_while_others_are_on():
    with Unprintable(), logged(kernels=True, guards="debug", stages="debug", recompiles=True) as on:
        step()
    assert on.lines


@pytest.mark.rules("LOG-1")
def test_no_text_is_made_where_no_handler_takes_it():
    """A level alone costs no text: a program may have no handler, or one that is off."""
    logger = logging.getLogger("aotlite")
    with mock.patch.object(logger, "propagate", False), mock.patch.object(logger, "handlers", []):
        logging.getLogger("aotlite.graphs").setLevel("DEBUG")
        try:
            with Unprintable():
                logger.addHandler(logging.NullHandler())
                step()
        finally:
            logging.getLogger("aotlite.graphs").setLevel(logging.NOTSET)


@pytest.mark.rules("LOG-1")
def test_the_level_of_the_root_switches_nothing_on():
    root = logging.getLogger()
    with kept() as handler, mock.patch.object(root, "level", logging.DEBUG):
        logging.Logger.manager._clear_cache()
        step()
    logging.Logger.manager._clear_cache()
    assert [] == handler.lines


@pytest.mark.rules("LOG-1")
def test_levels_may_be_set_by_logging_alone():
    logger = logging.getLogger("aotlite.graphs")
    with kept() as handler:
        logger.setLevel("INFO")
        try:
            step()
        finally:
            logger.setLevel(logging.NOTSET)
        count = len(handler.lines)
        step()
    assert count == len(handler.lines) > 0
    assert {"aotlite.graphs"} == {each.name for each in handler.records}


# ------------------------------------------------------------------------------ what they say
@pytest.mark.rules("LOG-1", "GEN-9")
def test_each_line_begins_with_the_number_of_its_compilation():
    with logged(all="debug") as on:
        entry = step().entries[0]
        compiled = al.compile(loss, backend="reference", dynamic=False)
        for rows in (4, 5):
            compiled(*arguments(rows)).backward()
    numbers = [entry.number, *[each.number for each in compiled.entries]]
    found = [re.match(r"\[(\d+)\] ", line) for line in on.lines]
    assert all(found)
    assert numbers == list(dict.fromkeys([int(each[1]) for each in found]))
    assert {each.compile_id for each in on.records} == set(map(str, numbers))


@pytest.mark.rules("LOG-1", "LOG-3")
def test_graphs_are_the_four_that_matter_and_runnable():
    with logged(graphs=True) as on:
        compiled = step()
    texts = [re.sub(r"^\[\d+\] ", "", text, flags=re.MULTILINE) for text in on.of("graphs")]
    titles = [text.partition("\n")[0] for text in texts]
    assert ["4 joint", "8 partition, forward", "8 partition, backward"] == titles
    assert str(compiled.forward_graph) == texts[1].partition("\n")[2]
    for text in texts:
        graph_from_source(text.partition("\n")[2])
    with logged(graphs=True) as on, al.no_grad():
        al.compile(loss, backend="reference")(*arguments())
    assert ["4 joint", "inference graph"] == [
        text.partition("\n")[0].partition(" ")[2] for text in on.of("graphs")
    ]


@pytest.mark.rules("LOG-1")
def test_debug_shows_every_stage_and_the_metadata():
    with logged(graphs="debug") as on:
        step()
    titles = [text.partition("\n")[0].partition(" ")[2] for text in on.of("graphs")]
    stages = ["1 capture", "2 analyze", "3 convention", "4 joint", "6 functionalize", "7 simplify"]
    assert stages == titles[:6]


@pytest.mark.rules("LOG-1")
def test_graphs_show_strides_and_devices_that_are_unusual():
    with logged(graphs=True) as on:
        al.compile(lambda x: x.t() * 2, backend="reference")(al.ones(2, 3).t().contiguous().t())
    assert "f32[2, 3][1, 2]" in "\n".join(on.of("graphs"))


@pytest.mark.rules("LOG-1")
def test_effects_are_shown_before_and_after_tokens_are_made_inside():
    def noisy(x):
        al.effects.print("{}", x)
        return x * 2

    with logged(graphs="debug") as on:
        al.compile(noisy, backend="reference", unlift_tokens=True)(al.ones(2))
    texts = on.of("graphs")
    lifted = [text for text in texts if "inference graph" in text.partition("\n")[0]]
    unlifted = [text for text in texts if "forward unlifted" in text.partition("\n")[0]]
    assert [True] == ["token" in text.partition(")")[0] for text in lifted]
    assert [False] == ["token" in text.partition(")")[0] for text in unlifted]


@pytest.mark.rules("LOG-1")
def test_guards_and_reasons_of_recompilations_are_said():
    with logged(guards=True, recompiles=True) as on:
        compiled = al.compile(lambda x, flag: x * flag, backend="reference", dynamic=False)
        for flag in (True, False):
            compiled(al.ones(3), flag)
    number = compiled.entries[1].number
    reason = "entry 0: argument 1 is False, expected True"
    assert [f"[{number}] compiled <lambda> again\n[{number}]   {reason}"] == on.of("recompiles")
    assert any("argument 1: expected True" in text for text in on.of("guards"))


@pytest.mark.rules("LOG-1")
def test_conditions_on_sizes_are_among_the_guards():
    with logged(guards=True) as on:
        al.compile(lambda x: x * 2 if x.shape[0] > 3 else x, backend="reference", dynamic=True)(
            al.ones(5)
        )
    assert any("s0 > 3" in text for text in on.of("guards"))


@pytest.mark.rules("LOG-1")
def test_backwards_derivatives_and_failures_are_said():
    with logged(autograd=True) as on:
        compiled = al.compile(lambda x: (x**3).sum(), backend="reference")
        x = al.ones(2, requires_grad=True)
        (grad,) = al.autograd.grad(compiled(x), [x], create_graph=True)
        grad.sum().backward()
    texts = "\n".join(on.of("autograd"))
    assert re.search(r"derivatives of order 2: [\d.]+ ms", texts)

    def broken(graph, inputs):
        raise ValueError("no backward for you")

    with logged(autograd=True) as on:
        loss_of = al.compile(loss, backend="reference", bw_compiler=broken)(*arguments())
        with pytest.raises(al.BackendError):
            loss_of.backward()
    (record,) = on.records
    assert (logging.WARNING, "aotlite.autograd") == (record.levelno, record.name)
    assert "failed: BackendError" in record.said


@pytest.mark.rules("LOG-1", "GEN-9")
def test_tapes_of_compiled_autograd_have_ids():
    with logged(autograd="debug", graphs="debug") as on:
        tapes = al.compiled_autograd.CompiledAutograd.of("reference")
        w = al.ones(3, requires_grad=True)
        with al.compiled_autograd.enable(tapes):
            (w * w).sum().backward()
    *graphs, tape = on.of("autograd")
    assert re.match(r"\[tape-\d+\] tape of \d+ nodes: ", tape)
    stages = [text.partition("\n")[0].partition("] ")[2] for text in graphs]
    assert ["1 capture", "7 simplify"] == stages
    assert [] == on.of("graphs")
    with logged(autograd=True) as on, al.compiled_autograd.enable("reference", enable_log=False):
        (w * w * w).sum().backward()
    assert [] == on.of("autograd")


# ---------------------------------------------------------------------------- changes nothing
@pytest.mark.rules("LOG-1", "LOG-5")
def test_what_is_logged_changes_no_result_gradient_or_source(tmp_path):
    count = 0

    @settings(max_examples=25, derandomize=True, database=None)
    @given(cases())
    def agree(drawn):
        nonlocal count
        body, worlds, sources = body_of(drawn), [], []
        for is_on in (False, True):
            options = {"all": "debug", "trace": tmp_path / "run.jsonl", "calls": True}
            with logged(**options if is_on else {}) as on:
                compiled = al.compile(body, backend="reference")
                worlds.append([run_call(drawn, n, compiled) for n in range(len(drawn.calls))])
                sources.append([each.guarded.source for each in compiled.entries])
            assert is_on is bool(on.lines)
        assert sources[0] == sources[1]
        for silent, loud in zip(*worlds, strict=True):
            assert [] == differences(loud, silent)
            count += 1

    agree()
    assert count > 20


@pytest.mark.rules("LOG-1", "LOG-5")
def test_what_is_logged_adds_no_guard_on_sizes(tmp_path):
    def guards():
        compiled = al.compile(loss, backend="reference", dynamic=True)
        for rows in (4, 7, 9):
            compiled(*arguments(rows)).backward()
        return [[guard.text for guard in region.guards] for region in compiled.regions()]

    silent = guards()
    with logged(all="debug", trace=tmp_path / "run.jsonl", calls=True):
        assert silent == guards()
    assert 1 == len(silent)


# -------------------------------------------------------------------------------- the setting
HOW = ["", "+", "-", *map(":{}".format, LEVELS)]
ITEMS = st.lists(st.tuples(st.sampled_from([*NAMES, "all"]), st.sampled_from(HOW)))


@pytest.mark.rules("LOG-1")
@given(ITEMS, st.sampled_from([",", " , ", ",,"]))
def test_later_items_of_a_setting_win(items, comma):
    expected = {}
    for name, how in items:
        sign = {"": "info", "+": "debug", "-": "off"}.get(how, how[1:])
        expected |= dict.fromkeys(NAMES if name == "all" else [name], LEVELS[sign])
    text = comma.join([how + name if how in "+-" else name + how for name, how in items])
    assert expected == parsed(text).levels
    assert (None, False) == (parsed(text).trace, parsed(text).calls)


@pytest.mark.rules("LOG-1")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph", "AOTLITE_LOG has 'graph', expected one of .*; did you mean graphs"),
        ("graphs;guards", "AOTLITE_LOG has 'graphs;guards', expected one of "),
        ("graphs:loud", "'graphs:loud', expected one of the levels debug, info, "),
        ("+graphs:info", "'\\+graphs:info', expected a sign or a level"),
        ("trace=", "'trace=', expected trace=FILE"),
    ],
)
def test_wrong_settings_are_errors_that_list_what_is_right(text, message, monkeypatch):
    monkeypatch.setenv("AOTLITE_LOG", text)
    with pytest.raises(al.ArgumentError, match=message) as caught:
        al.compile(loss)
    assert caught.value.__notes__[0].startswith("Items are separated by commas: ")
    monkeypatch.delenv("AOTLITE_LOG")
    step()


@pytest.mark.rules("LOG-1")
def test_set_logs_refuses_what_it_does_not_know_and_changes_nothing():
    wrong = [({"guard": True}, "one of"), ({"graphs": "loud"}, "one of the levels debug, ")]
    wrong += [({"graphs": 0}, "one of the levels debug, "), ({"trace": "/dev/null/x"}, "a file")]
    wrong += [({"trace": each}, "the path of a file, or None") for each in (3, True, b"x")]
    wrong += [({"calls": each}, "True or False") for each in ("x", 1, None)]
    with logged(guards=True):
        for options, expected in wrong:
            message = f"logs: set_logs is given .*, expected {expected}"
            with pytest.raises(al.ArgumentError, match=message):
                al.set_logs(**options)
        assert logging.INFO == logging.getLogger("aotlite.guards").level
        assert logging.NOTSET == logging.getLogger("aotlite.graphs").level


@pytest.mark.rules("LOG-1")
def test_names_stand_for_loggers_of_single_features_too():
    with logged(kernels="debug", autograd=True):
        for name, level in (("device_graphs", "DEBUG"), ("compiled_autograd", "INFO")):
            assert level == logging.getLevelName(logging.getLogger(f"aotlite.{name}").level)


@pytest.mark.rules("LOG-1")
def test_the_environment_holds_until_set_logs(monkeypatch):
    with kept() as handler:
        monkeypatch.setenv("AOTLITE_LOG", "guards")
        step()
        assert {"aotlite.guards"} == {each.name for each in handler.records}
        al.set_logs(partition=True)
        step()
        assert "aotlite.partition" == handler.records[-1].name
        monkeypatch.setenv("AOTLITE_LOG", "")
        count = len(handler.records)
        step()
    assert count == len(handler.records)


@pytest.mark.rules("LOG-1")
def test_lines_go_to_the_standard_error_of_a_program_without_handlers():
    code = (
        "import aotlite as al, logging, sys\n"
        "if sys.argv[1:] == ['root']:\n"
        "    logging.basicConfig(stream=sys.stdout, format='mine %(message)s')\n"
        "if sys.argv[1:] == ['own']:\n"
        "    handler = logging.StreamHandler(sys.stdout)\n"
        "    handler.setFormatter(logging.Formatter('mine %(message)s'))\n"
        "    logging.getLogger('aotlite.partition').addHandler(handler)\n"
        "_ = al.compile(lambda x: x * 2, backend='reference')(al.ones(2))\n"
    )

    def run(*words):
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(
            command,
            env={**os.environ, "AOTLITE_LOG": "partition"},
            capture_output=True,
            text=True,
            check=True,
        )

    said = "[1] The graph has 1 ops and is the forward"
    plain = run()
    assert "" == plain.stdout
    assert plain.stderr.startswith("aotlite.partition INFO [1] 8 partition\n" + said)
    for place in ("root", "own"):
        mine = run(place)
        assert "" == mine.stderr
        assert mine.stdout.startswith("mine [1] 8 partition\n" + said)


# ---------------------------------------------------------------------------------- emitters
@pytest.mark.rules("LOG-1")
def test_work_in_another_thread_keeps_the_compilation():
    with logs.within("7"):
        work = logs.carrying(logs.current_id)
    assert ("-", "7") == (logs.current_id(), work())
    assert logs.current_id is logs.carrying(logs.current_id)


@pytest.mark.rules("LOG-1")
def test_an_error_that_leaves_a_timed_block_is_a_fact():
    heard = []
    logs.listen(heard.append)
    try:
        with pytest.raises(ValueError, match="oh"), logs.timed("kernel", name="k"):
            raise ValueError("oh")
    finally:
        logs.stop(heard.append)
    assert [("kernel", "ValueError: oh")] == [(each.name, each.facts["error"]) for each in heard]


@pytest.mark.rules("LOG-1", "LOG-5")
def test_errors_of_compilations_and_calls_keep_nothing_alive(tmp_path):
    class Thing:
        pass

    def wrong(x):
        thing = Thing()
        alive.append(weakref.ref(thing))
        raise ValueError("oh")

    alive = []
    gc.disable()
    try:
        with logged(stages="debug", trace=tmp_path / "run.jsonl", calls=True) as on:
            try:
                al.compile(wrong, backend="reference")(al.ones(2))
            except ValueError:
                pass
        assert "failed: ValueError: oh" in on.lines[-1]
        assert [None] == [each() for each in alive]
    finally:
        gc.enable()
