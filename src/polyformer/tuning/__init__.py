"""Search for settings on one split's validation nodes: the space, the study, its workers."""
