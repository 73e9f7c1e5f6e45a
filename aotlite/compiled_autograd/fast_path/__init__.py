"""The fast path: matches a tape with a cached structure and runs it, without hashing its key."""
