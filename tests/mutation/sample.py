"""The sample: equally many mutants of each stratum, spread over its functions, the same for a seed.

A site is drawn first, each with the same chance, and then one of its mutants: else arithmetic,
which has eleven mutants a sign, would be most of the sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from tests.mutation.sites import Mutant, sites_of
from tests.mutation.targets import STRATA

A_FUNCTION = 3
"""The most mutants of one function."""


def sample(seed: int, each: int, strata: dict[str, tuple[str, ...]] | None = None) -> list[Mutant]:
    """`each` mutants of each stratum; fewer if its functions have fewer."""
    chosen = STRATA if strata is None else strata
    return [
        mutant
        for name, files in chosen.items()
        for mutant in _of_stratum(Random(f"{seed}:{name}"), files, each)
    ]


def _of_stratum(rng: Random, files: tuple[str, ...], each: int) -> Iterator[Mutant]:
    sites = [site for file in files for site in sites_of(file)]
    rng.shuffle(sites)
    met: Counter[tuple[str, str]] = Counter()
    found = 0
    for site in sites:
        place = site[0].file, site[0].function
        if found == each or met[place] == A_FUNCTION:
            continue
        mutant = next((m for m in rng.sample(site, len(site)) if m.source() is not None), None)
        if mutant is not None:
            met[place] += 1
            found += 1
            yield mutant
