"""Laws of devices: on a GPU, a model, a run and an estimator compute what they compute on the CPU.

No GPU is needed: see :mod:`tests.pretended_device`. What only a real GPU can show, such as speed, is not tested here.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import polyformer as pf
from polyformer import devices
from polyformer.datasets import load_dataset
from polyformer.errors import InvalidParameter, TrainingInterrupted
from polyformer.inputs.feature_matrix import FeatureMatrix
from polyformer.inputs.streamed_tokens import StreamedInput
from polyformer.inputs.token_inputs import StoredInput
from polyformer.models import MODELS, NodeWiseFilter, Workload
from polyformer.operators import Operator
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.tokens import compute_tokens, write_tokens
from polyformer.training.torchrun import backend
from tests.contracts.test_models import GRAPH, build, settings_of, sum_of_squares
from tests.listener import Listener
from tests.pretended_device import DeviceFault, PretendedTensor, pretended_device

NODES = torch.arange(0, 40, 3)
DATA = "minefield:width=12,height=10"


def agree(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.shape == other.shape
    assert torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(one.abs().max()) + 1e-5)


def outputs_and_gradients(name: str, place: torch.device, **changes: Any) -> list[torch.Tensor]:
    """Outputs without gradients, and the gradients of a step, on the CPU."""
    model = build(name, None, **changes).to(place)
    model.bind(GRAPH, Workload(None, GRAPH.num_nodes))
    with torch.no_grad():
        outputs = model.eval()(NODES.to(place))
    assert outputs.device == place
    torch.manual_seed(1)
    model.train()
    model.accumulate(NODES.to(place), sum_of_squares)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(gradient.device == place for gradient in gradients)
    return [tensor.cpu() for tensor in (outputs, *gradients)]


@pytest.mark.parametrize("kind", ["cuda", "mps"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_the_same_on_a_device(name: str, kind: str) -> None:
    on_cpu = outputs_and_gradients(name, torch.device("cpu"))
    with pretended_device(kind) as place:
        on_device = outputs_and_gradients(name, place)
    assert len(on_cpu) == len(on_device)
    agree(on_cpu[0], on_device[0])
    if name != "nodeformer":  # draws Gumbel noise in training, on the device where it trains
        for one, other in zip(on_cpu[1:], on_device[1:], strict=True):
            agree(one, other)


@pytest.mark.parametrize("kind", ["cuda", "mps"])
@pytest.mark.parametrize("changes", [{"token_route": "projected", "basis": "bernstein"}, {"basis": "optimal"}])
def test_every_route_and_basis_computes_the_same_on_a_device(changes: dict[str, Any], kind: str) -> None:
    on_cpu = outputs_and_gradients("polyformer", torch.device("cpu"), **changes)
    with pretended_device(kind) as place:
        on_device = outputs_and_gradients("polyformer", place, **changes)
    for one, other in zip(on_cpu, on_device, strict=True):
        agree(one, other)


@pytest.mark.parametrize("free_bytes", [1 << 40, 0], ids=["fits", "does not fit"])
def test_streamed_tokens_and_a_full_device(free_bytes: int, tmp_path: Path) -> None:
    write_tokens(GRAPH, tmp_path / "tokens", "chebyshev", 4)
    stored = pf.open_tokens(tmp_path / "tokens")
    nodes = torch.arange(40)
    with pretended_device(free_bytes=free_bytes) as place:
        like = torch.zeros(1).to(place)
        in_memory = StoredInput(compute_tokens(GRAPH, "chebyshev", 4))
        streamed = StreamedInput(stored, 1 << 24)
        agree(in_memory.rows(nodes.to(place), like).cpu(), streamed.rows(nodes.to(place), like).cpu())
        assert isinstance(in_memory.tokens, PretendedTensor) == bool(free_bytes)


@pytest.mark.parametrize("free_bytes", [1 << 40, 0], ids=["fits", "does not fit"])
@pytest.mark.parametrize("sparse", [True, False])
def test_products_on_the_device_equal_those_of_the_kernel(sparse: bool, free_bytes: int) -> None:
    random = np.random.default_rng(0)
    dense = random.standard_normal((40, 9)).astype(np.float32) * (random.random((40, 9)) < 0.3)
    features = FeatureMatrix(sp.csr_matrix(dense) if sparse else dense)
    operator = DifferentiableOperator(Operator(GRAPH, self_loops=True))
    weight = torch.from_numpy(random.standard_normal((9, 5)).astype(np.float32))
    mixing = random.standard_normal((4, 4))

    def results(place: torch.device) -> list[torch.Tensor]:
        w = weight.clone().to(place).requires_grad_()
        projected = features.product(w)
        tokens = operator.chebyshev(projected, 3, NODES.to(place))
        total = tokens.square().sum() + operator.tokens(projected, mixing).square().sum()
        (total + operator.product(projected).square().sum()).backward()
        assert w.grad is not None
        assert w.grad.device == tokens.device == place
        return [tokens.detach().cpu(), w.grad.cpu()]

    on_cpu = results(torch.device("cpu"))
    with pretended_device(free_bytes=free_bytes) as place:
        operator._propagators.clear()
        for one, other in zip(on_cpu, results(place), strict=True):
            agree(one, other)
    assert bool(operator._propagators) == (not free_bytes), "the kernel of the CPU works only where P does not fit"


def request(device: str, name: str = "polyformer", **changes: Any) -> RunRequest:
    settings = settings_of(name, **changes) | {"epochs": 3, "batch_size": 30, "lr": 0.01}
    return RunRequest(data=DATA, model=name, device=device, settings=settings)


@pytest.mark.parametrize("name", ["polyformer", "polyattn", "cascade", "gcn"])
def test_a_run_on_a_device_goes_on_and_gives_the_same(name: str, tmp_path: Path) -> None:
    execute_run(request("cpu", name), tmp_path / "cpu")
    epochs: list[int] = []
    listener = Listener(on_epoch=lambda record: epochs.append(record.epoch), stop=lambda: len(epochs) == 2)
    with pretended_device():
        with pytest.raises(TrainingInterrupted):
            execute_run(request("cuda", name), tmp_path / "there", reporter=listener)
        execute_run(request("cuda", name), tmp_path / "there", resume=True)
        there = pf.Run.open(tmp_path / "there")
        assert next(there.model("auto").parameters()).device.type == "cuda"
        assert next(there.model().parameters()).device.type == "cpu"
        on_device = there.predict(device="cuda")
        assert np.allclose(on_device, there.predict(device="cpu"), atol=1e-5)
        if isinstance(there.model(), NodeWiseFilter):
            kinds = there.filters(device="cuda", clusters=2)
            assert np.allclose(kinds.responses, there.filters(device="cpu", clusters=2).responses, atol=1e-4)
    assert np.allclose(on_device, pf.Run.open(tmp_path / "cpu").predict(), atol=1e-3)


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_values_are_learned_on_a_device(kind: str) -> None:
    """Labels far from zero leave no digits in float32, and not every device has float64."""
    graph = load_dataset(DATA).graph
    values = 1e6 + np.random.default_rng(0).standard_normal(graph.num_nodes)
    options = {"order": 2, "hidden_channels": 8, "heads": 1, "epochs": 2, "dropout": 0.0}
    on_cpu = pf.PolyFormerRegressor(device="cpu", **options).fit(graph, values).predict(graph)
    with pretended_device(kind):
        there = pf.PolyFormerRegressor(device=kind, **options).fit(graph, values).predict(graph)
    assert np.allclose(on_cpu, there, atol=1e-2)


def test_an_estimator_is_loaded_onto_the_device(tmp_path: Path) -> None:
    task = load_dataset(DATA)
    with pretended_device():
        estimator = pf.PolyFormerClassifier(order=2, hidden_channels=8, epochs=2, device="cuda")
        estimator.fit(task.graph, task.labels, train=task.splits[0].train)
        there = estimator.predict_proba(task.graph)
        responses = estimator.filter_response([0, 1], [0.0, 1.0, 2.0])
        copied = pickle.loads(pickle.dumps(estimator))
        assert np.allclose(there, copied.predict_proba(task.graph), atol=1e-5)
        estimator.save(tmp_path / "saved")
        loaded = pf.PolyFormerClassifier.load(tmp_path / "saved")
        assert next(loaded._fitted().model.parameters()).device.type == "cuda"
        assert np.allclose(there, loaded.predict_proba(task.graph), atol=1e-6)
    without_gpu = pf.PolyFormerClassifier.load(tmp_path / "saved")
    assert np.allclose(there, without_gpu.predict_proba(task.graph), atol=1e-5)
    assert np.allclose(responses, without_gpu.filter_response([0, 1], [0.0, 1.0, 2.0], graph=task.graph), atol=1e-4)


def test_new_nodes_are_predicted_on_a_device(tmp_path: Path) -> None:
    run = pf.train(DATA, out=tmp_path / "run", order=2, hidden_channels=8, epochs=1)
    features, edges = np.ones((1, run.task().graph.num_features), np.float32), [[120, 3]]
    with pretended_device():
        there = run.predict_new(features, edges, device="cuda")
    assert np.allclose(there, run.predict_new(features, edges, device="cpu"), atol=1e-5)


def test_slices_suit_the_device() -> None:
    cpu = torch.device("cpu")
    assert devices.rows_per_slice(cpu) == 1024
    assert devices.rows_per_slice(torch.device("cuda", 0)) > 1024
    assert devices.rows_per_slice(cpu, 1 << 20) == 128
    assert devices.rows_per_slice(torch.device("cuda", 0), 1 << 16) == 1 << 14


def test_the_cpu_that_was_asked_for_takes_no_gpu() -> None:
    with pretended_device():
        assert backend("cpu") == "gloo"
        assert backend("auto") == "cpu:gloo,cuda:nccl"
        assert devices.choose_device("cpu").type == "cpu"
        assert devices.choose_device("auto") == torch.device("cuda", 0)
    with pytest.raises(InvalidParameter, match="no GPU of Apple"):
        devices.choose_device("mps")


def test_the_pretended_device_refuses_what_a_gpu_refuses() -> None:
    with pretended_device("cuda") as place:
        there, here = torch.ones(3).to(place), torch.ones(3)
        for fault in (
            there.numpy,
            there.data_ptr,
            lambda: there + here,
            lambda: torch.cat([there, here]),
            lambda: here[torch.tensor([1]).to(place)],
            lambda: np.asarray(there),
        ):
            with pytest.raises(DeviceFault):
                fault()
        assert there.sum() + torch.tensor(1.0) == 4  # torch admits a single number of the CPU
    with pretended_device("mps") as place, pytest.raises(DeviceFault, match="float64"):
        torch.ones(3).to(place).double()


@pytest.mark.parametrize("module", [pf.PolyAttn(8, order=4), pf.PolyFormer(8, 16, 3, order=4)])
def test_modules_work_on_tensors_without_values(module: torch.nn.Module) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        outputs = module(mode.from_tensor(torch.zeros(5, 5, 8)))
        assert outputs.shape[0] == 5
        outputs.sum().backward()
