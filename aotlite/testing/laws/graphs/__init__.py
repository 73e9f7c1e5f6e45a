"""Laws of what works on graphs: passes, partitioners, backends; and of captured graphs."""
