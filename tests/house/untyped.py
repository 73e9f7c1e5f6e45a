"""Checks of types: the uses of `Any` in a package, and parameters that must not be `Any`."""

import ast
from collections.abc import Iterator

from tests.house.house import Finding, House, short
from tests.house.sources import Source

PARAMETERS = {"recorder", "captured", "plan", "both", "calling"}
"""The parameters for stages' records, which need a type."""


def anything(house: House) -> Iterator[Finding]:
    """Uses of `Any`, by package."""
    for package, sources in house.packages.items():
        for name, source in sources.items():
            count = uses(source)
            if count:
                yield Finding(short(package), f"{name}: {count}", count, name)


def uses(source: Source) -> int:
    """The uses of `Any` in a module without imports; annotations in strings count."""
    names = sum(node.id == "Any" for node in source.of(ast.Name))
    members = sum(node.attr == "Any" for node in source.of(ast.Attribute))
    return names + members


def parameters(house: House) -> Iterator[Finding]:
    """Parameters, variables and fields named as stages' records that are annotated as `Any`."""
    for module, source in house.sources.items():
        for node in source.of(ast.arg, ast.AnnAssign):
            annotation = "" if node.annotation is None else ast.unparse(node.annotation)
            name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            if name in PARAMETERS and annotation.removeprefix("typing.") in ("Any", "object"):
                text = f"{module}:{node.lineno}: {name}: {annotation}"
                yield Finding(module, text, module=module)
