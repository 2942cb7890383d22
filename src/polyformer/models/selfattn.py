from __future__ import annotations

from polyformer.models.polyattn import PolyAttnModel

__all__ = ["SelfAttnModel"]


class SelfAttnModel(PolyAttnModel):
    r"""SelfAttn: PolyAttn with softmax in place of tanh, the paper's ablation.

    The weights of softmax are positive, so the sign of :math:`α_k^{(i)}` is that of the bias β_k, the same for all
    nodes. The search space is the paper's for PolyAttn; otherwise :class:`polyformer.models.polyattn.PolyAttnModel`.
    """

    activation = "softmax"
