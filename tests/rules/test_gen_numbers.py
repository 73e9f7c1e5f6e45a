"""GEN-9: every compilation has a number, by which entries, dumps and tracebacks are told apart."""

import traceback

import pytest

import aotlite as al

pytestmark = pytest.mark.rules("GEN-9")


def double(x):
    return (x * 2).exp(), x.sum()


def compiled_for(*shapes, **options):
    compiled = al.compile(double, **options)
    for shape in shapes:
        compiled(al.ones(*shape).requires_grad_())
    return compiled


def test_numbers_only_grow():
    """Across functions: one after the other, whichever is compiled."""
    first, second = compiled_for((2,), (3,)), compiled_for((2,))
    numbers = [entry.number for entry in (*first.entries, *second.entries)]
    assert sorted(set(numbers)) == numbers


def test_a_failed_compilation_takes_a_number_too():
    """Its dump has it: the next one may not have the same."""
    (before,) = (entry.number for entry in compiled_for((2,)).entries)
    with pytest.raises(al.UnsupportedError):
        al.compile(lambda x: x.item())(al.ones(1))
    (after,) = (entry.number for entry in compiled_for((2,)).entries)
    assert before + 2 == after


def test_dumps_have_the_number_of_the_entry(tmp_path):
    compiled = compiled_for((2,), (3,), dump=str(tmp_path))
    expected = {entry.number for entry in compiled.entries}
    assert expected == {int(path.name.partition("_")[0]) for path in tmp_path.iterdir()}


class Broken(Exception):
    pass


def files_of(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_at_run_time_shows_the_number():
    """The file name of the run-time function is in the traceback of whatever is raised inside."""

    def backend(graph):
        def run(arrays):
            raise Broken

        return run

    compiled = al.compile(double, backend=backend)
    with pytest.raises(Broken) as caught:
        compiled(al.ones(2))
    (entry,) = compiled.entries
    assert f"<aotlite double {entry.number}>" in files_of(caught.value)


def test_an_error_in_the_backward_shows_the_number_and_what_is_absent():
    compiled = compiled_for((2,))
    (entry,) = compiled.entries
    for absent in ("", " without output_1"):
        results = compiled(al.ones(2).requires_grad_())
        loss = results[0].sum() if absent else results[0].sum() + results[1]
        loss.backward()
        names = [f"<aotlite double_backward {entry.number} backward{absent}>"]
        assert names == [name for name in cached() if name in names]


def cached():
    import linecache

    return list(linecache.cache)
