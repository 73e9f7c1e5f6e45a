"""Rules run in a process of their own: a crash or a hang of a library is a finding, not the end."""
