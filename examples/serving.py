"""Ask a running server: one node, many nodes, nodes that are not in the graph, and a change.

    polyformer serve runs/my-run --tokens tokens/ --writable
    python examples/serving.py http://127.0.0.1:8750 ann bob --new zoe --features '{"age": 31, "city": "Rome"}' --apply

Python's own library is all that is needed. The new node gets an edge to each of the nodes that are named. With a token,
set POLYFORMER_TOKEN.
"""

import argparse
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any


def ask(address: str, body: Any = None) -> Any:
    """The JSON answer to a GET, or to a POST of a JSON body; a refusal ends the program with its sentence."""
    headers = {"Content-Type": "application/json"}
    if "POLYFORMER_TOKEN" in os.environ:
        headers["Authorization"] = f"Bearer {os.environ['POLYFORMER_TOKEN']}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{error.code}: {json.load(error)['error']}") from None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("server", help="e.g. http://127.0.0.1:8750")
    parser.add_argument("ids", nargs="+", help="your node ids")
    parser.add_argument("--whole-numbers", action="store_true", help="ids are whole numbers, not texts")
    parser.add_argument("--new", help="id of a node that is not in the graph")
    parser.add_argument("--features", type=json.loads, help="its features as JSON: a list, or an object of columns")
    parser.add_argument("--apply", action="store_true", help="then add it to the graph; the server must be writable")
    options = parser.parse_args()
    ids = [int(name) for name in options.ids] if options.whole_numbers else options.ids
    node = ask(f"{options.server}/nodes/{urllib.parse.quote(str(ids[0]), safe='')}")
    print(f"{node['id']}: {node['prediction']}, {node['neighbours']['count']} neighbours, version {node['version']}")
    for entry in ask(f"{options.server}/predict", {"ids": ids})["predictions"]:
        print(entry["id"], entry["prediction"], entry.get("probabilities", ""))
    if options.new is None:
        return
    name = int(options.new) if options.whole_numbers else options.new
    edges = [[name, other] for other in ids]
    new = {"id": name, **({} if options.features is None else {"features": options.features})}
    [entry] = ask(f"{options.server}/predict", {"nodes": [new], "edges": edges})["predictions"]
    print("new:", entry["id"], entry["prediction"])
    if options.apply:
        print("applied:", ask(f"{options.server}/updates", {"add_nodes": [new], "add_edges": edges})["version"])


if __name__ == "__main__":
    main()
