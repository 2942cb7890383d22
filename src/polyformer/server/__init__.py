"""The server: a trained run that answers over HTTP, and follows a graph that changes."""
