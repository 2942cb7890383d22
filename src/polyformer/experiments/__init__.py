"""The paper's tables and figures: plans of runs, their records, and our numbers beside the published ones.

To add a plan: write ``plans/<name>.toml`` and name it in ``EXPERIMENTS``.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyformer.registry import Registry

__all__ = ["EXPERIMENTS", "Experiment"]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
        title: the name of the table or figure in the paper.
        about: what the experiment compares, and what is run here.
        plans: names of the plans whose rows the experiment has.
        published: name of the table in :mod:`polyformer.experiments.published`; None if there is no published table.
    """

    title: str
    about: str
    plans: tuple[str, ...]
    published: str | None = None


_TABLE5 = (
    "table5-polyformer-paper",
    "table5-polyformer-ours",
    "table5-baselines",
    "table5-specformer",
    "table5-specformer-truncated",
)

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        "table2": Experiment(
            "Table 2: Performance of PolyAttn on synthetic datasets",
            "How well six pairs of node-wise filters are fitted on an image of 100 × 100 pixels: R² and squared error.",
            ("synthetic-polyattn-mixed", "synthetic-polyattn-opposite", "synthetic-baselines"),
            "synthetic",
        ),
        "table2-fast": Experiment(
            "Table 2 with a faster optimiser",
            "The same fits in minutes instead of hours: mini-batches where a model has them, rates that fall to zero.",
            ("synthetic-fast-polyattn-mixed", "synthetic-fast-polyattn-opposite", "synthetic-fast-baselines"),
            "synthetic",
        ),
        "table2-images": Experiment(
            "Table 2 on other images",
            "One image a run, none of them the published one; the attention bias constrained as in the appendix.",
            ("synthetic-images-attention", "synthetic-images-baselines"),
        ),
        "table4": Experiment(
            "Table 4: Performance of PolyAttn on real-world datasets",
            "Node-wise filters (PolyAttn) against one filter for all nodes (UniFilter), one layer each, in four bases.",
            ("table4",),
            "polyattn",
        ),
        "table5": Experiment(
            "Table 5: Performance of PolyFormer on node classification",
            "PolyFormer in four bases and fifteen other models on ten graphs, homophilic and heterophilic.",
            _TABLE5,
            "node-classification",
        ),
        "table6": Experiment(
            "Table 6: Performance of PolyFormer for node classification on large-scale datasets",
            "PolyFormer with monomial tokens and eight other models on four graphs of up to 111 million nodes.",
            ("table6-polyformer-linkx", "table6-polyformer-ogb", "table6-baselines-linkx", "table6-baselines-ogb"),
            "large-scale",
        ),
        "table6-stand-ins": Experiment(
            "Table 6 on other data: graphs of the size of ogbn-arxiv",
            "WordNet, and ogbn-arxiv's graph with random projections of its adjacency for features.",
            ("table6-stand-ins",),
        ),
        "table7": Experiment(
            "Table 7: Performance comparison of SelfAttn and PolyAttn in fitting node-wise filters",
            "tanh (PolyAttn) against softmax (SelfAttn) on four of the filters of table2, whose runs it shares.",
            ("synthetic-polyattn-mixed", "synthetic-selfattn"),
            "selfattn",
        ),
        "table7-fast": Experiment(
            "Table 7 with a faster optimiser",
            "tanh against softmax on four of the filters of table2-fast, whose runs it shares.",
            ("synthetic-fast-polyattn-mixed", "synthetic-fast-selfattn"),
            "selfattn",
        ),
        "models": Experiment(
            "Models of this package on the data of Table 5",
            "Table 5 and what it leaves out: one-layer filters in four bases, ChebNet, tuned GCN, GraphSAGE and GAT.",
            (*_TABLE5, "models-tokens", "models-convolutions"),
            "node-classification",
        ),
        "beyond": Experiment(
            "Beyond the paper: cascaded node-wise filters",
            "The cascade on four heterophilic graphs, and deep baselines and Polynormer on one; others: `models`.",
            ("beyond", "beyond-baselines"),
        ),
        "label-tokens": Experiment(
            "Beyond the paper: known labels as input",
            "The cascade, PolyFormer, GCN and a tuned GCN that read training labels; published models read none.",
            (
                "label-tokens",
                "label-tokens-polyformer",
                "label-tokens-sets",
                "label-tokens-sets-baselines",
                "label-tokens-sets-polyformer",
            ),
        ),
        "label-tokens-without": Experiment(
            "Beyond the paper: the same settings without labels as input",
            "What the models of `label-tokens` reach with the same settings when they are shown no labels.",
            ("label-tokens-without", "label-tokens-without-polyformer"),
        ),
        "fig2": Experiment(
            "Figure 2: Learned filters of PolyAttn (Cheb) on synthetic datasets",
            "The filters of all pixels in two clusters, beside the two that made the image; four panels.",
            ("fig2",),
        ),
        "fig3": Experiment(
            "Figure 3: Filters learned by UniFilter and PolyAttn on real-world graphs",
            "The one filter of UniFilter beside PolyAttn's in five clusters, on pubmed and, for questions, tolokers.",
            ("fig3",),
        ),
        "fig4": Experiment(
            "Figure 4: Score, training time and peak memory of attention models",
            "PolyFormer against six attention models on minesweeper, for roman-empire; preprocessing times too. CPU.",
            ("fig4-polyformer", "fig4-baselines"),
        ),
    },
)
