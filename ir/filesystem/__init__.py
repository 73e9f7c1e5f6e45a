"""Files and folders that other users may reach: who can turn a path, and files that are whole or
absent."""
