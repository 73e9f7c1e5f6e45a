"""Regions that the user has marked: equal calls are traced once. Spec: `specs/equal_regions.md`."""
