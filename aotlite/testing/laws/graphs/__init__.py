"""Laws of passes, partitioners, backends and captured graphs."""
