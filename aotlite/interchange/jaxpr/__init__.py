"""`aotlite.interchange.jaxpr`: jaxprs as graphs. Spec: `specs/jaxpr.md`."""

from aotlite.interchange.jaxpr.reader import from_jaxpr

__all__ = ["from_jaxpr"]
