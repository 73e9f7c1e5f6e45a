"""`aotlite cache`: what it says of the disk cache, and that it removes nothing but entries."""

import time

import pytest

import aotlite as al
from aotlite.backends.native.cache import eviction, trusted_folders
from aotlite.backends.native.cache.disk_cache import DiskCache, key_of
from aotlite.cli import main
from aotlite.subclasses import TwoTensor
from tests.artifacts.looked_up import cached

RATE = 2.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The value of AOTLITE_CACHE, a folder that is not made yet."""
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(capsys):
    def call(*words):
        status = main(["cache", *words])
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err

    return call


def test_an_empty_cache_is_shown_and_not_made(folder, run):
    limit = "limit: 1,073.7 MB; what was not used for longest goes first"
    shown = [f"folder: {folder / 'kernels'}", "kept: 0 files, 0.0 MB", limit]
    assert (0, shown, "") == run() == run("show") == run("info")
    assert (0, [shown[0], "removed: 0 files, 0.0 MB"], "") == run("clear")
    assert not folder.exists()


def test_what_is_kept_is_counted_and_removed(folder, run):
    assert "" == trusted_folders.made(str(folder))
    cache = DiskCache(str(folder / "kernels"))
    for number in range(2):
        cache.keep(key_of(str(number)), "a", ".so", bytes(600_000))
    (folder / "notes").write_text("not ours")
    assert "kept: 2 files, 1.2 MB" == run()[1][1]
    assert "removed: 2 files, 1.2 MB" == run("clear")[1][1]
    assert "kept: 0 files, 0.0 MB" == run()[1][1]
    assert "not ours" == (folder / "notes").read_text()


def test_a_folder_that_is_not_used_is_shown_with_the_reason_and_not_cleared(folder, run):
    cache = DiskCache(str(folder / "kernels"))
    cache.keep(key_of(), "a", ".so", b"data")
    folder.chmod(0o777)
    status, lines, _ = run()
    assert 0 == status and "kept: 1 file, 0.0 MB" == lines[1]
    assert lines[3].startswith(f"not used: {folder} can be written by others (its mode is 777; ")
    status, _, error = run("clear")
    assert 2 == status and error.startswith(f"aotlite: cache: {folder} can be written by others")
    assert 1 == len(eviction.entries(cache.folder))


def test_without_a_home_folder_there_is_nothing_to_show(run, monkeypatch):
    monkeypatch.setattr(trusted_folders, "chosen", lambda: None)
    status, _, error = run()
    assert (2, "expected a folder in AOTLITE_CACHE\n") == (status, error.partition(", ")[2])


def test_another_action_is_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("burn")
    assert "invalid choice: 'burn'" in capsys.readouterr().err


@pytest.mark.rules("CACHE-13")
def test_why_says_which_read_differed(folder, run, monkeypatch):
    def scaled(x):
        return x * RATE

    name = f"{__name__}:{scaled.__qualname__}"
    assert (0, [f"nothing is known of {name}: it was not looked up"], "") == run("why", name)
    cached(scaled)(al.ones(2))
    assert (0, ["miss: nothing is kept of it"], "") == run("why", name)
    monkeypatch.setitem(globals(), "RATE", 3.0)
    cached(scaled)(al.ones(2))
    assert (0, ["miss: RATE is 3.0, was 2.0 when it was compiled"], "") == run("why", name)
    for _ in range(2):
        cached(scaled)(al.ones(2))
        hit = "hit: all reads of the last look-up are those of a kept entry"
        before = "before, miss: RATE is 3.0, was 2.0 when it was compiled"
        assert (0, [hit, before], "") == run("why", name)
    cached(lambda x: x * time.time())(al.ones(2))
    printing = f"{__name__}:{test_why_says_which_read_differed.__name__}.<locals>.<lambda>"
    assert run("why", printing)[1][0].startswith("bypass: ")


def hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 2)
    return y


def of_wrapper(x):
    return x * 2


def printing(x):
    al.effects.print("{}", x)
    return x * 2


BYPASSES = {
    hooked: ("the function registers hooks", "register them on its results, outside"),
    of_wrapper: ("a tensor is a wrapper subclass", "pass its parts, and wrap the results outside"),
    printing: ("the function has effects", "leave prints and callbacks to the caller"),
}


@pytest.mark.rules("CACHE-3", "CACHE-13")
@pytest.mark.parametrize("function", BYPASSES)
def test_why_says_what_to_do_instead(folder, run, function, capsys):
    why, advice = BYPASSES[function]
    x = al.ones(2, requires_grad=True)
    given = TwoTensor(al.ones(2), al.ones(2)) if function is of_wrapper else x
    cached(function)(given)
    capsys.readouterr()
    said = run("why", f"{__name__}:{function.__qualname__}")[1]
    assert [f"bypass: {why}", f"instead: {advice}"] == said
    with pytest.raises(al.UnsupportedError) as caught:
        cached(function, strict_cache=True)(given)
    assert f"Instead: {advice}." in caught.value.__notes__


@pytest.mark.rules("CACHE-13")
def test_why_of_a_name_without_a_module_says_its_form(run):
    assert run("why", "step")[1][0].endswith("it is given as module:name")


@pytest.mark.rules("CACHE-12", "CACHE-13")
def test_entries_of_functions_are_counted_and_removed(folder, run):
    cached(lambda x: x * 2)(al.ones(2))
    lines = run()[1]
    assert f"folder: {folder / 'artifacts'}" == lines[3]
    assert lines[4].startswith("kept: 2 files, 0.0 MB")
    assert "removed: 2 files, 0.0 MB" == run("clear")[1][3]
    assert "kept: 0 files, 0.0 MB" == run()[1][4]


def test_why_wants_a_function_and_others_want_none(run):
    status, _, error = run("why")
    assert 2 == status
    assert "cache: why has no function, expected `aotlite cache why module:name`" in error
    for action in ("info", "clear"):
        status, _, error = run(action, "a:b")
        assert 2 == status
        assert f"cache: {action} has the function 'a:b', expected none" in error
