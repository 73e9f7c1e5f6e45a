"""Kept entries as files: their documents, the folder, the outcomes of look-ups."""
