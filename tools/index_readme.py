"""The README as a package index shows it, where a link to a file of the repository must be a whole address."""

from __future__ import annotations

import re

__all__ = ["index_readme"]

_RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")


def index_readme(text: str, repository: str | None, version: str) -> str:
    """The text with whole links to the files of a version; without a repository, the words of the links stay.

    >>> index_readme("[tutorial](docs/tutorial.md) ![map](map.png)", "https://host/me/it", "1.2")
    '[tutorial](https://host/me/it/blob/v1.2/docs/tutorial.md) ![map](https://host/me/it/raw/v1.2/map.png)'
    >>> index_readme("see the [tutorial](docs/tutorial.md)", None, "1.2")
    'see the tutorial'
    """

    def whole(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if repository is None:
            return "" if image else words
        return f"{image}[{words}]({repository}/{'raw' if image else 'blob'}/v{version}/{target})"

    return _RELATIVE_LINK.sub(whole, text)
