"""CACHE-6: a cached run is the fresh run, whatever changed; what was not read makes no miss."""

import pytest

from aotlite.artifacts import recording
from aotlite.artifacts.reads import read_set, value_images
from tests.artifacts import changes

FEW = 30
"""Changes in the gate; `python -m tests.artifacts.changes` runs any number."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))


@pytest.mark.rules("CACHE-6", "CACHE-7", "CACHE-8", "CACHE-9", "CACHE-10")
def test_after_any_change_a_cached_run_is_the_fresh_run():
    figures = changes.run(FEW, seed=1, each=10)
    assert [] == figures.wrong
    assert FEW == figures.changes
    assert figures.kept == figures.programs
    assert figures.read_missed > 10 and figures.unread > 1
    assert 0 == figures.unread_missed


def test_the_law_finds_a_cache_that_takes_all_floats_for_one(monkeypatch):
    monkeypatch.setitem(value_images._PLAIN, float, lambda value: "float")
    assert changes.run(20, seed=3, each=10).wrong


def test_the_law_finds_a_cache_that_reads_no_code(monkeypatch):
    monkeypatch.setattr(value_images, "digest_of", lambda code: "one")
    monkeypatch.setattr(read_set, "digest_of", lambda code: "one")
    monkeypatch.setattr(recording, "digest_of", lambda code: "one")
    assert changes.run(20, seed=3, each=10).wrong


def test_the_law_finds_a_cache_for_which_functions_of_libraries_are_alike(monkeypatch):
    monkeypatch.setattr(value_images, "library_name_of", lambda function: "one")
    assert changes.run(20, seed=4, each=10).wrong
