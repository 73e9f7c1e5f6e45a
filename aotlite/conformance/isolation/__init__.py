"""Rules run in a child process, so that a crash or a hang of a library is a result, not the end."""
