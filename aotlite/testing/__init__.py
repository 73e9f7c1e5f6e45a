"""`aotlite.testing`: what aliasing rules are tested with."""
