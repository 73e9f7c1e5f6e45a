"""`AOTLITE_DUMP`: nothing is written through a planted link, and no failure reaches the user."""

import errno
import os
import resource
import shutil
import warnings
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

import aotlite as al
from aotlite.backends.native import warn_once
from aotlite.pipeline import request
from tests.backends.cpu.helpers.compilers import in_child, mounted, warns_once

NOBODY = 65534
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can give a link to another user, or mount",
)


def loss(x):
    x[0].mul_(2.0)
    return (x * x).sum()


def compute():
    """Compiles twice and calls: what eager gives, whatever becomes of the dumps."""
    for size in (3, 4):
        compiled = al.compile(loss, backend="reference")
        x, y = al.ones(size), al.ones(size)
        assert (loss(y).item(), y.tolist()) == (compiled(x).item(), x.tolist())


@contextmanager
def dumped_to(folder):
    """Compilations of this block dump there; nothing was told before."""
    warn_once._shown.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLITE_DUMP", str(folder))
        yield


def tells(text):
    return warns_once(f"aotlite: stages are not dumped: .* gives {text}, expected a folder that ")


@pytest.fixture
def place():
    """A folder that every user can go into and write."""
    folder = Path(mkdtemp(prefix="aotlite-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def test_the_folder_is_made_and_nothing_is_told(place):
    with dumped_to(place / "a" / "b"), warnings.catch_warnings():
        warnings.simplefilter("error")
        compute()
    assert 2 == len(list((place / "a" / "b").glob("*_loss_6_functionalize.py")))


# ------------------------------------------------------------------------------------------- links
def planted(folder, victim):
    """Links under the names of the next files, as another user would foresee them."""
    with dumped_to(folder):
        compute()
    number = max(int(path.name[:4]) for path in folder.iterdir())
    known = {path.name[4:] for path in folder.iterdir()}
    for path in folder.iterdir():
        path.unlink()
    for ahead in range(1, 4):
        for name in known:
            link = folder / f"{number + ahead:04}{name}"
            link.symlink_to(victim)
            if os.geteuid() == 0:
                os.chown(link, NOBODY, NOBODY, follow_symlinks=False)


def test_no_link_under_the_name_of_a_file_is_followed(place):
    victim = place.with_name(f"{place.name}-victim")
    victim.write_text("mine")
    try:
        planted(place, victim)
        with dumped_to(place):
            compute()
        files = [path for path in place.iterdir() if not path.is_symlink()]
        assert "mine" == victim.read_text()
        assert 2 == len([path for path in files if path.name.endswith("_loss_4_joint.py")])
    finally:
        victim.unlink()


@as_root
@pytest.mark.parametrize("below", [".", "mine"])
def test_a_folder_that_another_users_link_leads_to_is_not_used(place, below):
    (place / "victim").mkdir()
    (place / "dumps").symlink_to("victim")
    os.chown(place / "dumps", NOBODY, NOBODY, follow_symlinks=False)
    with dumped_to(place / "dumps" / below), tells(f"{place}/dumps is a link of user .*"):
        compute()
    assert [] == list((place / "victim").iterdir())


def test_a_folder_that_a_link_of_the_user_leads_to_is_used(place):
    (place / "mine").mkdir()
    (place / "dumps").symlink_to("mine")
    with dumped_to(place / "dumps"):
        compute()
    assert 2 == len(list((place / "mine").glob("*_loss_4_joint.py")))


# ---------------------------------------------------------------------------------------- failures
@pytest.mark.parametrize("below", ["taken", "taken/below"])
@pytest.mark.parametrize("how", ["variable", "argument"])
def test_a_file_in_the_place_of_the_folder_is_told_once(place, below, how):
    (place / "taken").write_text("mine")
    with dumped_to(place / below), tells("Not a directory"):
        if how == "argument":
            # In this block: what undoes it later would set the variable for the tests behind it.
            del os.environ["AOTLITE_DUMP"]
            assert 4.0 == al.compile(lambda x: x.sum(), dump=place / below)(al.ones(4)).item()
        else:
            compute()
    assert "mine" == (place / "taken").read_text()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["replace", "open", "mkdir"])
def test_whatever_call_fails_is_told_once(place, monkeypatch, call, number):
    def fails(path, *args, **options):
        if "dir_fd" in options or "src_dir_fd" in options:
            raise OSError(number, os.strerror(number))
        return real(path, *args, **options)

    real = getattr(os, call)
    with dumped_to(place / "dumps"), tells(os.strerror(number)):
        monkeypatch.setattr(os, call, fails)
        compute()
    monkeypatch.undo()
    assert [] == list(place.rglob("*.py"))


def test_a_disk_that_is_full_is_told_once(place):
    """A limit of the process's own, since tests run without a disk that they may fill."""

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with dumped_to(place), tells("File too large"):
            compute()
        assert all(path.stat().st_size <= 100 for path in place.iterdir())

    in_child(limited)


@as_root
@pytest.mark.parametrize("options", [["size=4k", "mode=777"], ["nr_inodes=2", "mode=777"]])
def test_a_file_system_that_is_full_is_told_once(place, options):
    def full():
        if mounted(place, options):
            with dumped_to(place), tells("No space left on device"):
                compute()

    in_child(full)


def test_a_folder_that_cannot_be_written_is_told_once(place):
    """By a user who is not root."""
    place.chmod(0o555)

    def denied():
        with dumped_to(place), tells("Permission denied"):
            compute()
        with dumped_to(place / "below"), tells("Permission denied"):
            compute()

    in_child(denied, user=NOBODY)


def test_a_dump_of_a_backward_is_told_of_when_that_is_compiled(place):
    """It is compiled inside of `backward()`, out of which nothing is raised either."""
    (place / "taken").write_text("mine")
    x = al.ones(3).requires_grad_()
    with dumped_to(place / "taken"), tells("Not a directory"):
        al.compile(lambda x: (x * x).sum(), backend="reference")(x).backward()
    assert [2.0] * 3 == x.grad.tolist()


def test_compilations_are_numbered_although_nothing_is_dumped(place):
    """The name of the next file is what it would be."""
    before = next(request._NUMBERS)
    with dumped_to("/dev/null"), tells("Not a directory"):
        compute()
    with dumped_to(place):
        compute()
    numbers = {int(path.name.partition("_")[0]) for path in place.iterdir()}
    assert {before + 3, before + 4} == numbers
