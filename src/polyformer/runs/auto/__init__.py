"""``--model auto``: a few models race on one split by successive halving, and the best stays as the run.

``candidates`` is the table of models that are tried, ``halving`` decides who goes on and for how long, ``search``
trains and resumes, ``leaderboard`` tells how they stand and whether the graph helps. Validation nodes decide alone.
"""
