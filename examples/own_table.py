"""Two tables in, predictions out: customers and who bought together.

Writes the tables that a shop might have, trains on them, and predicts the customers whose label is not known.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np

import polyformer as pf

EPOCHS = 30


def write_tables(folder: Path) -> None:
    """`nodes.csv` has a row for each customer, `edges.csv` one for each pair; a third of the labels is unknown."""
    random = np.random.default_rng(0)
    group = random.integers(0, 2, 300)
    age = 30 + 15 * group + random.normal(0, 8, 300)
    with (folder / "nodes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "age", "label"])
        for i in range(300):
            label = "" if i % 3 == 0 else ("stays", "leaves")[group[i]]
            writer.writerow([f"customer-{i}", f"{age[i]:.1f}", label])
    with (folder / "edges.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        for i in range(300):
            friends = random.choice(np.flatnonzero(group == group[i]), 4)
            writer.writerows([f"customer-{i}", f"customer-{j}"] for j in friends if j != i)


def main() -> None:
    """Train on the tables and print what was found."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "shop"
        folder.mkdir()
        write_tables(folder)
        run = pf.train(str(folder), out=f"{place}/run", order=4, hidden_channels=16, epochs=EPOCHS)
        assert run.result is not None
        print(f"test accuracy {run.result['test']:.2f}")
        unknown = np.arange(0, 300, 3)
        probabilities = run.predict(unknown)  # (100, 2)
        leaves = list(run.card.class_names or ()).index("leaves")
        print(f"customer-0 leaves with probability {probabilities[0, leaves]:.2f}")


if __name__ == "__main__":
    main()
