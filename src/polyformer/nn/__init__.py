"""PolyAttn, the block and PolyFormer as torch modules: tensors in, tensors out."""
