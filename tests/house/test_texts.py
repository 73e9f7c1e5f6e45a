"""Each rule of texts rejects a breach."""

from pathlib import Path

import pytest

from tests.house import pending, texts


@pytest.mark.parametrize(("folder", "limit"), [("ir", 500), ("aotlite", 500), ("tests", 700)])
def test_file_past_the_limit_is_found(folder, limit):
    path = Path(folder, "x.py")
    assert [] == list(texts.is_too_long(path, "\n" * limit))
    assert 1 == len(list(texts.is_too_long(path, "\n" * (limit + 1))))


def test_mark_of_unfinished_work_is_found():
    for mark in ("TO" + "DO", "FIX" + "ME"):
        assert 1 == len(list(texts.is_unfinished(Path("x.py"), f"x = 1\n# {mark}: y")))
    assert [] == list(texts.is_unfinished(Path("x.md"), "nothing is left to do"))


def test_name_of_a_registry_is_found():
    for line in ("--extra-index" + "-url=x", "https://py" + "pi.org/simple"):
        assert 1 == len(list(texts.names_a_registry(Path("x.cfg"), line)))
    assert [] == list(texts.names_a_registry(Path("x.cfg"), "https://doi.org/1"))


def test_page_is_no_file_of_code_and_may_be_long():
    assert [] == list(texts.is_too_long(Path("docs", "x.md"), "\n" * 701))


# In parts, so that this file says of nothing that it is missing.
@pytest.mark.parametrize(
    "text",
    ["Hooks are not " + "yet\nbuilt.", "Not " + "built yet.", "It waits " + "for the cpu backend."],
)
def test_remark_that_something_is_missing_is_found(text):
    assert 1 == len(list(pending.says_not_built(Path("specs", "x.md"), text)))
    assert [] == list(pending.says_not_built(pending.LIST, text))


def test_text_of_what_is_there_is_accepted():
    text = "An array that is not written is left alone, whatever waits for the device."
    assert [] == list(pending.says_not_built(Path("specs", "x.md"), text))


def test_list_of_what_is_missing_names_nothing_of_the_glossary():
    said = "Not " + "built yet: quantum tensors, wrapper subclasses, and synthetic bases."
    found = list(pending.lists_what_is_built(pending.LIST, said))
    assert ["wrapper subclasses", "synthetic bases"] == [
        item
        for item in ("quantum tensors", "wrapper subclasses", "synthetic bases")
        if item in " ".join(found)
    ]
