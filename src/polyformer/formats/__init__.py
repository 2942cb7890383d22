"""Public file formats of graphs, read into arrays: for the data sets that come in them and for imports."""
