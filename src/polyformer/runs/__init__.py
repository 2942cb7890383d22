"""A run: what was asked, what came of it, and what can be done with the model that it left."""
