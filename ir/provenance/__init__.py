"""Where in the user's program a node comes from: its line, the called name, its Module and tags."""
