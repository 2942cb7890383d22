"""What the server counts, as text that Prometheus reads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable

__all__ = ["Telemetry"]

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """Counts of answers by route and status, and how long they took."""

    def __init__(self) -> None:
        self.began = time.time()
        self._lock = threading.Lock()
        self._answers: Counter[tuple[str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        with self._lock:
            self._answers[route, status] += 1
            bound = next((bound for bound in _BOUNDS if seconds <= bound), float("inf"))
            self._within[route, bound] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, gauges: Iterable[tuple[str, str, str, float]]) -> str:
        """All counts in the text format of Prometheus.

        Args:
            gauges: name, kind (``gauge`` or ``counter``), meaning and value of other numbers.
        """
        lines: list[str] = []
        with self._lock:
            answers, within, seconds = dict(self._answers), dict(self._within), dict(self._seconds)
        lines += _head("polyformer_requests_total", "counter", "Answers by route and status.")
        lines += [
            f'polyformer_requests_total{{route="{_escaped(route)}",status="{status}"}} {count}'
            for (route, status), count in sorted(answers.items())
        ]
        lines += _head("polyformer_request_seconds", "histogram", "Seconds from the request to its answer.")
        for route in sorted(seconds):
            total = 0
            for bound in (*_BOUNDS, float("inf")):
                total += within.get((route, bound), 0)
                le = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f'polyformer_request_seconds_bucket{{route="{_escaped(route)}",le="{le}"}} {total}')
            lines.append(f'polyformer_request_seconds_sum{{route="{_escaped(route)}"}} {seconds[route]:.6f}')
            lines.append(f'polyformer_request_seconds_count{{route="{_escaped(route)}"}} {total}')
        for name, kind, meaning, value in gauges:
            lines += [*_head(name, kind, meaning), f"{name} {value:.17g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _escaped(text: str) -> str:
    r"""A label's value.

    >>> _escaped('a"b')
    'a\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
