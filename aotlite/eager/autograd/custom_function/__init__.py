"""Functions of users with a backward of their own."""
