"""Checks of types: how often a package says `Any`, and parameters that must not be."""

import ast
from collections.abc import Iterator

from tests.house.house import Finding, House, short
from tests.house.sources import Source

PARAMETERS = {"recorder", "captured", "plan", "both", "calling"}
"""What stages hand to each other: a reader has to know what it is."""


def anything(house: House) -> Iterator[Finding]:
    """Uses of `Any`, by package."""
    for package, sources in house.packages.items():
        for name, source in sources.items():
            count = uses(source)
            if count:
                yield Finding(short(package), f"{name}: {count}", count, name)


def uses(source: Source) -> int:
    """How often a module says `Any`, imports aside. Text of annotations counts."""
    names = sum(node.id == "Any" for node in source.of(ast.Name))
    members = sum(node.attr == "Any" for node in source.of(ast.Attribute))
    return names + members


def parameters(house: House) -> Iterator[Finding]:
    """Parameters under the names of stages' records that are annotated as anything."""
    for module, source in house.sources.items():
        for node in source.of(ast.arg):
            annotation = "" if node.annotation is None else ast.unparse(node.annotation)
            if node.arg in PARAMETERS and annotation.removeprefix("typing.") in ("Any", "object"):
                text = f"{module}:{node.lineno}: {node.arg}: {annotation}"
                yield Finding(module, text, module=module)
