"""Ways to folders and files: whose links are followed, and what is written next to others."""

import errno
import os
import shutil
import stat
from pathlib import Path
from tempfile import mkdtemp

import pytest

from aotlite.ir.filesystem import atomic_files, trust
from tests.backends.cpu.helpers.compilers import in_child

NOBODY = 65534
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can give a link to another user",
)
pytestmark = pytest.mark.skipif(not trust.HAS_DESCRIPTORS, reason="needs descriptors of folders")


def planted(link, target):
    """A link of another user."""
    link.symlink_to(target)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# ------------------------------------------------------------------------------------------- steps
def test_steps_are_folders_and_links_from_the_root_on(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "up").symlink_to("a/../a/b")
    (tmp_path / "over").symlink_to(tmp_path / "up")
    found = [Path(step.path) for step in trust.steps(str(tmp_path / "over"))]
    ways = [*reversed(tmp_path.parents), tmp_path]
    climbed = [tmp_path / "a", tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert [*ways, tmp_path / "over", *ways[1:], tmp_path / "up", *climbed] == found


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="needs a way of opening without reading")
def test_steps_need_no_right_to_read_what_is_gone_through():
    """As the folders of other users' homes; root may read everything, so another user looks."""
    folder = Path(mkdtemp(prefix="aotlite-test-"))
    (folder / "a" / "b").mkdir(parents=True)
    for each in (folder, folder / "a"):
        each.chmod(0o311)

    def look():
        with pytest.raises(PermissionError):
            os.listdir(folder / "a")
        assert str(folder / "a" / "b") == trust.steps(str(folder / "a" / "b"))[-1].path

    try:
        in_child(look, user=NOBODY)
    finally:
        shutil.rmtree(folder)


def test_a_step_is_open_where_others_can_exchange_what_is_in_it(tmp_path):
    expected = {0o755: False, 0o775: True, 0o757: True, 0o1777: False, 0o711: False}
    for mode, is_open in expected.items():
        tmp_path.chmod(mode)
        assert is_open is trust.steps(str(tmp_path))[-1].is_open, oct(mode)


# ------------------------------------------------------------------------------------------- files
def test_links_of_the_user_are_followed_to_a_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a/chain")
    (tmp_path / "a" / "chain").symlink_to("file")
    with open(tmp_path / "link", "a", opener=trust.opener) as file:
        file.write("x")
    assert "x" == (tmp_path / "a" / "file").read_text()


@as_root
def test_no_link_of_another_user_is_followed_to_a_file(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "folder").mkdir()
    planted(tmp_path / "file", victim)
    planted(tmp_path / "way", "folder")
    (tmp_path / "own").symlink_to("file")
    for path in ("file", "own", "way/file"):
        with (
            pytest.raises(PermissionError, match="is a link of user "),
            open(tmp_path / path, "a", opener=trust.opener),
        ):
            pass
    assert "mine" == victim.read_text() and [] == names(tmp_path / "folder")


def test_links_to_a_file_that_lead_to_each_other_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with (
        pytest.raises(OSError, match="Too many levels"),
        open(tmp_path / "a", "a", opener=trust.opener),
    ):
        pass


# ----------------------------------------------------------------------------------------- written
@pytest.mark.parametrize("kind", ["nothing", "file", "link", "hard link", "dangling link", "pipe"])
def test_what_is_written_replaces_what_has_the_name(tmp_path, kind):
    """And nothing is written through it, or waits for it."""
    victim, path = tmp_path / "victim", tmp_path / "dump" / "a.py"
    victim.write_text("mine")
    path.parent.mkdir()
    {
        "nothing": lambda: None,
        "file": lambda: path.write_text("longer than what is written"),
        "link": lambda: path.symlink_to(victim),
        "hard link": lambda: os.link(victim, path),
        "dangling link": lambda: path.symlink_to(tmp_path / "new"),
        "pipe": lambda: os.mkfifo(path),
    }[kind]()
    atomic_files.write(path.parent, "a.py", "text \udc80\n")
    assert r"text \udc80" + "\n" == path.read_text() and stat.S_ISREG(path.lstat().st_mode)
    assert "mine" == victim.read_text() and ["a.py"] == names(path.parent)
    assert ["dump", "victim"] == names(tmp_path)


@as_root
def test_no_link_of_another_user_is_followed_to_a_folder(tmp_path):
    (tmp_path / "victim").mkdir()
    planted(tmp_path / "dump", "victim")
    for folder in ("dump", "dump/below"):
        with pytest.raises(PermissionError, match=f"{tmp_path}/dump is a link of user "):
            atomic_files.write(tmp_path / folder, "a.py", "text")
    assert [] == names(tmp_path / "victim")
    (tmp_path / "own").symlink_to("victim")
    atomic_files.write(tmp_path / "own" / "below", "a.py", "text")
    assert "text" == (tmp_path / "victim" / "below" / "a.py").read_text()


@pytest.mark.parametrize("call", ["open", "replace"])
def test_a_file_that_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch, call):
    def full(*args, **options):
        if call == "replace" or args[0].endswith(".new"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **options)

    real = getattr(os, call)
    (tmp_path / "a.py").write_text("before")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        atomic_files.write(tmp_path, "a.py", "text")
    monkeypatch.undo()
    assert ["a.py"] == names(tmp_path) and "before" == (tmp_path / "a.py").read_text()


def test_where_there_are_no_descriptors_of_folders_paths_are_used(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "HAS_DESCRIPTORS", False)
    atomic_files.write(tmp_path / "a", "b.py", "text")
    atomic_files.write(tmp_path / "a", "b.py", "more")
    assert "more" == (tmp_path / "a" / "b.py").read_text() and ["b.py"] == names(tmp_path / "a")
    with open(tmp_path / "c", "wb", opener=trust.opener) as file:
        file.write(b"x\n")
    assert b"x\n" == (tmp_path / "c").read_bytes()
