"""No code runs from where another user can put it: folders above, links, exchanges, other bytes."""

import os
import shutil
import signal
import stat
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from aotlite.backends.cpu import graph_cache
from aotlite.backends.native.cache import artifact_cache, trusted_folders
from aotlite.backends.native.cache.disk_cache import DiskCache, key_of
from aotlite.backends.native.compiler import toolchain
from aotlite.backends.native.compiler.toolchain import compile_c, key_of_c
from aotlite.backends.native.libraries import library_loading
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.ir.errors import BackendError
from tests.backends.cpu.helpers.compilers import (
    DOUBLE,
    GCC,
    compiled,
    compiles,
    forget,
    in_child,
    start,
    warns_once,
)

ROOT, NOBODY, SOMEBODY = 0, 65534, 65533
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != ROOT,
    reason="only root can give folders to another user",
)


@contextmanager
def shared_place():
    """A folder that every user can go into, where pytest's own are its user's alone."""
    folder = Path(mkdtemp(prefix="aotlite-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def place():
    with shared_place() as folder:
        yield folder


def below(*parts):
    """A cache's folder below others, which are made."""
    folder = parts[0].joinpath(*parts[1:])
    folder.mkdir(mode=0o700, parents=True)
    return folder


# ------------------------------------------------------------------------------------ folders above
@as_root
def test_a_folder_below_one_of_another_user_is_refused(place):
    """Who has a folder can rename what is in it, whoever may write there."""
    folder = below(place, "theirs", "between", "cache")
    os.chown(place / "theirs", NOBODY, NOBODY)
    why = f"{place}/theirs, above {folder}, belongs to user "
    assert trusted_folders.refusal(str(folder)).startswith(why)
    os.chown(place / "theirs", ROOT, ROOT)
    assert "" == trusted_folders.refusal(str(folder))


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o2775])
def test_a_folder_below_one_that_others_can_write_is_refused(place, mode):
    folder = below(place, "shared", "between", "cache")
    (place / "shared").chmod(mode)
    why = f"{place}/shared, above {folder}, can be written by others (its mode is {mode:o}; chmod "
    assert trusted_folders.refusal(str(folder)).startswith(why)
    (place / "shared").chmod(mode | stat.S_ISVTX)
    assert "" == trusted_folders.refusal(str(folder))


def test_a_link_that_others_can_exchange_is_refused(place):
    """Both the folder that it lies in and those above what it leads to."""
    folder = below(place, "real", "cache")
    (place / "links").mkdir()
    link = place / "links" / "cache"
    link.symlink_to("../real/cache")
    assert "" == trusted_folders.refusal(str(link))
    (place / "links").chmod(0o775)
    assert f"{place}/links, above {link}, can be written" in trusted_folders.refusal(str(link))
    (place / "links").chmod(0o755)
    (place / "real").chmod(0o775)
    assert f"{place}/real, above {link}, can be written" in trusted_folders.refusal(str(link))
    assert f"{place}/real, above {folder}, can be written" in trusted_folders.refusal(str(folder))


@as_root
def test_a_link_of_another_user_is_refused(place):
    """Its owner may exchange it although the folder is sticky."""
    folder, link = below(place, "cache"), place / "link"
    place.chmod(0o1777)
    link.symlink_to(folder)
    assert "" == trusted_folders.refusal(str(link))
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert trusted_folders.refusal(str(link)).startswith(
        f"{link}, above {link}, is a link of user "
    )


def test_links_that_lead_to_each_other_are_refused(place):
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    assert f"{place}/a cannot be read: Too many levels" in trusted_folders.refusal(str(place / "a"))


# ------------------------------------------------------------------- the law: what another can turn
OWNERS = (ROOT, NOBODY, SOMEBODY)
SAFE, MODES = (0o700, 0o711, 0o755), (0o775, 0o757, 0o777, 0o1777, 0o1775)
PARTS = st.tuples(
    st.sampled_from((*[ROOT] * 9, *OWNERS)),
    st.sampled_from((*SAFE * 2, *MODES)),
    st.sampled_from((*[""] * 5, *[ROOT] * 2, NOBODY, SOMEBODY)),
)
"""Owner and mode of a folder, and the owner of a link that leads to it, if there is one."""


def built(place, parts):
    """The path of a folder, and all paths that lie on the way to it."""
    given, real, way = place, place, []
    for depth, (owner, _, of_link) in enumerate(parts):
        real = real / f"folder{depth}"
        real.mkdir()
        os.chown(real, owner, owner)
        given = given / real.name
        way.append(real)
        if of_link != "":
            link = given.with_name(f"link{depth}")
            link.symlink_to(real)
            os.chown(link, of_link, of_link, follow_symlinks=False)
            given = link
            way.append(link.parent.resolve() / link.name)
    for folder, (_, mode, _) in zip([p for p in way if not p.is_symlink()], parts, strict=True):
        folder.chmod(mode)
    return given, way


def turned(way):
    """What this process can put something else in the place of, or write into."""
    for path in way:
        with suppress(OSError):
            if not path.is_symlink():
                path.chmod(0o777)
        with suppress(OSError):
            os.rename(path, f"{path}-away")
            return path
    try:
        (way[-1] / "planted").write_text("x")
        return way[-1]
    except OSError:
        return None


def turned_by(user, way):
    """The same by a user, in a child."""
    answer, said = os.pipe()

    def turn():
        with os.fdopen(said, "w") as file:
            file.write(str(turned(way) or ""))

    in_child(turn, user=user)
    os.close(said)
    with os.fdopen(answer) as file:
        return file.read()


@pytest.mark.slow("forks a process for each user and each way")
@as_root
@pytest.mark.draws(long=400)
@settings(max_examples=12)
@given(st.lists(PARTS, min_size=2, max_size=3))
def test_what_another_user_can_turn_elsewhere_is_refused(parts):
    """CC-15, by trying: each user but root tries to rename each part of the way, or to write in
    it, having taken what rights its owner can take."""
    for user in (NOBODY, SOMEBODY):
        with shared_place() as place:
            given, way = built(place, parts)
            refused = trusted_folders.refusal(str(given))
            by = turned_by(user, way)
            event(f"refused: {bool(refused)}, turned: {bool(by)}")
            assert refused or not by, (by, given)


# ------------------------------------------------------------------------------ temporary folders
def shared_temporaries(place, mode=0o777):
    """A folder for temporary files below one that others can write."""
    folder = below(place, "shared", "tmp")
    folder.chmod(0o1777)
    (place / "shared").chmod(mode)
    return folder


def swaps(temporaries, data, built, done):
    """As another user: puts a folder with another library in the place of that which is compiled
    in, as soon as the compiler has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        names = [each.name for each in temporaries.glob("aotlite-*")]
        if names and built.exists():
            temporaries.rename(temporaries.with_name("away"))
            for name in names:
                (temporaries / name).mkdir(parents=True)
                (temporaries / name / "library.so").write_bytes(data)
            done.touch()
            return
        time.sleep(0.002)


@as_root
@compiles
def test_no_library_is_read_from_a_folder_that_another_user_has_put_in_the_place_of_ours(
    cache, compiler, place, monkeypatch
):
    """The cache is safe, the folder for temporary files is below one that others can write."""
    built, done = place / "shared" / "built", place / "shared" / "done"
    wait = f"for i in $(seq 400); do [ -e {done} ] && exit 0; sleep 0.02; done"
    compiler(
        f'case "$PWD" in {place}/*) {GCC} "$@"; touch {built}; {wait} ;; *) exec {GCC} "$@" ;; esac'
    )
    wrong, temporaries = wrong_library(), shared_temporaries(place)
    monkeypatch.setattr("tempfile.tempdir", str(temporaries))

    def attack():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        swaps(temporaries, wrong, built, done)

    attacker = start(attack)
    try:
        with warnings.catch_warnings(record=True):
            assert 42 == load_c(DOUBLE, "double").twice(21)
        assert not done.exists()
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)


@compiles
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_place_for_temporary_files_below_a_folder_that_others_can_write_is_told_once(
    cache, place, monkeypatch, mode
):
    monkeypatch.setattr("tempfile.tempdir", str(shared_temporaries(place, mode)))
    with warns_once(f"{place}/shared, above .* can be written by others.* /tmp is used .*TMPDIR"):
        assert 42 == load_c(DOUBLE, "double").twice(21)
        with trusted_folders.scratch() as made:
            assert "/tmp" == os.path.dirname(made.path)
    (place / "shared").chmod(0o755)
    with trusted_folders.scratch() as made:
        assert f"{place}/shared/tmp" == os.path.dirname(made.path)


def test_the_cache_is_the_last_place_for_temporary_folders(cache, place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(shared_temporaries(place)))
    monkeypatch.setattr(trusted_folders, "SYSTEM_PLACES", (f"{place}/none", f"{place}/shared"))
    with pytest.warns(RuntimeWarning, match="is used instead") as caught:
        with trusted_folders.scratch() as made:
            assert trusted_folders.chosen() == os.path.dirname(made.path)
    assert [__file__] == [each.filename for each in caught]


@compiles
def test_nothing_is_compiled_where_no_place_for_temporary_folders_is_safe(place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(shared_temporaries(place)))
    monkeypatch.setattr(trusted_folders, "SYSTEM_PLACES", ())
    monkeypatch.setenv("AOTLITE_CACHE", f"{place}/shared/cache")
    forget()
    with (
        warns_once("no disk cache"),
        pytest.raises(BackendError, match=r"can be written by others.* no other place .*TMPDIR"),
    ):
        compiled(DOUBLE)


@as_root
@pytest.mark.draws(long=200)
@given(st.lists(PARTS, min_size=2, max_size=3))
def test_no_temporary_folder_is_made_that_another_user_can_turn_elsewhere(parts):
    """CC-25, by trying, as for the cache."""
    with shared_place() as place:
        given, way = built(place, parts)
        with warnings.catch_warnings(), patch("tempfile.tempdir", str(given)):
            warnings.simplefilter("ignore")
            with trusted_folders.scratch() as made:
                is_there = os.path.dirname(made.path) == str(given)
                event(f"made there: {is_there}")
                for user in (NOBODY, SOMEBODY) if is_there else ():
                    assert "" == turned_by(user, [*way, Path(made.path)]), (user, given)


def test_what_was_compiled_is_read_from_the_folder_that_was_made(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with trusted_folders.scratch() as made:
        path = Path(made.path)
        (path / "library.so").write_bytes(b"ours")
        exchange(path / "library.so", b"planted")
        assert b"ours" == made.read("library.so")


def test_a_link_is_not_what_was_compiled(tmp_path):
    (tmp_path / "planted").write_bytes(b"planted")
    with trusted_folders.scratch() as made:
        (Path(made.path) / "library.so").symlink_to(tmp_path / "planted")
        with pytest.raises(OSError, match="symbolic links"):
            made.read("library.so")


@as_root
def test_a_file_of_another_user_is_not_what_was_compiled():
    with trusted_folders.scratch() as made:
        path = Path(made.path) / "library.so"
        path.write_bytes(b"planted")
        os.chown(path, NOBODY, NOBODY)
        with pytest.raises(PermissionError, match="library.so belongs to user "):
            made.read("library.so")


@compiles
def test_the_files_that_a_compiler_makes_meanwhile_are_in_the_folder_that_was_made(cache, compiler):
    """As the object file that its linker reads."""
    compiler(f'[ "$TMPDIR" = "$PWD" ] && exec {GCC} "$@"')
    assert compiled(DOUBLE).exists()


# ------------------------------------------------------------------------------- folders of keys
def test_nothing_is_found_in_the_folder_of_a_key_that_others_can_write(place):
    """They could link there a file of this user's that is of another key."""
    cache, key = DiskCache(str(below(place, "cache"))), key_of("a")
    path = Path(cache.keep(key, "a", ".so", b"data"))
    for mode in (0o770, 0o707, 0o1777):
        path.parent.chmod(mode)
        assert cache.find(key) is None
        with pytest.raises(OSError, match="can be written by others"):
            cache.keep(key, "a", ".so", b"data")
    path.parent.chmod(0o700)
    assert str(path) == cache.keep(key, "a", ".so", b"data") == cache.find(key)


@as_root
def test_nothing_is_found_in_the_folder_of_a_key_of_another_user(place):
    cache, key = DiskCache(str(below(place, "cache"))), key_of("a")
    path = Path(cache.keep(key, "a", ".so", b"data"))
    os.chown(path.parent, NOBODY, NOBODY)
    assert cache.find(key) is None


@compiles
def test_the_folder_of_a_key_that_others_can_write_is_passed_over_and_told(cache):
    path = compiled(DOUBLE)
    path.parent.chmod(0o777)
    forget()
    with warns_once("left alone: .* can be written by others.*AOTLITE_CACHE"):
        assert 42 == load_c(DOUBLE, "double").twice(21)
        assert cache not in compiled(DOUBLE).parents


# ------------------------------------------------------------------- exchanged after it was checked
def wrong_library(name="planted"):
    """The bytes of a library with the same function, which computes something else."""
    return compiled("int twice(int x) { return 666; }\n", name).read_bytes()


def exchange(path, data):
    """Puts another folder with a file of that name in the place of a file's folder."""
    away = path.parent.with_name(f"away-{os.urandom(4).hex()}")
    path.parent.rename(away)
    path.parent.mkdir(mode=0o700)
    path.write_bytes(data)
    path.chmod(0o600)


@compiles
def test_a_library_that_was_exchanged_after_it_was_found_is_not_loaded(cache, monkeypatch):
    wrong, done = wrong_library(), []

    def exchanged(*args, **options):
        path = Path(compile_c(*args, **options))
        if not done:
            exchange(path, wrong)
            done.append(path)
        return str(path)

    monkeypatch.setattr(library_loading, "compile_c", exchanged)
    assert 42 == load_c(DOUBLE, "double").twice(21)
    assert done


@compiles
def test_a_library_that_is_exchanged_while_it_is_loaded_is_the_one_that_was_checked(
    cache, monkeypatch
):
    """Its descriptor is given to the system's loader, and no path that leads somewhere else."""
    path, wrong, real = compiled(DOUBLE), wrong_library(), library_loading.SharedLibrary.__init__

    def exchanged(self, *args, **options):
        exchange(path, wrong)
        real(self, *args, **options)

    monkeypatch.setattr(library_loading.SharedLibrary, "__init__", exchanged)
    assert 42 == load_c(DOUBLE, "double").twice(21)
    assert wrong == path.read_bytes()


@compiles
def test_without_names_for_descriptors_a_copy_of_what_was_checked_is_loaded(cache, monkeypatch):
    """As on macOS, and where no /proc is mounted."""
    monkeypatch.setattr("aotlite.backends.native.libraries.shared_library.DESCRIPTORS", "/nowhere")
    path, wrong, real = compiled(DOUBLE), wrong_library(), library_loading.SharedLibrary.__init__
    names = []

    def exchanged(self, name, *args, **options):
        names.append(name)
        assert 0o700 == os.stat(os.path.dirname(name)).st_mode & 0o777
        exchange(path, wrong)
        real(self, name, *args, **options)

    monkeypatch.setattr(library_loading.SharedLibrary, "__init__", exchanged)
    assert 42 == load_c(DOUBLE, "double").twice(21)
    assert not os.path.exists(names[0])


@compiles
def test_libraries_whose_descriptors_have_one_number_are_two(cache):
    """The system's loader knows libraries by their names."""
    found = [load_c(f"int value(void) {{ return {n}; }}\n", "value").value() for n in range(20)]
    assert list(range(20)) == found


@compiles
@pytest.mark.parametrize("part", [0.5, 0.9, 1.0])
def test_a_library_with_a_sound_header_and_other_bytes_is_not_loaded(cache, monkeypatch, part):
    """Loading it would end the process, or run what is not the user's: it is compiled again."""
    path, done = compiled(DOUBLE), []

    def damaged(*args, **options):
        found = compile_c(*args, **options)
        if not done:
            data = path.read_bytes()
            end = 1024 + int((len(data) - 1024) * part)
            path.write_bytes(data[:1024] + bytes([0x5A]) * (end - 1024) + data[end:])
            done.append(path)
        return found

    monkeypatch.setattr(library_loading, "compile_c", damaged)

    def load_double():
        assert 42 == load_c(DOUBLE, "double").twice(21)

    in_child(load_double)


# ------------------------------------------------------------------------------------------ records
def test_a_record_that_was_exchanged_after_it_was_found_is_not_read(cache, monkeypatch):
    """Of graphs, whose C text would be compiled."""
    key = key_of("graph")
    path = Path(artifact_cache.kept(key, "graph", ".json", b"{}"))
    read = []
    monkeypatch.setattr(graph_cache, "_text", lambda record: read.append(record))
    graph_cache.remembered(key)
    assert [{}] == read
    exchange(path, b'{"planted": 1}')
    assert graph_cache.remembered(key) is None
    assert [{}] == read


@compiles
def test_a_record_of_a_compiler_that_was_exchanged_is_not_read(cache, monkeypatch):
    compiled(DOUBLE)
    candidate = next(toolchain.candidates())
    path = Path(artifact_cache.found(toolchain._key(candidate)))
    assert toolchain._remembered(candidate) is not None
    exchange(path, path.read_bytes().replace(b"gcc", b"gcc "))
    monkeypatch.setattr(artifact_cache, "found", lambda key: str(path))
    assert toolchain._remembered(candidate) is None


@compiles
def test_a_library_that_others_can_write_is_not_loaded_by_its_path(cache):
    path = compiled(DOUBLE)
    assert str(path) == artifact_cache.found(key_of_c(DOUBLE))
    path.chmod(0o622)
    with pytest.raises(
        library_loading.BackendError, match=r"be loaded \(it can be written by others"
    ):
        library_loading.load(str(path))
