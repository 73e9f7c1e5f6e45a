"""What a compilation read, in words that mean the same in another process."""
