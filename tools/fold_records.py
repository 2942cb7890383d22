"""Makes lines of records that lie in single files: ``<plan>/<run>.json`` becomes a line of ``<plan>.jsonl``.

    python -m tools.fold_records [OTHER-RESULTS...] [--into results]

Lines are sorted by the names of their runs, so that two people who fold the same records write the same file. Records
of other folders, in either form, are gathered too; the files of these folders stay.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from polyformer.experiments.records import Records

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Fold the records and print how many became lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("others", type=Path, nargs="*", help="other folders of records to gather")
    parser.add_argument("--into", type=Path, default=RESULTS, help="the folder of records")
    options = parser.parse_args()
    records = Records(options.into)
    folded = sum(records.fold(other) for other in [None, *options.others])
    print(f"{folded} records became lines in '{options.into}'.")


if __name__ == "__main__":
    main()
