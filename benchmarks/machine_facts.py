"""What a measurement depends on: the machine and the versions."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def machine_facts() -> dict[str, Any]:
    """Processor, instruction set, cores, memory and versions."""
    import numpy
    import scipy
    import torch

    from polyformer import __version__
    from polyformer.native import kernel_name

    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "kernel": kernel_name(),
        "python": platform.python_version(),
        "polyformer": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }


def _first(path: str, name: str) -> str:
    """The first value of that name in a file of ``name : value`` lines."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0"
