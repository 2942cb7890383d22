"""The ways in which features and tokens reach a model: from memory, from disk, or projected before propagation."""
