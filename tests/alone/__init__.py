"""Tests that measure time or memory: they run after all others, one at a time."""
