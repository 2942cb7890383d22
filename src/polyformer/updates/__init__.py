"""Graphs that change: tokens that follow, graph directories with a journal, tables of changes."""
