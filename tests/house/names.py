"""Checks of names: no two public classes of one name; module names use words of the field."""

import ast
import re
from collections.abc import Iterator, Set
from pathlib import Path

from tests.house.house import Finding, House
from tests.house.plan import plan

GLOSSARY = Path("specs", "glossary.md")


def classes(house: House) -> Iterator[Finding]:
    """Public classes whose name another one has, in the product or in tests.

    `aotlite.testing` may share a name with the product.
    """
    found: dict[str, list[str]] = {}
    for module, source in house.sources.items():
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                key = node.name if module in house.library else f"{node.name} (testing)"
                found.setdefault(key, []).append(module)
    for key, modules in found.items():
        if len(modules) > 1:
            yield from (Finding(key, f"{module}:{key}", module=module) for module in modules)


def words(house: House) -> Iterator[Finding]:
    """Words in module names that are neither in the glossary nor among the field's words."""
    known = glossary((house.tree.root / GLOSSARY).read_text("utf-8")) | set(plan()["words"].split())
    for module in house.sources:
        for word in words_of(module):
            if not is_known(word, known):
                yield Finding(word, module, module=module)


def words_of(module: str) -> list[str]:
    """The words of a module's last name, without a stage's number."""
    parts = module.rpartition(".")[2].split("_")
    return [part for part in parts if part and not re.fullmatch(r"s\d+", part)]


def glossary(page: str) -> set[str]:
    """The words of the terms in the glossary's table."""
    return {word for term in glossary_terms(page) for word in re.findall(r"[a-z]+", term)}


def glossary_terms(page: str) -> Iterator[str]:
    rows = (line for line in page.splitlines() if line.startswith("| "))
    return (row.split("|")[1].strip().lower() for row in rows)


def is_known(word: str, known: Set[str]) -> bool:
    """Whether a word, or the word that it is a plural of, is known."""
    return any(each in known for each in singulars(word))


def singulars(word: str) -> Iterator[str]:
    yield word
    for ending, instead in (("ies", "y"), ("es", ""), ("s", "")):
        if word.endswith(ending):
            yield word.removesuffix(ending) + instead
