"""Public file formats of graphs, read into arrays for data sets and imports."""
