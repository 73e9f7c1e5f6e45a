"""Rules of compiled functions: a compiled call has the effects of the plain call."""
