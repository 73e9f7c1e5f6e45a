"""The table of cells that random programs have to fill, and counts of hits."""
