"""The disk cache: what is in it is whole, safe and not too much, whoever else uses it."""

import atexit
import errno
import os
import re
import shutil
import signal
import time
from pathlib import Path
from tempfile import mkdtemp

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from aotlite.backends.native.cache import artifact_cache, eviction, trusted_folders
from aotlite.backends.native.cache import disk_cache as cache_module
from aotlite.backends.native.cache.disk_cache import DiskCache, key_of, word
from aotlite.backends.native.cache.file_locks import held
from aotlite.backends.native.compiler.toolchain import find_compiler, key_of_c
from aotlite.backends.native.libraries.library_loading import load_c
from tests.backends.cpu.helpers.compilers import (
    DOUBLE,
    compiled,
    compiles,
    ended,
    forget,
    in_child,
    mounted,
    start,
    warns_once,
)

NOBODY = 65534
KEY, OTHER = key_of("a"), key_of("b")


@pytest.fixture
def entries(tmp_path):
    tmp_path.chmod(0o700)
    return DiskCache(str(tmp_path / "kernels"))


def keep(cache, key, data=b"data"):
    return Path(cache.keep(key, "a", ".so", data))


def names(cache):
    files = [path for path in Path(cache.folder).rglob("*") if path.is_file()]
    return sorted(path.name for path in files if path.name != eviction.LOOKED)


# --------------------------------------------------------------------------------------------- keys
PARTS = st.lists(st.text("1:\0", max_size=3), max_size=3)


@given(PARTS, PARTS)
def test_only_equal_parts_have_equal_keys(one, other):
    """Also where the parts joined are equal."""
    assert (one == other) == (key_of(*one) == key_of(*other))


@given(st.text("a_-é <1"))
def test_any_name_becomes_a_word(name):
    assert word(name).isidentifier() or word(name)[0].isdigit()
    assert len(word(name)) <= 60 and word(name).isascii()


# ------------------------------------------------------------------------------------------ entries
def test_what_was_kept_is_found_by_its_key(entries):
    assert entries.find(KEY) is None
    path = entries.keep(KEY, "forward of f", ".so", b"data")
    assert path == entries.find(KEY) and b"data" == Path(path).read_bytes()
    assert entries.find(OTHER) is None
    assert 4 == eviction.cache_size(entries.folder)
    assert "forward_of_f" == os.path.basename(path).split(".")[0]
    entries.remove(KEY)
    assert entries.find(KEY) is None


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "longer", "folder", "link"])
def test_what_was_damaged_is_not_found_and_is_replaced(entries, damage):
    path = keep(entries, KEY)
    path.unlink()
    {
        "empty": lambda: path.write_bytes(b""),
        "short": lambda: path.write_bytes(b"dat"),
        "flipped": lambda: path.write_bytes(b"datA"),
        "longer": lambda: path.write_bytes(b"data\0"),
        "folder": lambda: path.mkdir(),
        "link": lambda: (path.with_name("x").write_bytes(b"data"), path.symlink_to("x")),
    }[damage]()
    assert entries.find(KEY) is None
    if damage != "folder":
        assert path == keep(entries, KEY) == Path(entries.find(KEY))


def test_nobody_waits_for_what_a_pipe_gives(entries):
    """CC-14: it lies where a file should, and nobody writes to it."""
    path = keep(entries, KEY)
    path.unlink()
    os.mkfifo(path, 0o600)

    def find():
        signal.alarm(10)
        assert entries.find(KEY) is None

    in_child(find)
    assert path == keep(entries, KEY) == Path(entries.find(KEY))


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_not_found(entries, mode):
    path = keep(entries, KEY)
    path.chmod(mode)
    assert entries.find(KEY) is None


def test_a_file_of_another_user_is_not_found(entries, monkeypatch):
    keep(entries, KEY)
    uid = os.geteuid()
    monkeypatch.setattr(cache_module.os, "geteuid", lambda: uid + 1)
    assert entries.find(KEY) is None


def test_writing_that_fails_leaves_no_file(entries, monkeypatch):
    def full(*args, **places):
        raise OSError(errno.ENOSPC, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
            patch.setattr(cache_module.os, call, full)
            keep(entries, KEY)
        assert [] == names(entries)


def test_what_was_not_used_for_longest_is_trimmed_first(entries):
    paths = [keep(entries, key_of(str(n)), bytes(100)) for n in range(10)]
    for age, path in enumerate(paths):
        os.utime(path, (1e9 - age, 1e9 - age))
    entries.find(key_of("9"))  # the oldest is used
    assert [] == eviction.trim(entries.folder, limit=1000)
    removed = eviction.trim(entries.folder, limit=999)  # to four fifths, which is seven files
    assert [paths[8], paths[7], paths[6]] == [Path(entry.path) for entry in removed]
    left = {Path(entry.path) for entry in eviction.entries(entries.folder)}
    assert {*paths[:6], paths[9]} == left
    assert not paths[8].parent.exists()


def test_a_cache_is_looked_through_once_by_processes_that_begin(entries, monkeypatch):
    """And again after some minutes, whatever the clock says, and after each 16th of the limit."""
    looks = []
    monkeypatch.setattr(eviction, "trim", lambda folder: looks.append(folder))
    monkeypatch.setattr(artifact_cache, "_since_trimmed", {})
    artifact_cache._trim(entries, 1)
    assert 1 == len(looks)  # nobody has looked yet
    monkeypatch.undo()
    keep(entries, KEY)
    eviction.trim(entries.folder)
    stamp = Path(entries.folder) / eviction.LOOKED
    monkeypatch.setattr(eviction, "trim", lambda folder: looks.append(folder))
    for age, count in ((0, 1), (eviction.REST + 60, 2), (-eviction.REST - 60, 3)):
        os.utime(stamp, (time.time() - age,) * 2)
        monkeypatch.setattr(artifact_cache, "_since_trimmed", {})
        artifact_cache._trim(entries, 1)
        assert count == len(looks)
    artifact_cache._trim(entries, eviction.LIMIT // 16 - 2)
    assert 3 == len(looks)
    artifact_cache._trim(entries, 2)
    assert 4 == len(looks)


def test_clearing_leaves_the_files_of_others(entries):
    beside = keep(entries, KEY).with_name("notes")
    mine = Path(entries.folder) / "mine.so"
    mine.write_text("x")
    beside.write_text("x")
    assert [4] == [entry.size for entry in eviction.clear(entries.folder)]
    assert mine.exists() and beside.exists() and [] == eviction.entries(entries.folder)


def test_what_a_crash_left_is_swept_and_what_is_being_written_is_not(entries):
    folder = Path(entries.folder) / KEY
    folder.mkdir(parents=True)
    for name, age in (("new-old", 7200), ("new-fresh", 0)):
        (folder / name).write_text("half")
        os.utime(folder / name, (time.time() - age,) * 2)
    lock = folder.with_name(f"{OTHER}.lock")
    lock.touch()
    os.utime(lock, (1e9, 1e9))
    eviction.trim(entries.folder)
    assert ["new-fresh"] == names(entries)


def test_an_entry_is_kept_although_another_process_removes_its_empty_folder(entries, monkeypatch):
    """Between making the folder and the file in it."""
    make, swept = os.makedirs, []
    make(entries.folder)

    def make_and_sweep(folder, **options):
        make(folder, **options)
        if len(swept) < 3:
            eviction.sweep(entries.folder)
            swept.append(os.path.exists(folder))

    monkeypatch.setattr(cache_module.os, "makedirs", make_and_sweep)
    assert entries.keep(KEY, "a", ".so", b"data") == entries.find(KEY)
    assert [False] * 3 == swept


# ---------------------------------------------------------------------------- which folder, and why
def test_the_folder_is_the_variable_or_the_user_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("AOTLITE_CACHE", "here")
    assert str(Path.cwd() / "here") == trusted_folders.chosen()
    monkeypatch.setenv("AOTLITE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert str(tmp_path / "aotlite") == trusted_folders.chosen()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert str(tmp_path / "home" / ".cache" / "aotlite") == trusted_folders.chosen()
    monkeypatch.setattr(trusted_folders.os.path, "expanduser", lambda path: path)
    assert trusted_folders.chosen() is None


@pytest.mark.parametrize("umask", [0, 0o002, 0o077])
def test_folders_that_are_made_are_the_users_alone(tmp_path, umask):
    """Those above it, too, or it would be refused the next time."""
    before, made = os.umask(umask), tmp_path / "home" / ".cache" / "aotlite"
    try:
        assert "" == trusted_folders.made(str(made)) == trusted_folders.made(str(made))
    finally:
        os.umask(before)
    for each in (made, made.parent, made.parent.parent):
        assert 0o700 == each.stat().st_mode & 0o777


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path, mode):
    tmp_path.chmod(mode)
    refused = trusted_folders.made(str(tmp_path))
    assert f"{tmp_path} can be written by others (its mode is {mode:o}; " in refused


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    uid = os.geteuid()
    monkeypatch.setattr(trusted_folders.os, "geteuid", lambda: uid + 1)
    assert re.fullmatch(
        rf"({tmp_path}|/.*, above {tmp_path},) belongs to user .*",
        trusted_folders.made(str(tmp_path)),
    )


def test_a_folder_below_one_that_anybody_can_write_is_refused(tmp_path):
    """They could put another one in its place; not so in /tmp, whose sticky bit forbids it."""
    below = tmp_path / "cache"
    assert "" == trusted_folders.made(str(below))
    tmp_path.chmod(0o777)
    refused = f"{tmp_path}, above {below}, can be written by others (its mode is 777; "
    assert trusted_folders.made(str(below)).startswith(refused)
    tmp_path.chmod(0o1777)
    assert "" == trusted_folders.made(str(below))


def test_a_link_is_judged_by_what_it_leads_to(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    assert "" == trusted_folders.made(str(tmp_path / "link"))
    (tmp_path / "real").chmod(0o770)
    assert "can be written by others" in trusted_folders.made(str(tmp_path / "link"))


# ------------------------------------------------------------- a cache that is unsafe or unwritable
@compiles
def test_nothing_is_loaded_from_a_folder_that_others_can_write(cache):
    """What they planted under the right key, with the right checksum, stays unread."""
    planted = compiled("int twice(int x) { return 666; }\n", "planted")
    (cache / "kernels" / key_of_c(DOUBLE)).mkdir()
    target = cache / "kernels" / key_of_c(DOUBLE) / planted.name
    shutil.copyfile(planted, target)
    target.chmod(0o600)
    assert target == compiled(DOUBLE)  # as it would be found
    forget()
    cache.chmod(0o777)
    with warns_once("no disk cache: .* can be written by others .*mode is 777.*AOTLITE_CACHE"):
        assert 42 == load_c(DOUBLE, "double").twice(21)
        path = compiled(DOUBLE)
    assert cache not in path.parents and 0o700 == path.parents[1].stat().st_mode & 0o777


@compiles
def test_a_folder_from_which_nothing_can_be_loaded_is_not_used(cache, monkeypatch):
    real = os.statvfs

    def noexec(folder):
        found = list(real(folder))
        if str(folder).startswith(str(cache)):
            found[8] |= os.ST_NOEXEC
        return os.statvfs_result(found)

    monkeypatch.setattr(trusted_folders.os, "statvfs", noexec)
    with warns_once(f"no disk cache: {cache} is mounted noexec, no library .*AOTLITE_CACHE"):
        assert 42 == load_c(DOUBLE, "double").twice(21)
        assert cache not in compiled(DOUBLE).parents


@compiles
def test_a_folder_that_is_mounted_noexec_is_not_used(cache):
    """Really mounted so."""
    cache.mkdir(mode=0o700)

    def load_double():
        if not mounted(cache, ["mode=700", "noexec"]):
            return
        with warns_once(f"no disk cache: {cache} is mounted noexec"):
            assert 42 == load_c(DOUBLE, "double").twice(21)
        assert [] == list(cache.rglob("*.so"))

    in_child(load_double)


@compiles
def test_without_a_disk_cache_a_process_compiles_a_text_once(cache, compiler, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", "/dev/null/cache")
    compiler('echo x >> "$(dirname "$0")/log"; exec gcc "$@"')
    with warns_once("no disk cache: /dev/null, above /dev/null/cache, is no folder"):
        assert compiled(DOUBLE) == compiled(DOUBLE)
    assert "x\n" == (cache.parent / "log").read_text()


@compiles
def test_without_a_home_folder_there_is_no_disk_cache(cache, monkeypatch):
    monkeypatch.setattr(trusted_folders, "chosen", lambda: None)
    with warns_once("no disk cache: there is no home folder"):
        assert compiled(DOUBLE).exists()


@pytest.fixture
def foreign(monkeypatch):
    """A folder of an ordinary user, whom the system keeps from writing where he may not."""
    folder = Path(mkdtemp(prefix="aotlite-test-"))
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    os.chown(folder, user, -1)
    folder.chmod(0o700)
    (folder / "cache").mkdir(mode=0o700)
    os.chown(folder / "cache", user, -1)
    monkeypatch.setenv("AOTLITE_CACHE", str(folder / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    forget()
    yield folder / "cache"
    for each, _, _ in os.walk(folder):
        os.chmod(each, 0o700)
    shutil.rmtree(folder)


@compiles
def test_a_folder_that_is_read_only_is_read_and_the_rest_is_kept_elsewhere(foreign):
    def compile_and_find():
        before = compiled(DOUBLE)
        for each in (foreign, foreign / "kernels", before.parent):
            each.chmod(0o500)
        forget()
        assert before == compiled(DOUBLE)
        with warns_once("left alone: .*/kernels cannot be written: Permission denied"):
            path = compiled(DOUBLE + "// more")
            assert path == compiled(DOUBLE + "// more")
        assert foreign not in path.parents

    in_child(compile_and_find, user=NOBODY)


@compiles
@pytest.mark.parametrize("data", [b"not for this machine", "half"])
def test_what_does_not_load_in_a_folder_that_is_read_only_is_passed_over(foreign, data):
    """As a cache that machines share; nothing of it can be removed."""

    def load_double():
        whole = compiled(DOUBLE)
        bad = whole.read_bytes()[:3000] if data == "half" else data
        whole.unlink()
        kept = artifact_cache.kept(key_of_c(DOUBLE), "double", ".so", bad)
        for each in (foreign, foreign / "kernels", whole.parent):
            each.chmod(0o500)
        forget()
        with warns_once("left alone: .*/kernels cannot be written: Permission denied"):
            assert 42 == load_c(DOUBLE, "double").twice(21)
        assert os.path.exists(kept) and foreign not in compiled(DOUBLE).parents

    in_child(load_double, user=NOBODY)


@compiles
def test_a_folder_in_which_none_can_be_made_is_not_used(foreign):
    def compile_without():
        foreign.chmod(0o500)
        with warns_once("no disk cache: .*/kernels cannot be made: Permission denied"):
            assert foreign not in compiled(DOUBLE).parents

    in_child(compile_without, user=NOBODY)


@compiles
def test_a_full_disk_cache_is_left_alone(cache, monkeypatch):
    """A full disk is simulated by the call that writes what was written: it says so."""
    find_compiler()
    sync = os.fsync

    def full_here(handle):
        if str(cache) in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(cache_module.os, "fsync", full_here)
    with warns_once("left alone: .* cannot be written: No space left on device"):
        path = compiled(DOUBLE)
        assert path == compiled(DOUBLE)
    assert cache not in path.parents


@compiles
def test_the_private_folder_goes_with_its_process(cache, monkeypatch):
    """And not with a child that it forks, which makes one of its own."""
    monkeypatch.setattr(trusted_folders, "chosen", lambda: None)
    with pytest.warns(RuntimeWarning, match="no disk cache"):
        mine = compiled(DOUBLE)

    def in_forked():
        other = compiled(DOUBLE)
        assert other != mine and other.exists()
        atexit._run_exitfuncs()
        assert mine.exists() and not other.exists()

    in_child(in_forked)
    assert mine.exists()


# -------------------------------------------------------------------------------- several processes
@compiles
def test_of_several_processes_one_compiles(cache, compiler):
    compiler('echo x >> "$(dirname "$0")/log"; sleep 0.2; exec gcc "$@"')
    find_compiler()

    def load():
        assert 42 == load_c(DOUBLE, "double").twice(21)

    children = [start(load) for _ in range(4)]
    assert [0] * 4 == [ended(child) for child in children]
    assert "x\n" == (cache.parent / "log").read_text()
    assert [] == list(cache.rglob("*.lock")) + list(cache.rglob("new-*"))


@compiles
def test_a_process_that_crashes_while_it_compiles_holds_up_nobody(cache, compiler):
    compiler(
        'test -e "$(dirname "$0")/going" || { touch "$(dirname "$0")/going"; sleep 30; }\n'
        'exec gcc "$@"'
    )
    find_compiler()
    child = start(lambda: compiled(DOUBLE))
    while not (cache.parent / "going").exists():
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    assert -signal.SIGKILL == ended(child)
    started = time.monotonic()
    assert compiled(DOUBLE).exists()
    assert time.monotonic() - started < 10


@compiles
def test_a_process_that_holds_a_lock_too_long_is_not_waited_for(cache, monkeypatch):
    find_compiler()
    monkeypatch.setattr(cache_module, "LOCK_LIMIT", 0.1)
    with artifact_cache.locked(key_of_c(DOUBLE)):
        assert compiled(DOUBLE).exists()


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "lock"
    with held(path, 0.0) as first, held(path, 0.01) as second:
        assert (True, False) == (first, second)
    assert not path.exists()
    with held(path, 0.0) as again:
        assert again


def test_a_lock_is_free_although_a_forked_child_has_its_file_open(tmp_path):
    with held(tmp_path / "lock", 0.0):
        child = start(lambda: time.sleep(30))
    try:
        with held(tmp_path / "lock", 0.0) as first:
            assert first
    finally:
        os.kill(child, signal.SIGKILL)
        ended(child)


def test_a_lock_whose_file_was_removed_while_one_waited_is_taken_anew(tmp_path):
    path = tmp_path / "lock"

    def count():
        for _ in range(60):
            with held(path, 20.0) as mine:
                assert mine
                value = int((tmp_path / "count").read_text())
                (tmp_path / "count").write_text(str(value + 1))

    (tmp_path / "count").write_text("0")
    children = [start(count) for _ in range(3)]
    assert [0] * 3 == [ended(child) for child in children]
    assert "180" == (tmp_path / "count").read_text()


def test_where_there_can_be_no_lock_one_goes_on_without(tmp_path):
    (tmp_path / "no folder").touch()
    with held(tmp_path / "no folder" / "lock", 10.0) as mine:
        assert not mine


@pytest.mark.parametrize("error", [OSError(errno.ENOLCK, "no locks"), NotImplementedError("none")])
def test_where_the_file_system_has_no_locks_one_goes_on_without(tmp_path, monkeypatch, error):
    """Of ENOSYS some versions of filelock make a NotImplementedError."""

    def acquire(self, *args, **kwargs):
        raise error

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with held(tmp_path / "lock", 10.0) as mine:
        assert not mine
