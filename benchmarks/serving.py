"""How quickly the server answers, and whether it stays up: a server process and a client on loopback.

``python -m benchmarks.serving FOLDER --prepare`` makes ogbn-arxiv's graph with 128 made-up columns, a run of order 10
and width 128, and its stored tokens (about 1 GB). Then ``--part`` measures, each against its target:

- ``start``: seconds from the command to the first answer, at most 10;
- ``node``: GET /nodes/ID, 200 requests a second: median at most 5 ms, 99th percentile at most 25 ms;
- ``ids``: ids a second in requests of 100, at least 2,000;
- ``new``: new nodes a second in requests of 20, at least 500;
- ``kill``: updates until a kill -9 at a random moment, ``--times`` times: every acknowledged update must be there;
- ``mixed``: all of these at a moderate rate with updates for ``--minutes``: errors, and memory over time.

The client runs at low priority and asks no faster than it is told. ``BENCHMARK_PORT`` is the port, 8799 by default.
``--json FILE`` keeps the figures.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets import load_dataset
from polyformer.splits import Split
from polyformer.tasks import Task

WIDTH, ORDER, HIDDEN = 128, 10, 128
PORT = int(os.environ.get("BENCHMARK_PORT", "8799"))
CONNECTIONS = 8


def prepare(folder: Path) -> None:
    """A graph directory, a run of two short epochs on few nodes, and tokens of all nodes."""
    task = load_dataset("ogbn-arxiv-graph")
    drawn = np.random.default_rng(0)
    features = drawn.standard_normal((task.graph.num_nodes, WIDTH), dtype=np.float32)
    labels = drawn.integers(0, 40, task.graph.num_nodes)
    nodes = drawn.permutation(task.graph.num_nodes)[:6000]
    split = Split(*(np.sort(nodes[i : i + 2000]) for i in (0, 2000, 4000)))
    made = Task("arxiv-made-up", task.graph.with_features(features), labels, [split])
    replace(made, metric="accuracy").save(folder / "graph")
    common = ["--set", f"order={ORDER}", "--set", f"hidden_channels={HIDDEN}", "--set", "epochs=2"]
    polyformer("train", folder / "graph", "--out", folder / "run", *common, "--no-report")
    polyformer("tokens", folder / "graph", "--like", folder / "run", "--order", ORDER, "--out", folder / "tokens")


def polyformer(*arguments: Any) -> None:
    subprocess.run([sys.executable, "-m", "polyformer", *map(str, arguments)], check=True)


@contextmanager
def server(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A server process, and the seconds that it took to answer; ended with the block."""
    places = [
        "serve",
        str(folder / "run"),
        "--graph",
        str(folder / "graph"),
        "--tokens",
        str(folder / "tokens"),
        "--port",
        str(PORT),
    ]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "polyformer", *places, *options])
    lower_own_priority()
    try:
        while True:
            try:
                ask(http.client.HTTPConnection("127.0.0.1", PORT, timeout=5), "GET", "/health")
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("the server did not start") from None
                time.sleep(0.02)
        yield process, time.perf_counter() - began
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def lower_own_priority() -> None:
    """The client gives way to the server."""
    os.setpriority(os.PRIO_PROCESS, 0, 10)


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def ask_twice(connection: http.client.HTTPConnection, method: str, path: str, body: Any) -> tuple[str | None, bool]:
    """What went wrong, if anything; and whether the connection was gone and the request was sent on another one.

    A connection that was idle for long may be closed by the server, as HTTP allows. An update that was applied before
    its connection went is answered with 409 the second time.
    """
    again = False
    while True:
        try:
            status, content = ask(connection, method, path, body)
            return (None if status == 200 or (again and status == 409) else f"{status} {content}"), again
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if again:
                return repr(error), again
            again = True


Request = Callable[[random.Random], tuple[str, str, Any]]


def one_node(drawn: random.Random) -> tuple[str, str, Any]:
    return "GET", f"/nodes/{drawn.randrange(169_343)}", None


def many_ids(drawn: random.Random) -> tuple[str, str, Any]:
    return "POST", "/predict", {"ids": [drawn.randrange(169_343) for _ in range(100)]}


def new_nodes(drawn: random.Random) -> tuple[str, str, Any]:
    """20 nodes with 10 edges each, to old nodes."""
    first = 10_000_000
    nodes = [{"id": first + i, "features": [drawn.gauss(0, 1) for _ in range(WIDTH)]} for i in range(20)]
    edges = [[first + i, drawn.randrange(169_343)] for i in range(20) for _ in range(10)]
    return "POST", "/predict", {"nodes": nodes, "edges": edges}


class Connection:
    """One request at a time on a socket that never blocks: the answer is looked at only as far as HTTP asks."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", PORT), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin(b"", 0.0)

    def begin(self, request: bytes, due: float) -> None:
        """Remember what is asked, and from when on its time counts."""
        self.request, self.due, self.again, self.answer = request, due, False, b""

    def send(self) -> None:
        self.socket.sendall(self.request)

    def receive(self) -> str | None:
        """The status and body of an answer that is whole, or None; a connection that is gone is opened once more."""
        try:
            piece = self.socket.recv(1 << 18)
            if not piece:
                raise ConnectionResetError("the server closed the connection")
        except OSError as error:
            self.socket.close()
            request, due, again = self.request, self.due, self.again
            self.open()
            self.begin(request, due)
            if again:
                return repr(error)
            self.again = True
            self.send()
            return None
        self.answer += piece
        head, end, body = self.answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]):
            return None
        return f"{head.split(b' ', 2)[1].decode()} {body[:300].decode(errors='replace')}"


def as_bytes(method: str, path: str, body: Any) -> bytes:
    """A request as it is sent."""
    content = b"" if body is None else json.dumps(body).encode()
    kind = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\n".encode() + content


class Load:
    """Requests over some connections; times count from the moment that a request should have been sent.

    Without a rate, each connection asks again as soon as it is answered. There is one thread with a selector: a client
    that takes long itself would be measured instead of the server.
    """

    def __init__(self, make: Request, rate: float | None, seconds: float, connections: int = CONNECTIONS) -> None:
        self.rate, self.seconds, self.connections = rate, seconds, connections
        drawn = random.Random(0)
        few = make(drawn)[2] is not None  # bodies are made beforehand and used several times
        self.requests = [as_bytes(*make(drawn)) for _ in range(100 if few else 5000)]
        self.latencies: list[float] = []
        self.failures: list[str] = []
        self.reconnected = 0
        self._thread = threading.Thread(target=self._run)

    def run(self) -> Load:
        self.start()
        return self.finish()

    def start(self) -> None:
        self.began = time.perf_counter() + 0.1
        self._thread.start()

    def finish(self) -> Load:
        self._thread.join()
        return self

    def _run(self) -> None:
        selector, idle, asked, answered = selectors.DefaultSelector(), deque[Connection](), 0, 0
        for _ in range(self.connections):
            connection = Connection()
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            idle.append(connection)
        end = self.began + self.seconds
        while True:
            now = time.perf_counter()
            while idle and now < end and (due := self._due(asked, now)) <= now:
                connection = idle.popleft()
                connection.begin(self.requests[asked % len(self.requests)], due)
                connection.send()
                asked += 1
            if now >= end and answered == asked:
                break
            wait = self._due(asked, now) - now if idle and now < end else 1.0
            for key, _ in selector.select(max(0.0, wait)):
                connection = key.data
                before = connection.socket
                answer = connection.receive()
                if connection.socket is not before:
                    selector.unregister(before)
                    selector.register(connection.socket, selectors.EVENT_READ, connection)
                    self.reconnected += 1
                if answer is None or not connection.request:
                    continue
                answered += 1
                self.latencies.append(time.perf_counter() - connection.due)
                if not answer.startswith("200"):
                    self.failures.append(answer)
                idle.append(connection)
        self.elapsed = time.perf_counter() - self.began
        for key in list(selector.get_map().values()):
            key.data.socket.close()

    def _due(self, number: int, now: float) -> float:
        """When a request should be sent; without a rate, as soon as a connection is free."""
        return max(self.began, now) if self.rate is None else self.began + number / self.rate

    def summary(self) -> dict[str, Any]:
        p50, p95, p99 = (float(np.percentile(self.latencies, q)) * 1e3 for q in (50, 95, 99))
        return {
            "requests": len(self.latencies),
            "failures": len(self.failures),
            "first failure": next(iter(self.failures), None),
            "reconnected": self.reconnected,
            "requests/s": round(len(self.latencies) / self.elapsed, 1),
            "p50 ms": round(p50, 2),
            "p95 ms": round(p95, 2),
            "p99 ms": round(p99, 2),
        }


def measure(folder: Path, part: str, seconds: float, rate: float | None) -> dict[str, Any]:
    """One of the parts that only read."""
    make, own_rate, connections = {
        "node": (one_node, 200.0, CONNECTIONS),
        "ids": (many_ids, None, 4),
        "new": (new_nodes, None, 4),
        "start": (one_node, 1.0, 1),
    }[part]
    with server(folder) as (process, started):
        ready = round(started, 2)
        if part == "start":
            return {"start-up s": ready}
        Load(make, 20, 2).run()  # pages and caches
        before = processor_seconds(process.pid)
        load = Load(make, rate or own_rate, seconds, connections).run()
        used = (processor_seconds(process.pid) - before) / max(1, len(load.latencies))
        per_request = {"ids": 100, "new": 20, "node": 1}[part]
        per_second = round(per_request * len(load.latencies) / load.elapsed)
        return {
            "start-up s": ready,
            **load.summary(),
            "nodes/s": per_second,
            "processor ms a request": round(used * 1e3, 2),
            "memory": memory(process.pid),
        }


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far, which others on the machine do not lengthen much."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> dict[str, int]:
    """MiB of a process: all, and what is its own (not pages of files)."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) >> 10 for line in status if line.startswith(("VmRSS", "RssAnon"))}
    return {"MiB": sizes["VmRSS"], "own MiB": sizes["RssAnon"]}


def an_update(number: int, drawn: random.Random) -> dict[str, Any]:
    """A new node with two edges every fourth time, and an edge else."""
    if number % 4:
        return {"add_edges": [[drawn.randrange(169_343), drawn.randrange(169_343)]]}
    name = 20_000_000 + number
    node = {"id": name, "features": [drawn.gauss(0, 1) for _ in range(WIDTH)]}
    return {"add_nodes": [node], "add_edges": [[name, drawn.randrange(169_343)] for _ in range(2)]}


def kill(folder: Path, times: int) -> dict[str, Any]:
    """Kill the server while it updates; after a restart all acknowledged nodes and their edges must be there."""
    drawn, added, lost, starts = random.Random(1), {}, [], []
    number = int(time.time()) % 1_000_000 * 1000
    for _ in range(times):
        with server(folder, "--writable") as (process, started):
            starts.append(round(started, 1))
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
            for name, ends in added.items():
                status, node = ask(connection, "GET", f"/nodes/{name}")
                if status != 200 or not set(ends) <= set(node["neighbours"]["ids"]):
                    lost.append(name)
            timer = threading.Timer(drawn.uniform(0, 2), lambda pid=process.pid: os.kill(pid, signal.SIGKILL))
            left = drawn.randint(1, 4)  # the kill comes during or after the update behind so many
            try:
                while True:
                    number += 4
                    if left == 0:
                        timer.start()
                    left -= 1
                    body = an_update(number, drawn)
                    status, answer = ask(connection, "POST", "/updates", body)
                    assert status == 200, answer
                    added[body["add_nodes"][0]["id"]] = [edge[1] for edge in body["add_edges"]]
            except (OSError, http.client.HTTPException):
                timer.join()
    with server(folder, "--writable"):
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
        for name, ends in added.items():
            status, node = ask(connection, "GET", f"/nodes/{name}")
            if status != 200 or not set(ends) <= set(node["neighbours"]["ids"]):
                lost.append(name)
    return {"kills": times, "acknowledged": len(added), "lost": sorted(set(lost)), "start-up s": starts}


def mixed(folder: Path, minutes: float, out: Path | None) -> dict[str, Any]:
    """Reads of all kinds at a moderate rate, and an update every few seconds; memory every half minute."""
    with server(folder, "--writable") as (process, started):
        seconds = minutes * 60
        loads = {
            "node": Load(one_node, 20, seconds, 2),
            "ids": Load(many_ids, 2, seconds, 1),
            "new": Load(new_nodes, 2, seconds, 1),
        }
        for load in loads.values():
            load.start()
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
        drawn, times, errors, sizes, reconnected = random.Random(2), [], [], [], 0
        began, number, sampled = time.perf_counter(), int(time.time()) % 1_000_000 * 1000, -30.0
        while (now := time.perf_counter() - began) < seconds:
            if now - sampled >= 30:
                sampled = now
                sizes.append({"s": round(now), **memory(process.pid)})
                if out is not None:
                    out.with_suffix(".progress").write_text(json.dumps(sizes))
            number += 1
            sent = time.perf_counter()
            failure, again = ask_twice(connection, "POST", "/updates", an_update(number, drawn))
            reconnected += again
            if failure is not None:
                errors.append(failure)
            times.append(time.perf_counter() - sent)
            time.sleep(max(0.5, 4.0 - times[-1]))
        results = {name: load.finish().summary() for name, load in loads.items()}
        return {
            "minutes": minutes,
            "start-up s": round(started, 2),
            **results,
            "updates": {
                "count": len(times),
                "failures": len(errors),
                "first failure": next(iter(errors), None),
                "reconnected": reconnected,
                "median s": round(float(np.median(times)), 2),
                "p95 s": round(float(np.percentile(times, 95)), 2),
            },
            "memory": sizes,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--part", choices=["start", "node", "ids", "new", "kill", "mixed"])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, help="requests a second [default: that of the target]")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.folder)
    if options.part is None:
        return
    if options.part == "kill":
        result = kill(options.folder, options.times)
    elif options.part == "mixed":
        result = mixed(options.folder, options.minutes, options.json)
    else:
        result = measure(options.folder, options.part, options.seconds, options.rate)
    print(json.dumps({options.part: result}, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps({options.part: result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
