from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from polyformer.datasets import Counts
from polyformer.datasets.linkx import POKEC, TWITCH_GAMERS
from polyformer.errors import DataNotFound

SPLITS = np.array(
    [{"train": np.array([2, 0]), "valid": np.array([1]), "test": np.array([3])} for _ in range(5)], dtype=object
)
ROWS = """views,mature,life_time,created_at,updated_at,numeric_id,dead_account,language,affiliate
10,1,5,2016-02-16,2018-10-12,1,0,EN,1
20,0,6,2017-02-16,2018-10-12,0,1,DE,0
30,1,7,2018-02-16,2018-10-12,3,0,EN,0
40,0,8,2019-02-16,2018-10-12,2,0,EN,1
"""


@pytest.mark.usefixtures("cache")
def test_streamers_are_put_in_the_order_of_their_ids(tmp_path: Path) -> None:
    folder = tmp_path / "twitch-gamers" / "raw"
    folder.mkdir(parents=True)
    (folder / "large_twitch_features.csv").write_text(ROWS)
    (folder / "large_twitch_edges.csv").write_text("numeric_id_1,numeric_id_2\n0,1\n1,2\n2,3\n")
    np.save(folder / "twitch-gamer-splits.npy", SPLITS, allow_pickle=True)
    counts = Counts(nodes=4, edges=3, features=7, classes=2, listed=3)
    task = replace(TWITCH_GAMERS, counts=counts).load(tmp_path, "fixed")
    np.testing.assert_array_equal(task.labels, [0, 1, 0, 1])
    features = task.graph.features
    views = np.array([20, 10, 40, 30.0])
    np.testing.assert_allclose(features[:, 0], (views - 25) / views.std(ddof=1), rtol=1e-6)
    np.testing.assert_array_equal(features[:, 3], 0)  # a constant column
    assert (features[1, 5], features[0, 5]) == (features[2, 5], features[:, 5].max())  # EN is 0, DE is 1
    assert len(task.splits) == 5
    np.testing.assert_array_equal(task.splits[0].train, [0, 2])


@pytest.mark.usefixtures("cache")
def test_pokec_has_unlabelled_nodes(tmp_path: Path) -> None:
    folder = tmp_path / "pokec" / "raw"
    folder.mkdir(parents=True)
    content = {
        "edge_index": np.array([[0, 1, 1, 2], [1, 0, 2, 2]]),
        "node_feat": np.arange(10).reshape(5, 2),
        "label": np.array([[0, 1, 0, 1, -1]], np.int16),
        "num_nodes": 5,
    }
    scipy.io.savemat(folder / "pokec.mat", content)
    np.save(folder / "pokec-splits.npy", SPLITS, allow_pickle=True)
    counts = Counts(nodes=5, edges=2, features=2, classes=2, listed=4)
    task = replace(POKEC, counts=counts).load(tmp_path, "fixed")
    np.testing.assert_array_equal(task.labels, [0, 1, 0, 1, -1])
    assert task.graph.num_edges == 2


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("dataset", "name"), [(TWITCH_GAMERS, "twitch-gamer_feat.csv"), (POKEC, "pokec.mat")])
def test_dead_links_are_told(dataset: object, name: str) -> None:
    with pytest.raises(DataNotFound, match=f"links to its files no longer work.* Put 'raw/{name}'"):
        dataset.load(None, "fixed")  # type: ignore[attr-defined]
