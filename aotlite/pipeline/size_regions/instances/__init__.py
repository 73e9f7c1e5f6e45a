"""The instances of a region: how they share one text, and how many are kept."""
