"""PolyAttn, the block, PolyFormer and the ways tokens reach it: tensors in, tensors out."""
