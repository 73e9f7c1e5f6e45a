"""Where in the user's program a node comes from: source lines, names of calls, Modules and tags."""
