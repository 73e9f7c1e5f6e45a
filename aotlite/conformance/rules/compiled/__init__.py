"""Rules of compiled functions: their effects are those of the plain call."""
