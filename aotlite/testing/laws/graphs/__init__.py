"""Laws of passes, partitioners and backends, which work on graphs, and of captured graphs."""
