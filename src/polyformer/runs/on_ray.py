"""A run on a Ray cluster: Ray Train places the workers, joins them, and starts them again when one is lost."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from polyformer.cluster import Node, connected, cpus_per_task, nodes
from polyformer.errors import InvalidParameter, PolyformerError, WorkerLost
from polyformer.machine import usable_memory
from polyformer.metrics import METRICS
from polyformer.reporter import SILENT, EpochRecord, Reporter
from polyformer.runs.directory import removing_failed_start
from polyformer.runs.execution import execute_run, finished_result
from polyformer.runs.preparation import prepare_run
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.training.distributed import PATIENCE, ProcessGroup
from polyformer.training.early_stopping import EarlyStopping
from polyformer.training.loop import CHECKPOINT_SECONDS

__all__ = ["MAX_FAILURES", "cpus_per_worker", "execute_on_ray"]

MAX_FAILURES = 3
"""How often the workers are started again because one of them was lost."""

_KEPT_CHECKPOINTS = 2
_POLL_SECONDS = 0.5


def cpus_per_worker(workers: int, nodes: Sequence[Node]) -> int:
    """The most CPUs that each of the workers can have on these nodes.

    >>> cpus_per_worker(3, [Node(8, 0), Node(2, 0)])
    2
    """
    cpus = cpus_per_task(workers, nodes)
    if cpus:
        return cpus
    have = sum(node.cpus for node in nodes)
    raise InvalidParameter(f"'--workers' must be at most {have}, the CPUs of the Ray cluster. Got {workers}.")


def execute_on_ray(
    request: RunRequest,
    out: Path,
    *,
    workers: int,
    address: str | None = None,
    resume: bool = False,
    reporter: Reporter = SILENT,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> dict[str, Any]:
    """Train as :func:`execute_run` does, with several workers on a Ray cluster; ``out`` lies where all can write.

    Every checkpoint is registered with Ray Train; after a loss all workers go on from the last that was.

    Args:
        address: address of the cluster; see :func:`polyformer.cluster.connected`.
        checkpoint_seconds: how often a checkpoint is written and registered.
    """
    if workers < 1:
        raise InvalidParameter(f"'--workers' must be 1 or more. Got {workers}.")
    out = out.resolve()
    result = finished_result(out) if resume else None
    if result is not None:
        return result
    with removing_failed_start(out), connected(address):
        cpus, gpus = cpus_per_worker(workers, nodes()), _uses_gpus(request.device, workers)
        if request.memory is None and not resume:
            request = replace(request, memory=min(usable_memory(), *(node.memory for node in nodes())))
        run = prepare_run(request, out, resume=resume, reporter=reporter, num_workers=workers)[0]
        with run.locked():  # who trains there already is known at once; the first worker takes the lock
            pass
        # The workers read the data for themselves; they may not see the preset file, so they are told its settings.
        worker_request = replace(run.request, data_root=request.data_root, device=request.device)
        job = _Job(run, worker_request, workers, cpus, gpus, checkpoint_seconds)
        try:
            return job.follow(reporter)
        finally:
            job.clean()


class _Job:
    """One call of Ray Train: started in a thread, so that this one can show how far it is and hear Ctrl-C."""

    def __init__(self, run: Run, request: RunRequest, workers: int, cpus: int, gpus: bool, seconds: float) -> None:
        self.run, self.workers, self.cpus, self.gpus = run, workers, cpus, gpus
        root = None if request.data_root is None else str(Path(request.data_root).resolve())
        request = replace(request, device="cuda" if gpus else "cpu", data_root=root)
        self.config = {"request": asdict(request), "out": str(run.path), "cpus": cpus, "seconds": seconds}
        self.stop = _stop_file(run.path)
        self.outcome: dict[str, Any] | None = None
        self.failure: BaseException | None = None

    def follow(self, reporter: Reporter) -> dict[str, Any]:
        """Wait for the end; epochs are read from the run directory as they come."""
        self.clean()  # what a job that was killed has left
        larger_is_better = METRICS[self.run.card.metric].larger_is_better
        thread, shown = threading.Thread(target=self._fit, name="polyformer-ray", daemon=True), len(self.run.metrics)
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            shown = _show(self.run.metrics, shown, reporter, larger_is_better)
            if reporter.should_stop():
                self.stop.touch()
        if self.failure is not None:
            raise WorkerLost(
                f"The workers were lost more than {MAX_FAILURES} times, or Ray Train failed ({_reason(self.failure)}). "
                f"Continue with polyformer train --resume --out {self.run.path} --engine ray --workers {self.workers}"
            ) from self.failure
        assert self.outcome is not None
        if "error" in self.outcome:
            raise self.outcome["error"]
        return dict(self.outcome["result"])

    def clean(self) -> None:
        """Leave what every run directory holds, and nothing else."""
        self.stop.unlink(missing_ok=True)
        shutil.rmtree(self.run.path / "ray", ignore_errors=True)

    def _fit(self) -> None:
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        try:
            trainer = TorchTrainer(
                _work,
                train_loop_config=self.config,
                torch_config=TorchConfig(
                    backend="cpu:gloo,cuda:nccl" if self.gpus else "gloo", timeout_s=int(PATIENCE.total_seconds())
                ),
                scaling_config=ScalingConfig(
                    num_workers=self.workers,
                    use_gpu=self.gpus,
                    resources_per_worker={"CPU": self.cpus} | ({"GPU": 1} if self.gpus else {}),
                ),
                run_config=RunConfig(
                    name="ray",
                    storage_path=str(self.run.path),
                    worker_runtime_env={"env_vars": _loopback()},
                    failure_config=FailureConfig(max_failures=MAX_FAILURES, controller_failure_limit=MAX_FAILURES),
                    checkpoint_config=CheckpointConfig(num_to_keep=_KEPT_CHECKPOINTS),
                ),
            )
            self.outcome = trainer.fit().return_value
        except BaseException as error:
            self.failure = error


class _Registry:
    """Checkpoints of the run directory, registered with Ray Train, which copies them."""

    def __init__(self, run: Run, rank: int, seconds: float) -> None:
        from ray import train

        self.run, self.rank, self.seconds = run, rank, seconds
        kept = train.get_checkpoint()
        self.latest = None if kept is None else Path(kept.path) / run.checkpoint.name

    def register(self, epoch: int) -> None:
        from ray import train

        own = train.Checkpoint.from_directory(self.run.checkpoint.parent) if self.rank == 0 else None
        train.report({"epoch": epoch}, checkpoint=own)


def _work(config: dict[str, Any]) -> dict[str, Any]:
    """What every worker does. An error of ours ends the run; any other, such as a lost peer, makes Ray start again."""
    torch.set_num_threads(config["cpus"])
    group, run = ProcessGroup(), Run(config["out"])
    registry = _Registry(run, group.rank, config["seconds"])
    try:
        with group.watched():
            result = execute_run(
                RunRequest(**config["request"]),
                run.path,
                resume=True,
                reporter=_StopWithFile(_stop_file(run.path)),
                workers=group,
                registry=registry,
                keep_freed_memory=True,  # a process that Ray started to train
            )
    except WorkerLost:
        raise
    except PolyformerError as error:
        return {"error": error}
    return {"result": result}


class _StopWithFile(Reporter):
    """Wants the work to stop once a file is there."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def should_stop(self) -> bool:
        return self._file.exists()


def _stop_file(run: Path) -> Path:
    """Its presence asks the workers to stop after their epoch."""
    return run / ".stop"


def _loopback() -> dict[str, str]:
    """What keeps the workers of a cluster on this machine alone from offering ports to other machines."""
    import ray

    local = all(node["NodeManagerAddress"] == "127.0.0.1" for node in ray.nodes() if node["Alive"])
    return {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"} if local else {}


def _uses_gpus(device: str, workers: int) -> bool:
    """Whether each worker gets a GPU: where that is asked for, or where there are enough."""
    import ray

    have = int(ray.cluster_resources().get("GPU", 0))
    if device == "cuda" and have < workers:
        raise InvalidParameter(f"'device' is cuda, but the Ray cluster has {have} GPUs for {workers} workers.")
    return device != "cpu" and have >= workers


def _show(records: list[dict[str, Any]], shown: int, reporter: Reporter, larger_is_better: bool) -> int:
    """Tell the reporter of epochs that are new; returns how many there are now, fewer after a loss."""
    best = EarlyStopping(0, larger_is_better)
    for i, record in enumerate(records):
        epoch = EpochRecord(**record | {"val": math.nan if record["val"] is None else record["val"]})
        best.update(epoch.epoch, epoch.val)
        if i >= shown:
            reporter.epoch(epoch, best.best_epoch, best.best_score)
    return len(records)


def _reason(failure: BaseException) -> str:
    """The first words of what Ray tells."""
    failures = getattr(failure, "worker_failures", None) or {0: failure}
    return " ".join(str(next(iter(failures.values()))).split())[:300]
