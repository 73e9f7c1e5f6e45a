"""Rules of writes in place: through views, where destinations overlap, refused, counted."""
