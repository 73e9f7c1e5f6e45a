"""The adapters that are shipped; each module is imported only when its library is asked."""
