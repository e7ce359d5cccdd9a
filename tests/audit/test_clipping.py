"""Distances of clipped averages from unclipped ones: known by hand for two tokens, and of what cannot matter."""

import numpy as np
import pytest
import torch

from palimpsest_lab.audits.clipping import CLIPS, ClippingAudit, distortions


def test_two_tokens_are_as_far_as_worked_out_by_hand() -> None:
    logits = torch.tensor([[[0.0, 8.0]], [[0.0, 6.0]]])  # contexts, tokens, vocabulary
    exact, cut = (1 / (1 + np.exp(-gap)) for gap in (7.0, 5.0))  # of both contexts, and of [0, 5] or [-2.5, 2.5]
    fixed, moved = distortions(logits)
    assert fixed[0, CLIPS.index(5.0)] == pytest.approx(2 * (exact - cut), rel=1e-6)
    assert moved[0, CLIPS.index(2.5)] == pytest.approx(2 * (exact - cut), rel=1e-6)


def test_where_a_logit_has_its_zero_matters_to_a_fixed_interval_alone() -> None:
    logits = torch.randn((5, 3, 50), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    (here, moved), (there, also) = distortions(logits), distortions(logits + 100.0)
    assert np.allclose(moved, also, atol=1e-9)
    assert np.allclose(there, there[:, :1])  # all are cut to the clip itself, so that no token is likelier than another
    assert moved[:, -1].max() < 1e-9 < here[:, 0].min()  # nothing is cut at 40


def test_what_is_written_is_read() -> None:
    audit = ClippingAudit.of(torch.randn((2, 3, 4, 30)))
    assert len(audit.fixed) == len(audit.moved) == len(audit.clips)
    assert ClippingAudit.from_json(audit.to_json("base")) == audit
