"""The systems that PolyFormer is compared with, one file each, all under the training contract that it obeys."""
