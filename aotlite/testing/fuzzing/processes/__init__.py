"""Child processes in which programs run, limited in time and memory, and replaced if they die."""
