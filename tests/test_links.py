"""Links of README, docs and specs lead to files and headings that exist, and the index has all."""

import re
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("specs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
FOLDERS = "aotlite|ir|backends|tests|specs|docs|tools|examples|benchmarks"
NAMED = re.compile(rf"`((?:{FOLDERS})/[\w/.-]+\.\w+|\w+\.py)`")
"""A file that a page names: its path from the root, or a name without one."""
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def relative(path):
    return str(path.relative_to(ROOT))


def anchors(text):
    """The anchors that GitHub gives the headings of a page, in order."""
    found = []
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        taken = (slug if n == 0 else f"{slug}-{n}" for n in count())
        found.append(next(each for each in taken if each not in found))
    return found


def links(text):
    """The targets of a page's links, those in code aside."""
    return LINK.findall(CODE.sub("", FENCE.sub("", text)))


def broken(page, text):
    """The links of a page that lead nowhere, each with the reason."""
    for target in links(text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if name and not path.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(text if path == page else path.read_text("utf-8")):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_of_a_page_lead_to_files_and_headings(page):
    assert [] == list(broken(page, page.read_text("utf-8")))


def missing(text):
    """The files that a page names and that are not there; a name says nothing without a folder."""
    return [name for name in NAMED.findall(FENCE.sub("", text)) if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", [p for p in PAGES if "decisions" not in p.parts], ids=relative)
def test_files_that_a_page_names_exist(page):
    assert [] == missing(page.read_text("utf-8"))


# ------------------------------------------------------------------------------- the check itself
HEADINGS = """# One `two`: three (four)
```sh
# no heading
```
## GEN-1 · Nobody can tell
## [A link](there.md), and more
## Again
### Again
"""


def test_anchors_are_those_that_github_gives():
    expected = ["one-two-three-four", "gen-1--nobody-can-tell", "a-link-and-more"]
    assert [*expected, "again", "again-1"] == anchors(HEADINGS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a](nowhere.md)", "nowhere.md: no such file"),
        ("[a](README.md#nothing)", "README.md#nothing: no such heading"),
        ("# Here\n[a](#there)", "#there: no such heading"),
        ("# Here\n[a](#here) [b](https://example.org/#x) `[c](d)`", None),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text, reason):
    assert [reason] * (reason is not None) == list(broken(ROOT / "PAGE.md", text))


def test_a_file_that_is_named_and_missing_is_found():
    text = "`aotlite/api.py` is not `ir/nowhere.py`, and `aotlite.ir` and `f.py:loss` are no files"
    assert ["ir/nowhere.py", "gone.py"] == missing(f"{text}; `gone.py`")


# ------------------------------------------------------------------------------------- the indexes
def unlisted(folder):
    """The pages of a folder that its README does not link."""
    index = links((folder / "README.md").read_text("utf-8"))
    linked = {(folder / target.partition("#")[0]).resolve() for target in index}
    linked.add((folder / "README.md").resolve())
    return [relative(each) for each in folder.rglob("*.md") if each.resolve() not in linked]


def test_every_guide_is_in_the_index():
    assert [] == unlisted(ROOT / "docs")


def test_a_page_that_the_index_lacks_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_links.ROOT", tmp_path)
    (tmp_path / "README.md").write_text("[one](one.md#here)", "utf-8")
    (tmp_path / "one.md").write_text("# Here", "utf-8")
    assert [] == unlisted(tmp_path)
    (tmp_path / "two.md").write_text("# There", "utf-8")
    assert ["two.md"] == unlisted(tmp_path)
