"""The loop, batches, early stopping, checkpoints and the run directory."""
