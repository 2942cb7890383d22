"""PolyFormer, and every other model by name, as scikit-learn estimators of nodes."""

from __future__ import annotations

from polyformer.estimators.classifier import PolyFormerClassifier
from polyformer.estimators.regressor import PolyFormerRegressor

__all__ = ["PolyFormerClassifier", "PolyFormerRegressor"]
