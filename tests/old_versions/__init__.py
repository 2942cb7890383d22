"""Directories that earlier versions wrote, kept as they are: every later version must read them."""
