"""The search for settings by validation scores: the space, the study and its workers."""
