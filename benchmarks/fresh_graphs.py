"""Made-up graphs of kinds that no default was chosen on: boards, sensors on a map, shops, citations that age."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.tasks import Task

__all__ = ["aging_papers", "board", "sensors", "shop"]


def board(size: int, seed: int, root: Path) -> Task:
    """A Minesweeper board of so many rows and columns."""
    task = load_dataset(f"minefield:width={size},height={size},seed={seed}", root)
    features = np.array(task.graph.features)
    return Task("board", Graph.from_scipy(task.graph.adjacency(), features), task.labels, [])


def sensors(count: int, classes: int, root: Path) -> Task:
    """Sensors on a map, each joined to its five nearest; regions around random centres are the classes.

    A sensor measures two fields that differ between regions, with much noise, and its height, which tells nothing.
    """
    random = np.random.default_rng([count, classes, 1])
    places, centres = random.random((count, 2)), random.random((3 * classes, 2))
    nearest = ((places[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    labels = nearest % classes
    distance = ((places[:, None] - places) ** 2).sum(axis=2)
    targets = np.argsort(distance, axis=1)[:, 1:6]
    means = random.normal(size=(classes, 2))
    fields = means[labels] + random.normal(0, 1.5, (count, 2))
    features = np.column_stack([fields, 200 * random.lognormal(0, 1, count)])
    return Task("sensors", Graph(np.stack([np.repeat(np.arange(count), 5), targets.ravel()]), features), labels, [])


def shop(customers: int, products: int, kinds: int, root: Path) -> Task:
    """Customers who buy products of the kind that they like, four times of five; the kind of both is to be told.

    Products have a price, which depends a little on the kind, customers an age, which does not; a flag tells the two
    apart. No two nodes of one sort are joined.
    """
    random = np.random.default_rng([customers, products, kinds])
    labels = random.integers(0, kinds, customers + products)
    source = np.repeat(np.arange(customers), random.poisson(4, customers) + 1)
    wanted = np.where(random.random(len(source)) < 0.8, labels[source], random.integers(0, kinds, len(source)))
    target = np.empty(len(source), np.int64)
    for kind in range(kinds):
        members = customers + np.flatnonzero(labels[customers:] == kind)
        target[wanted == kind] = random.choice(members, int((wanted == kind).sum()))
    is_product = np.arange(customers + products) >= customers
    price = np.where(is_product, random.lognormal(2 + 0.5 * labels, 0.8), 0.0)
    age = np.where(is_product, 0.0, random.normal(45, 15, customers + products))
    features = np.column_stack([price, age, is_product])
    return Task("shop", Graph(np.stack([source, target]), features), labels, [])


def aging_papers(count: int, classes: int, words: int, root: Path) -> Task:
    """Papers that cite earlier ones, mostly recent and of their own field; a field has favourite words.

    Every paper cites one to six others and has five to sixty words, each of them with a chance of a third from the two
    hundred favourites of its field, which overlap.
    """
    random = np.random.default_rng([count, classes, words])
    labels = random.integers(0, classes, count)
    papers = np.repeat(np.arange(1, count), random.integers(1, 7, count - 1))
    ages = random.exponential(count / 10, (len(papers), 30)).astype(np.int64) + 1
    candidates = np.maximum(papers[:, None] - ages, 0)
    own = labels[candidates] == labels[papers][:, None]
    first = np.where(own.any(axis=1), own.argmax(axis=1), 0)
    pick = np.where(random.random(len(papers)) < 0.7, first, 0)
    cited = candidates[np.arange(len(papers)), pick]
    favourites = np.stack([random.choice(words, 200, replace=False) for _ in range(classes)])
    rows = np.repeat(np.arange(count), random.integers(5, 61, count))
    common = 1.0 / np.arange(1, words + 1) ** 0.8
    columns = random.choice(words, len(rows), p=common / common.sum())
    special = random.random(len(rows)) < 1 / 3
    columns[special] = favourites[labels[rows[special]], random.integers(0, 200, int(special.sum()))]
    features = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (count, words))
    features.data[:] = 1.0
    return Task("aging papers", Graph(np.stack([papers, cited]), features, num_nodes=count), labels, [])
