"""What aotlite writes under names that others can foresee goes through no link of theirs."""

import os
from pathlib import Path

import pytest

import aotlite as al
from aotlite.cli.doctor import environment
from aotlite.ir.errors import ArgumentError
from aotlite.nn.state_files import load_state, save_state
from aotlite.testing import Call, Program, plugin
from aotlite.testing.fuzzing.outcomes import Failure
from aotlite.testing.fuzzing.plan import Plan
from aotlite.testing.fuzzing.reports import write_script
from aotlite.testing.fuzzing.run_file import Ledger
from aotlite.testing.fuzzing.statistics import Tally

NOBODY = 65534
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can give a link to another user",
)
PROGRAM = Program([["neg", ["$0"]]], ["$1"], [Call([["make", [1, [2], "float64", False]]], ["$0"])])


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("mine")
    yield path
    assert "mine" == path.read_text()


def give(link):
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)


def test_a_state_is_saved_through_no_link(tmp_path, victim, monkeypatch):
    """Neither under the name of the file nor under that of the one that it is written to first."""
    path = tmp_path / "state.npz"
    path.symlink_to(victim)
    for name in (f"{path}.{os.getpid()}.part", f"{path}.part"):
        Path(name).symlink_to(victim)
    save_state({"a": al.ones(2)}, path)
    assert [1.0, 1.0] == load_state(path)["a"].tolist() and not path.is_symlink()
    monkeypatch.setattr(os, "urandom", lambda count: b"\0" * count)
    Path(f"{path}.{'00' * 8}.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        save_state({"a": al.ones(2)}, path)


def test_a_script_of_a_fuzz_run_is_written_through_no_link(tmp_path, victim):
    failure = Failure(7, 0, found=["value 0"], program=PROGRAM)
    (tmp_path / "program_7.py").symlink_to(victim)
    path = write_script(Plan(), failure, tmp_path)
    assert tmp_path / "program_7.py" == path and not path.is_symlink()
    assert path.read_text().startswith("# program 7 towards ")


@as_root
@pytest.mark.parametrize("name", ["ledger", "below/ledger"])
def test_a_ledger_is_opened_through_no_link_of_another_user(tmp_path, victim, name):
    (tmp_path / "real").mkdir()
    (tmp_path / "ledger").symlink_to(victim)
    (tmp_path / "below").symlink_to("real")
    give(tmp_path / "ledger")
    give(tmp_path / "below")
    with pytest.raises(
        ArgumentError, match=r"ledger .* is gives .* is a link of user .*, expected"
    ):
        Ledger(Plan(ledger=tmp_path / name), Tally())
    assert [] == list((tmp_path / "real").iterdir())


def test_a_ledger_may_be_a_link_of_the_users_own(tmp_path):
    (tmp_path / "link").symlink_to("ledger")
    Ledger(Plan(ledger=tmp_path / "link"), Tally()).close()
    assert (tmp_path / "ledger").read_text().startswith('{"format":"aotlite fuzz"')


@as_root
@pytest.mark.parametrize("name", ["run.jsonl", "below/run.jsonl"])
def test_a_trace_is_opened_through_no_link_of_another_user(tmp_path, victim, name):
    (tmp_path / "real").mkdir()
    (tmp_path / "run.jsonl").symlink_to(victim)
    (tmp_path / "below").symlink_to("real")
    give(tmp_path / "run.jsonl")
    give(tmp_path / "below")
    with pytest.raises(ArgumentError, match="expected a file that can be written") as caught:
        al.set_logs(trace=tmp_path / name)
    assert "is a link of user " in caught.value.__notes__[-1]
    assert [] == list((tmp_path / "real").iterdir())


def test_a_trace_may_be_a_link_of_the_users_own(tmp_path):
    (tmp_path / "link").symlink_to("run.jsonl")
    al.set_logs(trace=tmp_path / "link")
    al.set_logs()
    assert (tmp_path / "run.jsonl").read_text().startswith('{"event": "trace"')


def test_a_script_of_the_plugin_is_written_through_no_link(tmp_path, victim):
    class Item:
        nodeid = "test_a.py::test_b"

        class config:
            rootpath = tmp_path
            getoption = staticmethod({"--aotlite-scripts": "s", "--aotlite-shrink": 0}.get)

    class WrongError(Exception):
        program = PROGRAM

    (tmp_path / "s").mkdir()
    link = tmp_path / "s" / "test_a.py_test_b.py"
    link.symlink_to(victim)
    assert plugin._section(Item, WrongError("found")).startswith("stored in s/test_a.py_test_b.py:")
    assert not link.is_symlink() and "neg" in link.read_text()


@as_root
def test_the_doctor_names_a_link_of_another_user(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    give(tmp_path / "link")
    for name in ("AOTLITE_DUMP", "AOTLITE_CACHE"):
        for folder in ("link", "link/new"):
            monkeypatch.setenv(name, str(tmp_path / folder))
            found = next(each for each in environment.variables() if each.name == name)
            assert "broken" == found.state
            assert f"{tmp_path}/link is a link of user " in found.value


@as_root
def test_the_doctor_names_what_is_wrong_above_a_cache_folder_that_is_not_made(
    tmp_path, monkeypatch
):
    folder = tmp_path / "theirs" / "cache"
    folder.parent.mkdir()
    os.chown(folder.parent, NOBODY, NOBODY)
    monkeypatch.setenv("AOTLITE_CACHE", str(folder))
    found = [each for each in environment.variables() if each.name == "AOTLITE_CACHE"]
    assert "broken" == found[0].state
    assert found[0].value.startswith(f"{folder.parent}, above {folder}, belongs to user ")
