"""Processes in which programs run: started, contained, asked, replaced."""
