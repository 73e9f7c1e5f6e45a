"""`aotlite doctor`: what it finds, what it prints, its status, and that nothing breaks it."""

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.backends.native import warn_once
from aotlite.backends.native.compiler import probe, toolchain
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.cli import doctor, main
from aotlite.cli.doctor import backend_runs, checks, cuda, environment, probes, tables
from aotlite.cli.doctor.probes import Outcome
from aotlite.cli.doctor.record import Finding

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "raises": "raise ValueError('no such device\\nsecond line')",
    "exits": "raise SystemExit(3)",
    "vanishes": "import os; os._exit(0)",
    "crashes": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "talks": "import sys; print('hello'); __version__ = '1.5'",
    "silent": "",
}
EXPECTED = {
    "raises": Outcome(False, "ValueError: no such device"),
    "exits": Outcome(False, "SystemExit: 3"),
    "vanishes": Outcome(False, "the process that imports it ended the process"),
    "crashes": Outcome(
        False, f"the process that imports it was ended by signal {int(signal.SIGSEGV)}"
    ),
    "talks": Outcome(True, "1.5"),
    "silent": Outcome(True, ""),
}
compiles = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """A folder with a package for each script, on the path."""
    folder = tmp_path_factory.mktemp("packages")
    for name, source in SCRIPTS.items():
        write_package(folder, f"fake_{name}", source)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


def write_package(folder, name, source=""):
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(source)


BOTH_FORMS = """
from aotlite.cli import doctor, main
found = doctor.examine()
doctor.examine = lambda: found
for form in ([], ["--json"]):
    try:
        status = main(["doctor", *form])
    except SystemExit as ended:
        status = ended.code
    print("\\nstatus", status)
"""
"""What is found once, as text and as JSON, each with its status."""


def run_doctor(*options, path=(), code="", **variables):
    """`python -m aotlite doctor`, or other code, in its own process; folders of `path` first."""
    kept = {n: v for n, v in os.environ.items() if n not in (*environment.OURS, "CC")}
    package = str(Path(al.__file__).parents[1])
    search = os.pathsep.join(map(str, [*path, package]))
    return subprocess.run(
        [sys.executable, *(["-c", code] if code else ["-m", "aotlite", "doctor", *options])],
        env={**kept, "PYTHONPATH": search, "COLUMNS": "200", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def forms_of(done):
    """The text and the object of a run that prints both, and its statuses."""
    text, first, as_json, second, end = re.split(r"\nstatus (\d)\n", done.stdout)
    assert ("", "") == (done.stderr, end)
    return text, json.loads(as_json), (int(first), int(second))


def named(findings, name):
    (found,) = [each for each in findings if each.name == name]
    return found


# -------------------------------------------------------------------------------------- the command
@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A run where nothing is broken but what is never imported, and takes seconds elsewhere."""
    folder = tmp_path_factory.mktemp("slow")
    for name in checks.NEVER_IMPORTED:
        write_package(folder, name, "raise RuntimeError('was imported')")
    return run_doctor(path=[folder], code=BOTH_FORMS)


@pytest.mark.slow("imports each package in a process of its own")
def test_a_sound_installation_ends_with_status_0(sound):
    printed, _, statuses = forms_of(sound)
    assert (0, 0) == statuses
    for text in (
        "compiles, runs and equals eager mode",
        "the default: graphs run as by",
        f"{al.__version__}, imported from",
        "Nothing that is set up is broken.",
    ):
        assert text in printed


def test_json_says_the_same_as_one_object(sound):
    text, found, _ = forms_of(sound)
    assert found["sound"] is True
    for each in (each for group in found["sections"].values() for each in group):
        assert each["name"] in text and each["state"] in text
    backends = {each["name"]: each["state"] for each in found["sections"]["Backends"]}
    cpu = "absent" if find_compiler() is None else "ok"
    expected = {"auto": "ok", "cpu": cpu, "loops": "ok", "reference": "ok"}
    expected["cuda"] = "ok" if al.cuda.is_available() else "absent"
    assert expected == backends
    names = [each["name"] for each in found["sections"]["Required packages"]]
    assert list(checks.NEEDED) == names


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A run where packages raise, a compiler fails and a variable is wrong."""
    folder = tmp_path_factory.mktemp("broken")
    write_package(folder, "hypothesis", "raise RuntimeError('built for another Python')")
    write_package(folder, "rich", "raise ImportError('no such symbol [x]')")
    return run_doctor(path=[folder], code=BOTH_FORMS, CC="/bin/false", AOTLITE_VERIFY="7")


@pytest.mark.slow("imports each package in a process of its own")
def test_what_is_set_up_and_broken_ends_with_status_1(broken):
    """A package that raises, a compiler that fails and a variable that is wrong, all reported."""
    _, found, statuses = forms_of(broken)
    assert (1, 1) == statuses
    broken = [
        (each["name"], each["value"])
        for group in found["sections"].values()
        for each in group
        if each["state"] == "broken"
    ]
    assert broken == [
        ("rich", "ImportError: no such symbol [x]"),
        ("C compiler (cpu)", "$CC is '/bin/false': ended with status 1"),
        ("hypothesis", "RuntimeError: built for another Python"),
        ("AOTLITE_VERIFY", "compile: AOTLITE_VERIFY is '7', expected 0, 1 or 2"),
    ]


def test_without_rich_the_doctor_prints_and_backends_work(broken):
    """Compiling needs no rich."""
    text, *_ = forms_of(broken)
    verdict = verdict_on(text, "rich")
    assert "reference" not in verdict


@pytest.mark.slow("imports each package in a process of its own")
@pytest.mark.parametrize("package", ["numpy", pytest.param("optree", marks=pytest.mark.long)])
def test_a_broken_required_package_breaks_aotlite_and_not_the_doctor(tmp_path, package):
    write_package(tmp_path, package, "raise ImportError('no such symbol [x]')")
    done = run_doctor(path=[tmp_path], AOTLITE_VERIFY="1")
    assert (1, "") == (done.returncode, done.stderr)
    assert "reference" in verdict_on(done.stdout, package)


def verdict_on(text, package):
    """What a run that found a package broken says in its last line."""
    assert "ImportError: no such symbol [x]" in text
    assert f"pip install --force-reinstall {package}" in text
    (verdict,) = [line for line in text.splitlines() if line.startswith("Broken: ")]
    assert package in verdict
    return verdict


def test_packages_that_take_seconds_are_not_imported(sound):
    text, *_ = forms_of(sound)
    assert "looked up, not imported" in text and "was imported" not in text


def test_status_reaches_the_caller_of_main(monkeypatch, capsys):
    broken = Finding("Backends", "reference", "broken", "differs")
    monkeypatch.setattr(doctor, "examine", lambda: [broken])
    with pytest.raises(SystemExit) as caught:
        main(["doctor"])
    assert 1 == caught.value.code and "Broken: reference." in capsys.readouterr().out
    monkeypatch.setattr(doctor, "examine", lambda: [attrs.evolve(broken, state="absent")])
    assert 0 == main(["doctor"])


# ---------------------------------------------------------------------------------- what is printed
texts = st.text("ab [/]{}'-", min_size=1).filter(str.strip)
some_findings = st.lists(
    st.builds(Finding, texts, texts, st.sampled_from(["ok", "absent", "broken"]), texts, texts),
    min_size=1,
    max_size=4,
).map(lambda found: sorted(found, key=lambda each: each.section))


@given(some_findings)
def test_every_form_has_every_finding(findings):
    plain = "\n".join(doctor.lines(findings))
    found = json.loads(json.dumps(doctor.as_json(findings)))
    assert found["sound"] is all(each.state != "broken" for each in findings)
    for each in findings:
        assert f"  {each.name} - {each.state} - {each.value} - {each.advice}" in plain
        assert {
            "name": each.name,
            "state": each.state,
            "value": each.value,
            "advice": each.advice,
        } in found["sections"][each.section]


def test_tables_take_no_text_for_markup(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    advice = "pip install 'aotlite[cc]'"
    tables.report([Finding("[bold]s", "C [red]", "absent", "[/red] gcc: no", advice)])
    printed = capsys.readouterr().out
    for text in ("[bold]s", "C [red]", "[/red] gcc: no", advice):
        assert text in printed


# --------------------------------------------------------------------------------------- the trials
@settings(max_examples=20)  # each starts processes
@given(st.lists(st.sampled_from(sorted(SCRIPTS)), unique=True))
def test_every_import_is_judged_alone(scripts, names):
    """Whatever stands before it in the list: one that ends the process takes no other with it."""
    found = probes.imports(f"fake_{name}" for name in names)
    assert {f"fake_{name}": EXPECTED[name] for name in names} == found


def test_an_import_that_hangs_is_given_up(scripts, monkeypatch):
    monkeypatch.setattr(probes, "TIMEOUT", 0.5)
    write_package(scripts, "fake_hangs", "import time; time.sleep(60)")
    found = probes.imports(["fake_hangs", "fake_silent"])
    why = "the process that imports it took more than 0.5 s"
    assert {"fake_hangs": Outcome(False, why), "fake_silent": Outcome(True)} == found


def test_a_folder_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "fake_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not probes.is_found("fake_folder")
    assert not probes.is_found("no_such_package.below")
    assert probes.is_found("json")


@pytest.mark.parametrize("name", ["reference", "loops"])
def test_a_backend_is_compared_with_eager(name):
    backend_runs.check(name)

    def wrong_value(function):
        return lambda x, w: function(x, w) + 1.0

    def wrong_write(function):
        return lambda x, w: function(x.clone(), w)

    with pytest.raises(SystemExit, match="the compiled value is .*, expected .* as in eager mode"):
        backend_runs.check(name, wrong_value)
    with pytest.raises(SystemExit, match="the compiled input is "):
        backend_runs.check(name, wrong_write)


def backends(monkeypatch, **outcomes):
    """What is found of the backends, whose trials end like this."""
    monkeypatch.setattr(probes, "backend", outcomes.get)
    return {each.name: each for each in checks._backends()}


WORKS, FAILS = Outcome(True), Outcome(False, "KernelError: no")


def test_a_broken_backend_is_reported(monkeypatch):
    found = backends(monkeypatch, cpu=Outcome(True, "ok gcc (gcc 1)"), loops=FAILS, reference=FAILS)
    for name in ("loops", "reference"):
        assert ("broken", "KernelError: no") == (found[name].state, found[name].value)
    assert "compiles, runs and equals eager mode; compiled by gcc (gcc 1)" == found["cpu"].value
    auto = found["auto"]
    assert ("ok", "the default: graphs run as by cpu", "") == (auto.state, auto.value, auto.advice)
    found = backends(monkeypatch, cpu=FAILS, loops=WORKS, reference=FAILS)
    assert "broken" == found["auto"].state == found["cpu"].state


def test_without_a_compiler_cpu_is_absent_and_auto_runs_as_reference(monkeypatch):
    none = Outcome(True, "absent no C compiler works here: no gcc")
    found = backends(monkeypatch, cpu=none, loops=WORKS, reference=WORKS)
    cpu, auto = found["cpu"], found["auto"]
    assert ("absent", "no C compiler works here: no gcc") == (cpu.state, cpu.value)
    assert checks.INSTALL == cpu.advice
    assert ("ok", "the default: graphs run as by reference") == (auto.state, auto.value)
    assert auto.advice.endswith(checks.INSTALL)


def test_what_is_to_be_installed_is_what_the_backend_says():
    assert toolchain.INSTALL == checks.INSTALL


def test_the_trial_of_cpu_says_why_there_is_no_compiler(monkeypatch, capsys):
    monkeypatch.setattr(probe, "PROBE_LIMIT", 60.0)
    monkeypatch.setattr(toolchain, "_search", lambda: (None, ("gcc: is broken",)))
    backend_runs.try_cpu(1.0)
    assert "absent no C compiler works here: gcc: is broken\n" == capsys.readouterr().out
    assert 1.0 == probe.PROBE_LIMIT


@compiles
def test_a_compiler_that_hangs_does_not_keep_cpu_from_the_next_one(tmp_path, monkeypatch):
    script = tmp_path / "hangs"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setattr(probes, "TIMEOUT", 12.0)
    outcome = probes.backend("cpu")
    assert outcome.works and outcome.text.startswith("ok ") and "gcc" in outcome.text


@compiles
def test_a_compiler_that_fails_after_its_trial_breaks_cpu_and_not_auto(tmp_path, monkeypatch):
    script = tmp_path / "fails"
    script.write_text('#!/bin/sh\ncase "$*" in *probe.c*) exec gcc "$@" ;; esac\nexit 3\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    outcome = probes.backend("cpu")
    assert not outcome.works and "ended with status 3" in outcome.text
    found = backends(monkeypatch, cpu=outcome, loops=WORKS, reference=WORKS)
    assert "as by reference" in found["auto"].value


# ----------------------------------------------------------------------------------- the C compiler
@compiles
def test_a_compiler_that_works_says_its_version():
    assert probes.compiler(["gcc"]).works
    outcome = probes.named_compiler("gcc -O2")
    assert outcome.works and "gcc" in outcome.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/bin/false", "ended with status 1"),
        ("/bin/true", "makes no library"),
        ("/no/such/compiler -O2", "/no/such/compiler cannot be run: No such file or directory"),
        ("gcc 'half", "cannot be read: No closing quotation"),
    ],
)
def test_a_named_compiler_that_fails_is_broken(monkeypatch, text, why):
    monkeypatch.setenv("CC", text)
    (found,) = checks._compiler()
    assert ("broken", f"$CC is {text!r}: {why}") == (found.state, found.value)
    assert "name a C compiler that works in CC, or unset it" == found.advice


@compiles
def test_a_library_that_computes_something_else_is_refused(monkeypatch):
    wrong = probes._SOURCE.replace("x + 1", "x + 2")
    monkeypatch.setattr(probes, "_SOURCE", wrong)
    expected = Outcome(False, "a compiled function returned 43, expected 42")
    assert expected == probes.compiler(["gcc"])


def test_no_compiler_is_absent_and_not_broken(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(probes, "compilers", lambda: iter([["/bin/false"]]))
    (found,) = checks._compiler()
    assert ("absent", "/bin/false: ended with status 1") == (found.state, found.value)
    monkeypatch.setattr(probes, "compilers", lambda: iter([]))
    (found,) = checks._compiler()
    assert ("absent", checks.INSTALL) == (found.state, found.advice)


# ------------------------------------------------------------------------ packages and their extras
def test_extras_that_are_named_have_the_package():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = parser["options.extras_require"]
    named_extras = [(dist, extra) for dist, extra in checks.OPTIONS.values() if extra]
    named_extras += [("ziglang", "cc"), *[(n, f"cuda{k}") for n, k in cuda.NVRTC.items()]]
    named_extras += [(name, f"cuda{major}") for major, name in cuda.WHEELS.items()]
    for distribution, extra in named_extras:
        assert distribution in extras[extra].replace(">", " ").replace("=", " ").split()
    required = parser["options"]["install_requires"].replace(">", " ").split()
    assert set(checks.NEEDED) <= set(required)


def test_an_absent_package_comes_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(checks, "_is_here", lambda *_: False)
    found = {each.name: each.advice for each in checks._optional()}
    assert "pip install 'aotlite[test]'" == found["hypothesis"]
    assert "pip install jax" == found["jax"]
    assert set(checks.OPTIONS) == set(found)


def test_metadata_without_the_module_is_broken(tmp_path, monkeypatch):
    """What half an uninstallation leaves."""
    info = tmp_path / "hypothesis-77.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hypothesis\nVersion: 77.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(probes, "imports", lambda names: dict.fromkeys(names, BLAMED))
    found = named(checks._optional(), "hypothesis")
    assert ("broken", BLAMED.text) == (found.state, found.value)
    assert "77.0" == checks.version("hypothesis")


BLAMED = Outcome(False, "ModuleNotFoundError: No module named 'hypothesis'")


# ---------------------------------------------------------------------------- environment variables
@pytest.mark.parametrize("value", ["0", "1", "2"])
def test_a_valid_level_is_shown(monkeypatch, value):
    monkeypatch.setenv("AOTLITE_VERIFY", value)
    found = named(environment.variables(), "AOTLITE_VERIFY")
    assert ("ok", value) == (found.state, found.value)


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=3))
def test_a_level_is_valid_where_compile_takes_it(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLITE_VERIFY", value)
        found = named(environment.variables(), "AOTLITE_VERIFY")
        try:
            al.compile(lambda x: x)
        except al.ArgumentError as error:
            assert ("broken", str(error)) == (found.state, found.value)
        else:
            assert "ok" == found.state


def test_a_dump_folder_is_valid_where_a_file_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path, state, value in (
        (tmp_path, "ok", f"{tmp_path}"),
        (tmp_path / "new" / "er", "ok", f"{tmp_path / 'new' / 'er'}, made when it is first needed"),
        (tmp_path / "file", "broken", f"{tmp_path / 'file'} is no folder"),
        (
            tmp_path / "file" / "below",
            "broken",
            f"{tmp_path / 'file' / 'below'} is below the file {tmp_path / 'file'}",
        ),
    ):
        monkeypatch.setenv("AOTLITE_DUMP", str(path))
        found = named(environment.variables(), "AOTLITE_DUMP")
        assert (state, value) == (found.state, found.value)
        assert dumps(path) is (state == "ok")


def dumps(path):
    """Whether files are written there; where none are, that is told."""
    warn_once._shown.forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        al.compile(lambda x: x * 2)(al.ones(2))
    writes = any(Path(path).rglob("*.*"))
    assert writes is not any("stages are not dumped" in str(each.message) for each in caught)
    return writes


def test_a_dump_folder_that_cannot_be_written_is_broken(tmp_path, monkeypatch):
    """Asked of the system, because a test that runs as root may write everywhere."""
    monkeypatch.setattr(environment.os, "access", lambda *_: False)
    monkeypatch.setenv("AOTLITE_DUMP", str(tmp_path))
    found = named(environment.variables(), "AOTLITE_DUMP")
    assert ("broken", f"{tmp_path} cannot be written") == (found.state, found.value)


def test_variables_that_change_speed_are_shown_where_set(monkeypatch):
    for name in environment.SPEED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    names = [each.name for each in environment.variables()]
    assert [*environment.OURS, "OPENBLAS_CORETYPE"] == names


def test_a_log_is_valid_where_compile_takes_it(monkeypatch):
    monkeypatch.setenv("AOTLITE_LOG", "graphs,guards:debug")
    found = named(environment.variables(), "AOTLITE_LOG")
    assert ("ok", "graphs,guards:debug") == (found.state, found.value)
    monkeypatch.setenv("AOTLITE_LOG", "graph")
    found = named(environment.variables(), "AOTLITE_LOG")
    with pytest.raises(al.ArgumentError) as caught:
        al.compile(lambda x: x)
    assert ("broken", str(caught.value)) == (found.state, found.value)


def test_a_trace_is_valid_where_a_file_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for name, state, words in (
        ("file", "ok", "file"),
        ("new.jsonl", "ok", "new.jsonl, made when it is first needed"),
        ("", "broken", "is a folder"),
        ("file/new.jsonl", "broken", "is no folder"),
    ):
        monkeypatch.setenv("AOTLITE_TRACE", str(tmp_path / name))
        found = named(environment.variables(), "AOTLITE_TRACE")
        assert state == found.state
        assert found.value.endswith(words)
        assert found.advice == ("" if state == "ok" else "name another file, or unset it")
    assert ["file"] == [each.name for each in tmp_path.iterdir()]


def test_a_cache_folder_that_is_a_file_is_broken(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "file"))
    found = named(environment.variables(), "AOTLITE_CACHE")
    assert ("broken", "name another folder, or unset it") == (found.state, found.advice)


def test_a_cache_folder_that_others_can_write_is_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path))
    tmp_path.chmod(0o700)
    found = named(environment.variables(), "AOTLITE_CACHE")
    assert ("ok", str(tmp_path)) == (found.state, found.value)
    tmp_path.chmod(0o775)
    found = named(environment.variables(), "AOTLITE_CACHE")
    assert "broken" == found.state
    assert f"{tmp_path} can be written by others (its mode is 775; " in found.value


def test_trials_do_not_see_our_variables(monkeypatch):
    """A wrong variable is one finding, and not a broken backend as well."""
    monkeypatch.setenv("AOTLITE_VERIFY", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    code = "from os import environ as e; print('AOTLITE_VERIFY' in e, e['OMP_NUM_THREADS'])"
    assert Outcome(True, "False 3") == probes.python(code)
    assert probes.backend("reference").works
