"""FX's words for graphs, and passes that are written in them.

`reinplace` turns pure ops back into writes where nothing can see it.
"""

from aotlite.fx.reinplace import Refusal, Reinplaced, reinplace, reinplaced

__all__ = ["Refusal", "Reinplaced", "reinplace", "reinplaced"]
