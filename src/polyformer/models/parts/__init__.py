"""What several models share: bases of models, layers, encodings of graphs."""
