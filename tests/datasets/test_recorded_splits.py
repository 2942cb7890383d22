"""The ten ``balanced`` splits are the same nodes as in the published runs, for ever."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from polyformer.datasets import load_dataset
from polyformer.splits import Split

SIZES = {
    "citeseer": (1929, 665, 733),
    "pubmed": (11829, 3943, 3945),
    "cs": (9105, 3667, 5561),
    "physics": (18689, 6899, 8905),
}
RECORDED = {
    "citeseer": (
        "cbe348dc34e7b14797fb24ef28fdf449",
        "3ab6a876d6c7bde775232a7d37459cf1",
        "3eb38c0ba560848772f2e307b5153be4",
        "cfd5fa1834e6d5f6a7a3c3d35ae29cc1",
        "fa399945f86f7165996d346b856e7571",
        "db01ed4594eab26b99688213461cdba4",
        "cf5d0bf7983181abd8fb432b71c59899",
        "fe486e548bb87ad0e7756a97a21ee1cb",
        "17edfcc4d932b45c238aef7d6e89be84",
        "0ca340c989b11f73b8a810fef05280a9",
    ),
    "pubmed": (
        "73b1bdd8b4741b73f7501d361faa4d60",
        "823ed22068a42adcbbd3216d04aca1d8",
        "d8368f3a64b61fd68a56ddb2d069d8ee",
        "c5ada53be0638f40905e460600737bcb",
        "9b5a1ace906ffcb6c4269d9cdfdc2052",
        "255f452e5e27b41354a83df27be4e5a0",
        "b91c748d3dcc9bf29578dd11d910da90",
        "f68c84b7e048b53f9674c195b9fb02f3",
        "37c5e02cd65e0ce6b3bec47ea4ce6c30",
        "c569d3e6a3a1fd9e1eb3bcdcf7d29697",
    ),
    "cs": (
        "2884d179b1cd17383593a85407ec33a1",
        "65cc13f89c71ba8b8ca0217c87d606f0",
        "d99c094e52f761f2882238214743f117",
        "4f466dcc8883b803eef4a2bb7087c956",
        "f75ef59ef6ddd5fdabcf57168f70d82b",
        "0464329aab131e57cd312e98b67ac4b2",
        "ef48019c910e4163b32ad451cd62aa8f",
        "7ca8e429f4d79b63bedf93641fd960b1",
        "7af48120728f52634c36df1fd70e69b6",
        "55496b05d505a4cf515fda2d13e2bcb7",
    ),
    "physics": (
        "bc50b4f249d83a5f8aed795ef81eeccf",
        "c64be14db7c9973cb3f336f5372d3a31",
        "cca1dd616aff82f364bc209a8773187d",
        "fcf213e156ac217a92be906394b528dc",
        "4e9f31c19b6b770c598ec2b1ed0861bc",
        "fddd6e8f43211d8eed13198c6a33ff7e",
        "3464a856dc85e0b1c1aaab53287f04b4",
        "37152f60b52065bf083d59731667922e",
        "692f042f3b9a790254414fb3414044cf",
        "5879d373632036b889c1db9f38cc8f42",
    ),
}


def digest(split: Split) -> str:
    content = hashlib.sha256()
    for part in (split.train, split.val, split.test):
        content.update(part.astype("<i8").tobytes() + b"|")
    return content.hexdigest()[:32]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", RECORDED)
def test_balanced_splits_are_those_recorded(name: str, real_root: Path) -> None:
    task = load_dataset(name, real_root)
    assert task.protocol == "balanced"
    assert {(len(split.train), len(split.val), len(split.test)) for split in task.splits} == {SIZES[name]}
    assert tuple(map(digest, task.splits)) == RECORDED[name]
