from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polyformer.datasets.base import Counts
from polyformer.datasets.public_files import Contents, PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.formats.number_files import row_normalised
from polyformer.formats.planetoid import PARTS, read_planetoid
from polyformer.graph import Graph

__all__ = ["CITESEER", "CORA", "PUBMED", "Planetoid"]

URL = "https://github.com/kimiyoung/planetoid/raw/master/data"


@dataclass(frozen=True, eq=False)
class Planetoid(PublicDataset):
    """Citation networks with bag-of-words features: documents are nodes, citations edges, topics classes.

    Each comes as seven pickles and a list of test nodes (:func:`read_planetoid`). Protocols: ``balanced`` and
    ``uniform``, or ``public``, the split that came with the files (20 training nodes per class, 500 for
    validation, 1,000 for testing).

    ``normalised`` tells whether rows of features are divided by their sum, as in the published runs on Citeseer and
    Pubmed.
    """

    normalised: bool = True

    def read(self, paths: Mapping[str, Path]) -> Contents:
        names = {part: path for path in paths for part in PARTS if path.endswith(f".{part}")}
        arrays = read_planetoid({part: paths[path] for part, path in names.items()})
        # A test document without a label (15 in Citeseer, all-zero rows) counts as class 0, as in the published runs
        # and in PyTorch Geometric.
        labels = arrays.one_hot.toarray().argmax(axis=1)
        features = row_normalised(arrays.features) if self.normalised else arrays.features
        graph = Graph(arrays.edges, features, arrays.features.shape[0])
        return Contents(graph, labels, {"public": [arrays.public]})


def _files(name: str, hashes: Mapping[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"raw/ind.{name}.{part}", f"{URL}/ind.{name}.{part}", sha256) for part, sha256 in hashes.items()
    )


_CITATION = "Yang et al., Revisiting semi-supervised learning with graph embeddings, ICML 2016"

CITESEER = Planetoid(
    name="citeseer",
    folder="CiteSeer",
    files=_files(
        "citeseer",
        {
            "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        },
    ),
    citation=_CITATION,
    counts=Counts(nodes=3_327, edges=4_552, features=3_703, classes=6),
    protocols=("balanced", "uniform", "public"),
)

PUBMED = Planetoid(
    name="pubmed",
    folder="PubMed",
    files=_files(
        "pubmed",
        {
            "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
            "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
            "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
            "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
            "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
            "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
            "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
            "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        },
    ),
    citation=_CITATION,
    counts=Counts(nodes=19_717, edges=44_324, features=500, classes=3),
    protocols=("balanced", "uniform", "public"),
)

# Cora is not in the paper: raw features, and the protocols of its family.
CORA = Planetoid(
    name="cora",
    folder="Cora",
    files=_files(
        "cora",
        {
            "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        },
    ),
    citation=_CITATION,
    counts=Counts(nodes=2_708, edges=5_278, features=1_433, classes=7),
    protocols=("balanced", "uniform", "public"),
    normalised=False,
)
