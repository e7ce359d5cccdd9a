"""AdamW without the noise's share: equal to AdamW where there is no noise, and unbiased where there is."""

import copy
import dataclasses

import pytest
import torch
from torch import nn

from palimpsest.training.optimiser import Optimiser

PLAIN = Optimiser(0.01, 1.0, (0.9, 0.98), 1e-12, 0.1)


def corrected(eps: float) -> Optimiser:
    return Optimiser(0.01, 1.0, (0.9, 0.98), eps, 0.0, noise_correction=True)


def step(update: torch.optim.Optimizer, weight: nn.Parameter, gradient: torch.Tensor) -> None:
    weight.grad = gradient.clone()
    update.step()


def test_without_noise_it_is_adamw():
    weights = [nn.Parameter(torch.linspace(-1, 1, 7, dtype=torch.float64)) for _ in range(2)]
    corrected = dataclasses.replace(PLAIN, noise_correction=True)
    updates = [optimiser.start([weight]) for optimiser, weight in zip((PLAIN, corrected), weights, strict=True)]
    for turn in range(20):
        gradient = torch.sin(torch.arange(7, dtype=torch.float64) + turn)
        for update, weight in zip(updates, weights, strict=True):
            step(update, weight, gradient)
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-9, atol=1e-12)


def test_the_second_moment_loses_the_noises_variance():
    """A constant gradient g and a noise variance v: the first step is g / sqrt(g^2 - v)."""
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    update = corrected(1e-6).start([weight], 0.75)
    step(update, weight, torch.ones(1, dtype=torch.float64))
    assert weight.item() == pytest.approx(-0.01 / 0.5)


def test_what_is_left_of_the_root_is_at_least_eps():
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    update = corrected(0.1).start([weight], 4.0)
    step(update, weight, torch.ones(1, dtype=torch.float64))
    assert weight.item() == pytest.approx(-0.01 / 0.1)


def test_weights_of_one_share_are_one_group_and_each_has_its_rate():
    weights = {name: nn.Parameter(torch.zeros(2)) for name in ("lm.a", "head.a", "lm.b")}
    optimiser = dataclasses.replace(PLAIN, share=lambda which, name: 0.5 if name.startswith("head.") else 1.0 + which)
    groups = optimiser.groups(weights, 1)
    assert [group["share"] for group in groups] == [2.0, 0.5]
    assert [len(group["params"]) for group in groups] == [2, 1]
    assert groups[1]["params"][0] is weights["head.a"]
    assert [len(group["params"]) for group in PLAIN.groups(weights, 0)] == [3]


def test_its_state_can_be_kept_and_put_back():
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    update = corrected(1e-3).start([weight], 0.1)
    step(update, weight, torch.ones(3, dtype=torch.float64))
    other = nn.Parameter(weight.detach().clone())
    restored = corrected(1e-3).start([other], 0.1)
    restored.load_state_dict(copy.deepcopy(update.state_dict()))
    for one, value in ((update, weight), (restored, other)):
        step(one, value, torch.full((3,), 0.3, dtype=torch.float64))
    assert torch.equal(weight, other)
