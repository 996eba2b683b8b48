"""The jobs that make cache files: create, merge, update, prune to a size."""
