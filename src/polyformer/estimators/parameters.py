"""Parameters of an estimator the way scikit-learn wants them, made from the settings that models declare.

Every name, default and sentence of help stands once, in the settings of the models and of the training. What nobody
asks for is left to the model, so that ``set_params(model="gcn")`` brings the defaults of that model with it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any, Self

from sklearn.base import BaseEstimator, clone

from polyformer.bases import basis_config, check_order, resolve_basis
from polyformer.errors import InvalidParameter, UnknownName
from polyformer.models import MODELS
from polyformer.parameter_checks import check_at_least
from polyformer.registry import suggest
from polyformer.runs.request import RunRequest
from polyformer.training.settings import TrainingSettings

__all__ = ["ModelParameters"]

_MODEL = "polyformer"
_OWN = {"model": _MODEL, "graph": None, "seed": 0, "device": "auto"}
"""Parameters of the estimator itself, with their defaults."""


def _defaults(model: Any) -> MappingProxyType[str, Any]:
    """Every setting of a model and of its training with its default; of PolyFormer for a model that there is not.

    Which model there is not is refused by ``fit``: scikit-learn expects that parameters can be set to anything.
    """
    return _defaults_of(model if isinstance(model, str) and model in MODELS else _MODEL)


@cache
def _defaults_of(model: str) -> MappingProxyType[str, Any]:
    return MappingProxyType(RunRequest(model=model).resolve_settings())


class ModelParameters(BaseEstimator):
    """The parameters of an estimator: which model, on which graph, and the settings of model and training.

    Copies of an estimator, by ``clone`` or ``copy``, share its graph.
    """

    def __init__(
        self, *, model: str = _MODEL, graph: Any = None, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self.model, self.graph, self.seed, self.device = model, graph, seed, device
        self._check_names(settings)
        for name, value in settings.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Python asks here only for what the instance does not have: a setting that nobody asked for, or a mistake.
        if not name.startswith("_") and not name.endswith("_"):
            defaults = _defaults(self.__dict__.get("model", _MODEL))
            if name in defaults:
                return defaults[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting of the model and of the training, checked: those asked for and the defaults of the model.

        ``fit`` takes other defaults where training nodes are few.
        """
        return self._resolve_settings(None)

    def _resolve_settings(self, num_train: int | None) -> dict[str, Any]:
        """Those settings with the defaults for so many training nodes."""
        if not isinstance(self.model, str):
            raise InvalidParameter(f"'model' must be a name. Got {type(self.model).__name__}. Try 'polyformer'.")
        MODELS[self.model]  # refuses a name that there is not
        asked = self._asked()
        self._check_names(asked)
        own_basis = {"basis": asked.pop("basis")} if "basis" in asked else {}
        settings = RunRequest(model=self.model, settings=asked).resolve_settings(num_train)
        for name, basis in own_basis.items():
            settings[name] = basis_config(resolve_basis(basis), check_order(settings["order"]))
        return settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The value of every parameter by name.

        Args:
            deep: has no effect; scikit-learn passes it.
        """
        return {name: getattr(self, name) for name in (*_OWN, *_defaults(self.model))}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; with another ``model``, settings that nobody asked for become those of that model."""
        model = params.get("model", self.model)
        self._check_names({name: value for name, value in params.items() if name not in _OWN}, model)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def _asked(self) -> dict[str, Any]:
        """The settings that somebody asked for."""
        public = {name: value for name, value in vars(self).items() if not (name.startswith("_") or name.endswith("_"))}
        return {name: value for name, value in public.items() if name not in _OWN}

    def _check_names(self, names: Any, model: Any = None) -> None:
        known = _defaults(self.model if model is None else model)
        for name in names:
            if name not in known:
                raise UnknownName(
                    f"Unknown setting '{name}' of the model '{self.model if model is None else model}'. "
                    f"{suggest(name, (*_OWN, *known))}"
                )

    def _check_seed(self) -> int:
        check_at_least(0, seed=self.seed)
        return int(self.seed)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # noqa: N803 - scikit-learn's name
        """The parameters that differ from their defaults."""
        defaults = {**_OWN, **_defaults(self.model)}
        values = {name: getattr(self, name) for name in _OWN} | self._asked()
        shown = (f"{name}={value!r}" for name, value in values.items() if not _is(value, defaults.get(name)))
        text = f"{type(self).__name__}({', '.join(shown)})"
        return text if len(text) <= N_CHAR_MAX else f"{text[: N_CHAR_MAX - 4]}...)"

    def __sklearn_clone__(self) -> Self:
        values = {name: getattr(self, name) for name in _OWN if name != "graph"} | self._asked()
        twin = type(self)(graph=self.graph, **{name: clone(value, safe=False) for name, value in values.items()})
        if hasattr(self, "_metadata_request"):
            twin._metadata_request = copy.deepcopy(self._metadata_request)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        for graph in self._graphs():
            memo[id(graph)] = graph
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(vars(self), memo))
        return twin

    def _graphs(self) -> Iterator[Any]:
        """What copies share with this estimator."""
        yield self.graph


def _is(value: Any, default: Any) -> bool:
    return value is default or (
        type(value) is type(default) and isinstance(value, str | int | float) and value == default
    )


def _signature() -> Signature:
    """``(*, model='polyformer', graph=None, …, order=10, …)``: what ``help`` and scikit-learn read."""
    types = {
        field.name: field.type for kind in (MODELS[_MODEL].settings_type, TrainingSettings) for field in fields(kind)
    }
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    for name, default in {**_OWN, **_defaults(_MODEL)}.items():
        parameters.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=types.get(name, Parameter.empty))
        )
    return Signature(parameters)


setattr(ModelParameters.__init__, "__signature__", _signature())  # noqa: B010 - a type checker knows no such attribute
