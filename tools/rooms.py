"""Write the map of the rooms into CONTRIBUTING.md, from the real imports: `python tools/rooms.py`, or `make rooms`.

A room is a package or a file directly under ``src/polyformer``. The rooms stand in the order of the layers in
pyproject.toml's ``[tool.importlinter]``; the text of a room is the first line of its docstring.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
PACKAGE = "polyformer"
BEGIN = "<!-- rooms: `make rooms` writes what follows -->"
END = "<!-- end of rooms -->"
WIDTH = 118


def ordered_rooms() -> list[str]:
    """The rooms from the top of the house to its foundation, as pyproject.toml orders them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        [contract] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return [room for layer in contract["layers"] for room in layer.replace("|", " ").replace(":", " ").split()]


def room_imports() -> dict[str, set[str]]:
    """Each room and the rooms that one of its files imports."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    rooms = graph.find_children(PACKAGE)
    for room in rooms:
        graph.squash_module(room)
    names = {room: room.removeprefix(f"{PACKAGE}.") for room in rooms}
    return {
        names[room]: {names[other] for other in graph.find_modules_directly_imported_by(room) & rooms - {room}}
        for room in rooms
    }


def reachable_rooms(room: str, imports: dict[str, set[str]]) -> set[str]:
    """All rooms that a room imports, directly or through another room."""
    reached: set[str] = set()
    waiting = [room]
    while waiting:
        new_rooms = imports[waiting.pop()] - reached
        reached |= new_rooms
        waiting += new_rooms
    return reached


def direct_arrows(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports of each room without those that another of its imports reaches too.

    >>> direct_arrows({"cli": {"models", "errors"}, "models": {"errors"}, "errors": set()})
    {'cli': {'models'}, 'models': {'errors'}, 'errors': set()}
    """
    reached = {room: reachable_rooms(room, imports) for room in imports}
    return {
        room: {
            imported
            for imported in targets
            if not any(imported in reached[other] for other in targets if other != imported)
        }
        for room, targets in imports.items()
    }


def room_text(room: str) -> str:
    """The first line of the room's docstring."""
    folder = ROOT / "src" / PACKAGE / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if docstring is None:
        raise SystemExit(f"{file} has no docstring. Write one: its first line explains the room on the map.")
    return docstring.splitlines()[0].replace("``", "")


def draw_map() -> str:
    """The map as text: a line for each room, and an arrow to each room that it imports."""
    imports = room_imports()
    arrows, rooms = direct_arrows(imports), ordered_rooms()
    if unknown_rooms := set(imports) ^ set(rooms):
        raise SystemExit(f"pyproject.toml and src/{PACKAGE} name different rooms: {', '.join(sorted(unknown_rooms))}.")
    column = max(map(len, rooms)) + 2
    lines: list[str] = []
    for room in rooms:
        lines.append(f"{room:<{column}}{room_text(room)}")
        line = " " * column + "→"
        for target in sorted(arrows[room], key=rooms.index):
            if len(line) + len(target) + 2 > WIDTH:
                lines.append(line)
                line = " " * (column + 1)
            line += f" {target}"
        if arrows[room]:
            lines.append(line)
    return "\n".join(["```text", *lines, "```"])


def page_with_map(page: str) -> str:
    """The page with the map as it is now between the two markers."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{draw_map()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_map(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"map of the rooms: {PAGE.relative_to(ROOT)}")
