"""Rules of memory that views share: values, geometry, dtypes, indexing, copies, exchange."""
