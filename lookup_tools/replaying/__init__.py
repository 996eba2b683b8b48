"""A text replayed against draft sources: its own tokens stand in for the model."""
