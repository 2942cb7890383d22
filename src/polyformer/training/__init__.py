"""The loop, batches, early stopping, checkpoints, and several processes that train one model."""
