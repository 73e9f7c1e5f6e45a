"""The code of a text is compiled once, for any name of its file."""

import pytest

from aotlite.ir import source_cache

TEXT = "def double(x):\n    return (lambda: x * 2)()\n"


@pytest.fixture
def compilations(monkeypatch):
    """The texts that Python compiles."""
    texts = []

    def noted(text, file, mode):
        texts.append(text)
        return compile(text, file, mode)

    monkeypatch.setattr(source_cache, "compile", noted, raising=False)
    source_cache._compiled.cache_clear()
    return texts


def test_a_text_is_compiled_once_and_stands_in_the_file_of_each(compilations):
    for file in ("<first>", "<second>"):
        scope = {}
        exec(source_cache.compiled(TEXT, file), scope)
        assert 6 == scope["double"](3)
        code = scope["double"].__code__
        inner = next(each for each in code.co_consts if hasattr(each, "co_filename"))
        assert [file, file] == [code.co_filename, inner.co_filename]
    assert [TEXT] == compilations


def test_a_long_text_is_not_kept(compilations):
    text = TEXT + "#" * source_cache.LONGEST
    for _ in range(2):
        source_cache.compiled(text, "<long>")
    assert [text, text] == compilations
