"""What a captured function reaches outside its arguments: closures, globals, modules, numbers."""
