"""The laws of wrapper subclasses: `subclass_laws` tests any class by them.

    kinds             the meanings of classes
    wrapper_laws      the laws of ops: rebuilding, meaning, gradients, writes, views
    wrapper_programs  random programs on wrappers, and their differences
    nested_wrappers   pairs inside and outside of a class
    wrapper_models    the meanings of the shipped classes, and of nestings of them
    api               `subclass_laws`

Spec: specs/testing.md.
"""

from aotlite.testing.subclasses.api import CLAIMS, subclass_laws
from aotlite.testing.subclasses.kinds import Meanings, SubclassKind
from aotlite.testing.subclasses.wrapper_models import SHIPPED, drawn_nesting, making
from aotlite.testing.subclasses.wrapper_programs import (
    Making,
    Refused,
    compiled_differences,
    draw_program,
    eager_differences,
)

__all__ = [
    "CLAIMS",
    "SHIPPED",
    "Making",
    "Meanings",
    "Refused",
    "SubclassKind",
    "compiled_differences",
    "draw_program",
    "drawn_nesting",
    "eager_differences",
    "making",
    "subclass_laws",
]
