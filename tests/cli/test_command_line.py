"""One convention of exit statuses and of errors, over all commands and options; what help says.

0: well; 1: something failed, or was found; 2: wrong use.
"""

import argparse
import shlex
import subprocess
import sys

import pytest

import aotlite
from aotlite.cli import COMMANDS, EXAMPLES, STATUSES, _parser, main

ADAPTERS = "tests.conformance.helpers.adapters"


def status_of(*argv):
    """The exit status of a command, however it ends."""
    try:
        return main(list(argv))
    except SystemExit as ended:
        return ended.code or 0


def options_of(command):
    """The options of a command, but for those that end it with a text."""
    parsers = _parser([command])[1]
    ending = (argparse._HelpAction, argparse._VersionAction)
    return [each for each in parsers[command]._actions if not isinstance(each, ending)]


OPTIONS = [
    (command, option)
    for command in COMMANDS
    for option in options_of(command)
    if option.option_strings
]
TAKING = [(command, option) for command, option in OPTIONS if option.nargs != 0]
CHECKED = [(command, option) for command, option in TAKING if option.type or option.choices]
CHECKED = [each for each in CHECKED if getattr(each[1].type, "__name__", "") != "Path"]


def named(pair):
    return " ".join([pair[0], pair[1].option_strings[0]])


def needed(command):
    """What a command cannot do without."""
    return {"explain": ["file.py:f"], "trace": ["run.jsonl"]}.get(command, [])


def test_every_command_has_options_that_are_looked_at():
    commands = {"demo", "explain", "fuzz", "conformance", "trace", "doctor"}
    assert commands == {each for each, _ in OPTIONS}
    assert (True, True) == (len(TAKING) >= 25, len(CHECKED) >= 12)


@pytest.mark.parametrize("pair", TAKING, ids=named)
def test_an_option_without_its_value_is_wrong_use(pair, capsys):
    command, option = pair
    assert 2 == status_of(command, *needed(command), option.option_strings[0])
    printed = capsys.readouterr()
    assert ("", True) == (printed.out, "expected " in printed.err)


@pytest.mark.parametrize("value", ["x?", ""])
@pytest.mark.parametrize("pair", CHECKED, ids=named)
def test_an_option_with_a_value_of_another_kind_is_wrong_use(pair, value, capsys):
    command, option = pair
    assert 2 == status_of(command, *needed(command), f"{option.option_strings[0]}={value}")
    printed = capsys.readouterr()
    assert ("", True) == (printed.out, f"argument {option.option_strings[0]}" in printed.err)


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
@pytest.mark.parametrize("pair", [each for each in CHECKED if not each[1].choices], ids=named)
def test_a_number_that_is_out_of_range_is_wrong_use(pair, value, capsys):
    command, option = pair
    assert 2 == status_of(command, f"{option.option_strings[0]}={value}")
    assert f"argument {option.option_strings[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("pair", OPTIONS, ids=named)
def test_a_misspelt_option_is_wrong_use_and_names_the_one_that_was_meant(pair, capsys):
    command, option = pair
    given = option.option_strings[-1]
    misspelt = given[:3] + "q" + given[3:]
    assert 2 == status_of(command, *needed(command), misspelt)
    assert f"arguments: {misspelt}. Did you mean {given}?" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_misspelt_command_is_wrong_use_and_names_the_one_that_was_meant(command, capsys):
    misspelt = command[:-2] + command[-1]
    assert 2 == status_of(misspelt)
    error = capsys.readouterr().err.splitlines()[-1]
    expected = f"aotlite: error: command is {misspelt!r}, expected one of {', '.join(COMMANDS)}"
    assert f"{expected}. Did you mean {command}?" == error


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("-V", "--version"),
        ("-v", "--version"),
        ("--verison", "--version"),
        ("-V demo", "--version"),
        ("-H", "--help"),
        ("-x", None),
    ],
)
def test_an_option_without_a_command_that_there_is_none_of_names_the_one_that_was_meant(
    words, meant, capsys
):
    assert 2 == status_of(*words.split())
    question = f". Did you mean {meant}?" if meant else ""
    expected = f"aotlite: error: unrecognized arguments: {words.split()[0]}{question}"
    assert expected == capsys.readouterr().err.splitlines()[-1]


def test_a_command_that_is_like_no_other_is_wrong_use(capsys):
    assert 2 == status_of("frobnicate")
    assert capsys.readouterr().err.endswith(f"expected one of {', '.join(COMMANDS)}\n")


WRONG = [
    "explain file.py",
    "explain nothing.py:f",
    "explain . --arg 1",
    "explain setup.cfg:f",
    "fuzz --engine x",
    "fuzz --engine no_such_module:E",
    "fuzz --engine tests.testing.helpers.planted_compilers:copying",
    "fuzz --against y",
    "fuzz --against no_such_module:E",
    "fuzz --against aotlite",
    "fuzz --function compile",
    "fuzz --function no_such_module:f",
    "fuzz --function no_such_file.py:f",
    "fuzz --options verify",
    "fuzz --cell t",
    "fuzz --summary",
    "fuzz --summary --ledger no_such_ledger",
    "fuzz --ledger .",
    "fuzz --count 1 --out setup.cfg",
    "conformance nump",
    "conformance no_such_module:X",
    f"conformance {ADAPTERS}:NoSuchAdapter",
    f"conformance {ADAPTERS}:NOT_AN_ADAPTER",
    "conformance numpy --rules TEN-99",
    "conformance --list --rules TEN-99",
    "conformance numpy --markdown .",
    "conformance numpy --markdown no/such/folder/page.md",
    "cache burn",
    "demo --batch 100000 --epochs 1",
    "demo --backend fast",
]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_use_ends_with_two_and_says_what_was_expected(words, capsys):
    assert 2 == status_of(*shlex.split(words))
    printed = capsys.readouterr()
    assert ("", True) == (printed.out, "expected" in printed.err or "choose from" in printed.err)
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    "words",
    [
        f"conformance {ADAPTERS}:Mine --rules TEN-2a --strict",
        f"conformance {ADAPTERS}:Deviceless --rules TEN-2a",
    ],
)
def test_what_is_found_ends_with_one(words, capsys):
    assert 1 == status_of(*shlex.split(words))


def test_a_function_that_cannot_be_compiled_ends_with_one(tmp_path, capsys):
    (tmp_path / "asking.py").write_text("def f(x):\n    return x.item()\n")
    assert 1 == status_of("explain", f"{tmp_path}/asking.py:f", "--arg", "f32[]")
    assert capsys.readouterr().err.startswith("aotlite: ")


@pytest.mark.parametrize(
    "words",
    ["--version", "--help", *(f"{command} --help" for command in COMMANDS)],
)
def test_what_is_asked_for_ends_with_zero(words, capsys):
    assert 0 == status_of(*shlex.split(words))
    assert "" == capsys.readouterr().err


def test_the_version_is_printed(capsys):
    assert 0 == status_of("--version")
    assert f"aotlite {aotlite.__version__}\n" == capsys.readouterr().out


def test_nothing_but_the_name_shows_the_help(capsys):
    assert 2 == status_of()
    printed = capsys.readouterr()
    assert "" == printed.out
    assert all(command in printed.err for command in (*COMMANDS, STATUSES))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_are_right(command, capsys):
    """Each is a command with options that there are."""
    assert 0 == status_of(command, "--help")
    text = capsys.readouterr().out
    assert len(EXAMPLES[command]) >= 2
    for line in EXAMPLES[command]:
        program, *words = shlex.split(line)
        assert (program, command, True) == ("aotlite", words[0], line in text)
        parsed, unknown = _parser(words)[0].parse_known_args(words)
        assert ([], True) == (unknown, callable(parsed.command))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fuzz --engine no_such_module:E", "fuzz: engine is in module 'no_such_module', expected"),
        ("conformance no_such_module:X", "conformance: module 'no_such_module' is not found, exp"),
    ],
)
def test_a_module_that_is_missing_is_named_with_the_folders_that_were_looked_in(
    words, expected, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert 2 == status_of(*shlex.split(words))
    first, second = filter(None, map(str.strip, capsys.readouterr().err.splitlines()))
    assert f"aotlite: {expected}" == first[: len(expected) + 9]
    assert second.startswith("looked for in ")
    assert str(tmp_path) in second


def test_a_file_that_is_missing_is_named_with_its_whole_path(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert 2 == status_of("fuzz", "--function", "mine.py:f")
    assert capsys.readouterr().err.endswith(f"looked for {tmp_path / 'mine.py'}\n")


def test_a_class_that_is_missing_is_named_with_its_modules_file(capsys):
    assert 2 == status_of("conformance", f"{ADAPTERS}:NoSuchAdapter")
    first, second = filter(None, map(str.strip, capsys.readouterr().err.splitlines()))
    assert f"module {ADAPTERS!r} has no 'NoSuchAdapter', expected a class of adapters" in first
    assert second.startswith("the module is ") and second.endswith("adapters.py")


def test_a_library_that_is_misspelt_has_a_suggestion(capsys):
    assert 2 == status_of("conformance", "nump")
    assert capsys.readouterr().err.endswith("\nDid you mean numpy?\n")


def test_whoever_reads_may_go_away():
    """As `aotlite conformance --list | head -1` does."""
    code = "import sys; from aotlite.cli import main; sys.exit(main(['conformance', '--list']))"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"},
    )
    child.stdout.close()  # before anything is printed
    assert ("", 141) == (child.stderr.read().decode(), child.wait())
