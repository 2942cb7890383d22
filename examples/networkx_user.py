"""A NetworkX graph without features: Zachary's karate club, with features made from the structure."""

from __future__ import annotations

import networkx as nx
import numpy as np

import polyformer as pf

EPOCHS = 60


def main() -> None:
    """Learn the two sides of the club from half of its members."""
    club = nx.karate_club_graph()
    sides = np.array([club.nodes[member]["club"] for member in club])  # "Mr. Hi" or "Officer"
    known = np.arange(0, len(sides), 2)
    classifier = pf.PolyFormerClassifier(order=3, hidden_channels=16, epochs=EPOCHS, seed=0)
    classifier.fit(club, sides, train=known)
    others = np.setdiff1d(np.arange(len(sides)), known)
    right = classifier.predict(club)[others] == sides[others]
    print(f"{right.sum()} of {len(others)} other members are on the predicted side")
    print(f"features: {', '.join(classifier.preprocessing_)}")


if __name__ == "__main__":
    main()
