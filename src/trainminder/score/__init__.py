"""Scoring: embeddings to dissimilarity to normal score, and who stands out. Pure, hot."""

from trainminder.score.normal import candidate_threshold, normal_score
from trainminder.score.normal_kernel import FOLDED_DEVIATION
from trainminder.score.standing import Scored, backed_score, stand_out
from trainminder.score.sums import dissimilarity

__all__ = [
    "FOLDED_DEVIATION",
    "Scored",
    "backed_score",
    "candidate_threshold",
    "dissimilarity",
    "normal_score",
    "stand_out",
]
