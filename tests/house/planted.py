"""A house of planted sources, which a check has to reject."""

from collections.abc import Mapping

from tests.house.house import House
from tests.house.sources import PRODUCT, ROOT, Source, Tree


def planted(files: Mapping[str, str], moves: Mapping[str, str] | None = None) -> House:
    """A house of these modules, `.__init__` at the end of a package's own."""
    sources = [Source(module, text) for module, text in files.items()]
    tree = Tree(ROOT)
    tree._files = {folder: {} for folder in PRODUCT}
    tree._files["aotlite"] = {source.module: source for source in sources}
    return House(tree, moves or {})
