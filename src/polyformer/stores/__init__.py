"""Where tokens live: a tensor in memory, or a directory of arrays with a manifest."""
