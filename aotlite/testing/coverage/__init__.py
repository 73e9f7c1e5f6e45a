"""The table of cells that random programs are to fill, and counts of hits."""
