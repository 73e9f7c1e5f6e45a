"""CACHE-15 to CACHE-18: bundles are entries for other processes, and nothing but data."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import aotlite as al
from aotlite.artifacts.reads import option_reads
from tests.artifacts.looked_up import cached, outcomes
from tests.artifacts.saved_programs import run

SCALE = 2.0
WEIGHT = al.full((3,), 2.0, requires_grad=True)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def scaled(x: Any) -> Any:
    return (x * SCALE).sum()


def weighted(x: Any) -> Any:
    return (x * WEIGHT * SCALE).sum()


class Net(al.nn.Module):
    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.w = al.nn.Parameter(al.full((3,), 2.0))
        self.rate = rate

    def forward(self, x: Any) -> Any:
        return (x.sin() * self.w * self.rate).sum()


def called(model: Any, x: Any) -> Any:
    return model(x)


def saved(function: Any, path: Path, *args: Any, **options: Any) -> bytes:
    compiled = cached(function, **options)
    compiled(*args)
    compiled.save(path)
    return path.read_bytes()


@pytest.mark.rules("CACHE-6", "CACHE-15")
def test_drawn_programs_do_in_a_new_process_what_eager_does(tmp_path):
    """The command `python -m tests.artifacts.saved_programs` runs any number."""
    figures = run(range(10), tmp_path)
    assert [] == figures.wrong
    assert figures.saved > 5


@pytest.mark.rules("CACHE-15", "CACHE-16")
def test_entries_serve_calls_whose_reads_are_as_they_were(tmp_path, monkeypatch):
    data = saved(scaled, tmp_path / "a", al.ones(3, requires_grad=True))
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "another"))
    ready = al.load(tmp_path / "a", scaled)
    x = al.ones(3, requires_grad=True)
    with outcomes("bundle") as found:
        ready(x).backward()
        monkeypatch.setitem(globals(), "SCALE", 5.0)
        assert 15.0 == ready(x).item()
    assert ["hit", "miss"] == found
    assert "SCALE is 5.0, was 2.0 when it was compiled" == found.why
    assert [2.0] * 3 == x.grad.tolist()
    monkeypatch.undo()
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "another"))
    again = al.load(tmp_path / "a", scaled)
    again(x)
    again.save(tmp_path / "b")
    assert data == (tmp_path / "b").read_bytes()


@pytest.mark.rules("CACHE-16")
def test_code_may_lie_elsewhere(tmp_path):
    text = "def f(x):\n    return x * 3.0\n"
    places: list[dict[str, Any]] = [{"__name__": "placed"}, {"__name__": "placed"}]
    for place, file in zip(places, ("/here/a.py", "/there/a.py"), strict=True):
        exec(compile(text, file, "exec"), place)
    saved(places[0]["f"], tmp_path / "a", al.ones(2))
    assert [3.0, 3.0] == al.load(tmp_path / "a", places[1]["f"], compiles=False)(
        al.ones(2)
    ).tolist()
    with outcomes() as found:  # of one machine's cache the place is a read: errors name lines
        cached(places[1]["f"])(al.ones(2))
    assert ["miss", "kept"] == found


@pytest.mark.rules("CACHE-18")
def test_without_function_arguments_and_modules_among_them_are_compared(tmp_path):
    saved(called, tmp_path / "a", Net(), al.ones(3))
    ready, model = al.load(tmp_path / "a"), Net()
    ready(model, al.ones(3)).backward()
    assert (al.ones(3).sin() * 0.5).tolist() == model.w.grad.tolist()
    with pytest.raises(al.GuardError, match="argument 0.rate is 0.25, was 0.5"):
        ready(Net(0.25), al.ones(3))
    x = al.ones(3, requires_grad=True)
    with pytest.raises(al.GuardError, match=r"serves this call: argument 1 is .*requires grad"):
        ready(Net(), x)


@pytest.mark.rules("CACHE-18")
def test_what_needs_the_function_says_so(tmp_path):
    saved(weighted, tmp_path / "a", al.ones(3))
    with pytest.raises(al.ArgumentError, match="function and reads the tensor WEIGHT"):
        al.load(tmp_path / "a")
    assert 12.0 == al.load(tmp_path / "a", weighted, compiles=False)(al.ones(3)).item()
    saved(lambda x: x.sin(), tmp_path / "b", al.ones(3, requires_grad=True))
    ready, x = al.load(tmp_path / "b"), al.ones(3, requires_grad=True)
    with pytest.raises(al.AutogradError, match="was loaded without its function, expected it"):
        al.autograd.grad(ready(x).sum(), x, create_graph=True)
    with al.autograd.set_detect_anomaly(True), pytest.raises(al.GuardError, match="would run as"):
        ready(x)


@pytest.mark.rules("CACHE-14", "CACHE-15")
def test_gradients_of_gradients_of_a_loaded_entry(tmp_path):
    def cubed(x):
        return (x**3).sum()

    saved(cubed, tmp_path / "a", al.ones(2, requires_grad=True))
    x = al.tensor([1.0, 2.0], requires_grad=True)
    (first,) = al.autograd.grad(al.load(tmp_path / "a", cubed)(x), x, create_graph=True)
    (second,) = al.autograd.grad(first.sum(), x)
    assert [6.0, 12.0] == second.tolist()


def weighted_if(x: Any, *, weigh: bool) -> Any:
    return (x * WEIGHT if weigh else x * 3.0).sum()


@pytest.mark.rules("CACHE-18")
def test_entries_that_need_the_function_are_left_out_without_it(tmp_path):
    compiled = cached(weighted_if)
    for weigh in (True, False):
        compiled(al.ones(3), weigh=weigh)
    compiled.save(tmp_path / "a")
    ready = al.load(tmp_path / "a")
    assert 9.0 == ready(al.ones(3), weigh=False).item()
    with pytest.raises(al.GuardError, match="argument 1 is True, was False") as caught:
        ready(al.ones(3), weigh=True)
    assert "1 more need its function, by which they read tensors." in caught.value.__notes__
    both = al.load(tmp_path / "a", weighted_if, compiles=False)
    assert [6.0, 9.0] == [both(al.ones(3), weigh=weigh).item() for weigh in (True, False)]


REFUSED: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "no option": (
        lambda path: al.compile(scaled, backend="reference").save(path),
        al.ArgumentError,
        "is compiled without artifact_cache, expected",
    ),
    "no call": (
        lambda path: cached(scaled).save(path),
        al.ArgumentError,
        "has no entries, expected a call, or prepare",
    ),
    "a clock": (
        lambda path: saved(lambda x: x * time.time(), path, al.ones(2)),
        al.UnsupportedError,
        "cannot be kept, since .* calls time.time, expected",
    ),
    "counts": (
        lambda path: saved(lambda x: x.nonzero() * 2, path, al.ones(2), dynamic=True),
        al.UnsupportedError,
        "since a size depends on values of tensors",
    ),
}


@pytest.mark.rules("CACHE-3", "CACHE-15")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_saved_is_refused_with_the_reason(case, tmp_path):
    act, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        act(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def headed(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Changes the first line of a file."""

    def act(data: bytes) -> bytes:
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        change(head)
        return json.dumps(head).encode() + b"\n" + rest

    return act


def entries_as(make: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Changes the entries of a file of one, with sizes and digest to match."""

    def act(data: bytes) -> bytes:
        rest = make(data.partition(b"\n")[2])
        digest = sha256(rest).hexdigest()
        change = headed(lambda head: head.update(sizes=[len(rest)], sha256=digest))
        return change(data.partition(b"\n")[0]).rstrip(b"\n") + b"\n" + rest

    return act


def records_as(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    """Changes the line of an entry that has reads and guards."""
    return entries_as(headed(change))


ODD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda data: b"", "expected JSON as dumps writes it"),
    "a pickle": (lambda data: b"\x80\x04N.", "expected text in UTF-8"),
    "another format": (headed(lambda head: head.update(format="x")), "has another format"),
    "a newer version": (headed(lambda head: head.update(version=9)), "the version is 9, expected"),
    "a key more": (headed(lambda head: head.update(more=1)), "has other keys"),
    "half of it": (lambda data: data[: len(data) // 2], "bytes follow the first line, expected"),
    "a byte more": (lambda data: data + b"x", "bytes follow the first line, expected"),
    "a byte changed": (lambda data: data[:-9] + b"x" + data[-8:], "digest of the entries"),
    "a huge size": (headed(lambda head: head.update(sizes=[10**15])), "follow the first line"),
    "sizes below 0": (headed(lambda head: head.update(sizes=[-1, 5])), "no number above 0"),
    "no entries": (headed(lambda head: head.update(sizes=[])), "expected 1 to 10000 sizes"),
    "a long first line": (lambda data: b" " * 100_000 + data, "the first line has"),
    "deep nesting": (lambda data: b"[" * 60_000 + b"\n", "nested"),
    "an unknown option": (headed(lambda head: head["options"].update(run="x")), "is no option"),
    "an option of another type": (
        headed(lambda head: head["options"].update(partition="x")),
        "the options are others",
    ),
    "other libraries": (
        headed(lambda head: head["versions"][2].__setitem__(1, "NumPy 9")),
        "the versions of libraries is 'NumPy 9', expected 'NumPy",
    ),
    "other sources": (
        headed(lambda head: head["versions"][0].__setitem__(1, "0")),
        "the files of aotlite is '0', expected",
    ),
    "versions of another form": (headed(lambda head: head.update(versions=3)), "'.none.'"),
    "an entry without reads": (records_as(lambda head: head.pop("reads")), "is no kept entry"),
    "a nested entry": (entries_as(lambda rest: b"[" * 1_000_000), "is no kept entry"),
    "no records": (entries_as(lambda rest: rest.split(b"\n")[0] + b"\n"), "is no kept entry"),
    "records of another kind": (
        entries_as(lambda rest: rest.split(b"\n")[0] + b'\n["[]"]'),
        "expected",
    ),
}


@pytest.mark.rules("CACHE-17")
@pytest.mark.parametrize("case", ODD)
def test_another_file_is_a_format_error(case, tmp_path):
    change, text = ODD[case]
    data = saved(scaled, tmp_path / "a", al.ones(2))
    (tmp_path / "a").write_bytes(change(data))
    load = al.load  # which imports its own module
    begun, modules = time.monotonic(), set(sys.modules)
    with pytest.raises(al.FormatError, match=text) as caught:
        load(tmp_path / "a", scaled)
    assert f"in the file {str(tmp_path / 'a')!r}" in caught.value.__notes__
    assert time.monotonic() - begun < 2
    assert modules == set(sys.modules)


def test_a_file_that_is_too_long_is_not_read(tmp_path):
    data = saved(scaled, tmp_path / "a", al.ones(2))
    assert 4.0 == al.load(tmp_path / "a", scaled, max_bytes=len(data))(al.ones(2)).item()
    with pytest.raises(al.FormatError, match="is longer than 10 bytes"):
        al.load(tmp_path / "a", scaled, max_bytes=10)


def squared_in_place(x: Any, y: Any) -> Any:
    y.mul_(2)
    return (x * x).sin()


@pytest.mark.rules("CACHE-17")
@pytest.mark.parametrize("which", [(0, 1, 2, 3), (0,), (1,), (2,), (3,)], ids=str)
def test_entries_of_other_metas_are_refused_before_they_run(which, tmp_path):
    """The reads say that the call fits; what is said elsewhere is of more elements than it has."""

    def larger(rest: bytes) -> bytes:
        head, sizes, texts = rest.split(b"\n", 2)
        assert 4 == len(json.loads(sizes))  # the records, and the graphs: joint, forward, backward
        made = []
        for k, size in enumerate(json.loads(sizes)):
            text, texts = texts[:size], texts[size:]
            made.append(text.replace(b"[4]", b"[4000]") if k in which else text)
        return b"\n".join([head, json.dumps(list(map(len, made))).encode(), b"".join(made)])

    def args() -> tuple[Any, Any]:
        base = al.ones(6)
        return al.ones(4, requires_grad=True), base[1:5]

    data = saved(squared_in_place, tmp_path / "a", *args())
    (tmp_path / "a").write_bytes(entries_as(larger)(data))
    if which == (1,):  # of which no kernel is made, and whose metas nothing reads
        al.load(tmp_path / "a", squared_in_place)(*args())
        return
    with pytest.raises(al.FormatError, match="expected"):
        al.load(tmp_path / "a", squared_in_place)(*args())


@pytest.mark.rules("CACHE-17")
def test_a_saved_tensor_on_an_input_that_there_is_not_is_refused(tmp_path):
    """The text of a call named a variable that it does not have."""
    data = saved(squared_in_place, tmp_path / "a", al.ones(4, requires_grad=True), al.ones(4))
    before, after = (
        b'"record":"SavedOf","owner":"primals_0"',
        b'"record":"SavedOf","owner":"primals_7"',
    )
    assert before in data
    (tmp_path / "a").write_bytes(entries_as(lambda rest: rest.replace(before, after))(data))
    with pytest.raises(al.FormatError, match="a saved tensor is on primals_7, expected an input"):
        al.load(tmp_path / "a", squared_in_place)(al.ones(4, requires_grad=True), al.ones(4))


@pytest.mark.rules("CACHE-17", "CACHE-20")
@pytest.mark.parametrize("dynamic", [False, True], ids=["numbers", "symbols"])
def test_drawn_damages_with_the_right_digest_are_refused_or_run(dynamic, tmp_path):
    draw, data = random.Random(0), saved(scaled, tmp_path / "a", al.ones(2), dynamic=dynamic)

    def damaged(rest: bytes) -> bytes:
        made = bytearray(rest)
        for _ in range(draw.randint(1, 4)):
            made[draw.randrange(len(made))] = draw.choice(b'0123456789[]{}",:ae \x00')
        return bytes(made)

    modules, refused = set(sys.modules), 0
    for _ in range(40):
        (tmp_path / "a").write_bytes(entries_as(damaged)(data))
        try:
            ready = al.load(tmp_path / "a", scaled)
            ready(al.ones(2)), ready(al.ones(5))
        except al.AotliteError:
            refused += 1
    assert refused > 10
    assert modules == set(sys.modules)


def test_versions_in_words_are_those_of_the_files_contents(monkeypatch, tmp_path):
    option_reads._contents.cache_clear()
    before = option_reads._contents()
    (tmp_path / "more.py").write_text("x = 1")
    monkeypatch.setattr(option_reads, "own_folders", lambda: (str(tmp_path),))
    option_reads._contents.cache_clear()
    assert before != option_reads._contents()
    monkeypatch.undo()
    option_reads._contents.cache_clear()


def test_an_option_that_no_file_compares_is_named(tmp_path):
    compiled = al.compile(lambda x: x * 2, artifact_cache=True, dump=str(tmp_path / "dumps"))
    compiled(al.ones(2))
    with pytest.raises(al.UnsupportedError, match="save: .* has the option dump, a value that"):
        compiled.save(tmp_path / "made")


def timed(x: Any) -> Any:
    return x * time.time() if x.ndim == 2 else x * 2


@pytest.mark.rules("CACHE-15")
def test_entries_that_can_be_kept_are_saved_where_others_cannot(tmp_path):
    compiled = cached(timed)
    for x in (al.ones(3), al.ones(2, 3), al.ones(1, 1, 1)):
        compiled(x)
    number = compiled.entries[1].number
    with pytest.raises(al.UnsupportedError) as caught:
        compiled.save(tmp_path / "a")
    assert (
        f"save: entry {number} (f32[2, 3]) of timed cannot be kept, since timed calls time.time, "
        "expected one of which all reads can be compared in another process"
    ) == str(caught.value)
    assert ["save(path, partial=True) writes the 2 other entries."] == caught.value.__notes__
    with pytest.warns(UserWarning, match=rf"timed is saved without entry {number} \(f32\[2, 3\]\)"):
        (left_out,) = compiled.save(tmp_path / "a", partial=True) or ()
    assert (number, "f32[2, 3]", "timed calls time.time") == (
        left_out.number,
        left_out.arguments,
        left_out.reason,
    )
    ready = al.load(tmp_path / "a", timed, compiles=False)
    assert [2.0] * 3 == ready(al.ones(3)).tolist()
    with pytest.raises(al.GuardError, match="no entry of timed serves this call"):
        ready(al.ones(2, 3))
    assert () == cached_once(al.ones(3)).save(tmp_path / "b", partial=True)
    with pytest.raises(al.UnsupportedError, match="cannot be kept"):
        cached_once(al.ones(2, 3)).save(tmp_path / "c", partial=True)


def cached_once(x: Any) -> Any:
    compiled = cached(timed)
    compiled(x)
    return compiled


@pytest.mark.rules("CACHE-15", "CACHE-18")
def test_a_loaded_function_is_saved_and_shown_before_it_is_called(tmp_path):
    compiled = cached(weighted)
    compiled(al.ones(3))
    cold = saved(scaled, tmp_path / "a", al.ones(3, requires_grad=True))
    for function in (scaled, None):
        ready = al.load(tmp_path / "a", function)
        assert "scaled_forward" in str(ready.forward_graph)
        assert ready.backward_graph is not None and ready.meta.training
        ready.save(tmp_path / "b")
        ready(al.ones(3, requires_grad=True))
        ready.save(tmp_path / "c")
        assert cold == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    with pytest.raises(al.ArgumentError, match="scaled has no entry yet"):
        print(ready.source if ready.entries.clear() is None else "")


@pytest.mark.rules("CACHE-17")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_what_is_no_regular_file_is_an_error_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for load in (al.load, al.export.load):
        with pytest.raises(al.FormatError, match="pipe' is no regular file, expected one"):
            load(tmp_path / "pipe")
        for limit in (None, -1, 1.5):
            with pytest.raises(al.ArgumentError, match="argument 'max_bytes' is .*expected a numb"):
                load(__file__, max_bytes=limit)
