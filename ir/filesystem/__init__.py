"""Safe writing where other users can write too: trust in paths, and atomic files."""
