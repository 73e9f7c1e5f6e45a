"""The environment of a captured function: closures, globals, Modules, numbers, by access paths."""
