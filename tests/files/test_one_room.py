"""Files of arrays, JSON and tensors are opened in one room: no other module of the package opens one itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import polyformer

ROOT = Path(polyformer.__file__).parent

OPENERS = {
    "np.load",
    "np.save",
    "np.savez",
    "np.savez_compressed",
    "np.memmap",
    "np.lib.format",
    "json.load",
    "json.loads",
    "json.dump",
    "sp.load_npz",
    "sp.save_npz",
    "safetensors",
    "shutil.disk_usage",
    "fcntl",
    "os.replace",
    "os.posix_fallocate",
}

ADMITTED = {
    ("inputs/token_inputs.py", "np.memmap"): "asks whether an array is mapped",
    ("arrays.py", "np.memmap"): "maps a file again that was opened by the room",
    ("reports/document.py", "json.loads"): "a figure that was just made, no file",
    ("server/bodies.py", "json.loads"): "the body of a request, no file",
    ("system.py", "fcntl"): "the one home of what some systems lack, on which the room stands",
}


def used_names(tree: ast.AST) -> set[str]:
    """Dotted names that a module uses, and modules that it imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_one_room_opens_files(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("files/"):
        return
    used = used_names(ast.parse(path.read_text(encoding="utf-8")))
    openers = {opener for opener in OPENERS if any(use == opener or use.startswith(f"{opener}.") for use in used)}
    assert {opener for opener in openers if (name, opener) not in ADMITTED} == set()
