"""GAIL, computed again from its equations; its gradient penalty, by finite differences."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from actors import behavior, image_8_bit
from mlagents.trainers.algorithms.gail import (
    GAIL,
    Discriminator,
    Inputs,
    discriminator_loss,
    gradient_penalty,
    interpolated,
    latent_information,
)
from mlagents.trainers.settings.behavior import GailSettings
from mlagents_envs.base_env import BehaviorSpec
from steps import layer, make_demonstrations, make_transitions, swish, weights

SPEC = behavior(3, 2, continuous=1, branches=(3,))
CPU = torch.device("cpu")


def settings(**written: Any) -> GailSettings:
    network = {"hidden_units": 4, "num_layers": 1}
    return GailSettings.model_validate({"demo_path": "-", "network_settings": network} | written)


def make(spec: BehaviorSpec = SPEC, **written: Any) -> GAIL:
    torch.manual_seed(0)
    demonstrations = make_demonstrations(spec, [5, 7], np.random.default_rng(7))
    generator = torch.Generator().manual_seed(1)
    return GAIL(spec, settings(**written), demonstrations, device=CPU, generator=generator)


def test_the_reward_is_for_being_taken_for_the_expert() -> None:
    gail = make(strength=0.5, use_actions=True)
    batch = make_transitions(SPEC, 6, np.random.default_rng(0))
    w = weights(gail.network)
    chosen = np.eye(3)[batch.discrete[:, 0].numpy()]
    seen = np.concatenate(
        [
            *(b.double().numpy() for b in batch.obs),
            batch.continuous,
            chosen,
            batch.terminated[:, None],
        ],
        axis=1,
    )

    rewards = gail.score(batch)

    hidden = swish(layer(w, "body.dense.0", seen))
    probability = 1 / (1 + np.exp(-layer(w, "estimate", hidden)[:, 0]))
    np.testing.assert_allclose(rewards, -0.5 * np.log(1 - probability), rtol=1e-4)
    assert (rewards > 0).all()


def test_actions_are_seen_only_when_asked_for() -> None:
    batch = make_transitions(SPEC, 6, np.random.default_rng(0))
    others = batch._replace(discrete=(batch.discrete + 1) % 3, terminated=~batch.terminated)
    blind, seeing = make(), make(use_actions=True)
    torch.testing.assert_close(blind.score(batch), blind.score(others), rtol=0, atol=0)
    assert not torch.isclose(seeing.score(batch), seeing.score(others)).any()


def test_the_discriminators_loss_by_hand() -> None:
    # -(log ½ + log(1 - ¼)) and -(log ¼ + log(1 - ½)), their mean.
    loss = discriminator_loss(torch.tensor([0.5, 0.25]), torch.tensor([0.25, 0.5]))
    by_hand = -(math.log(0.5) + math.log(0.75) + math.log(0.25) + math.log(0.5)) / 2
    assert loss.item() == pytest.approx(by_hand, rel=1e-5)


def test_the_latents_information_by_hand() -> None:
    # One step each, two numbers: std 1 and e. By number:
    #   -(1 + 0 - ½·1² - ½·0² - 1) = 0.5      -(1 + 2 - ½·0² - ½·2² - e²) = e² - 1
    mean, std = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([1.0, math.e])
    assert latent_information(mean, std).item() == pytest.approx(0.5 + math.e**2 - 1, rel=1e-5)
    # Of noise alone nothing can be learned.
    assert latent_information(torch.zeros(4, 2), torch.ones(2)).item() == 0.0


@pytest.mark.parametrize("use_vail", [False, True])
@pytest.mark.parametrize("use_actions", [False, True])
def test_the_penalty_is_of_the_gradient_by_all_inputs(use_actions: bool, use_vail: bool) -> None:
    torch.manual_seed(0)
    network = Discriminator(SPEC, settings(use_actions=use_actions, use_vail=use_vail)).double()
    batch = make_transitions(SPEC, 3, np.random.default_rng(0))
    seen = network.inputs(batch)
    tensors = [t.double() for t in (*seen.obs, *([] if seen.actions is None else [seen.actions]))]
    inputs = Inputs(tensors[:2], tensors[2] if use_actions else None)

    penalty = gradient_penalty(network, inputs)

    squares, step = np.zeros(3), 1e-5
    with torch.no_grad():
        for tensor in tensors:
            for column in range(tensor.shape[1]):
                sides = []
                for sign in (1, -1):
                    tensor[:, column] += sign * step
                    sides.append(network.probability(network(inputs)).numpy())
                    tensor[:, column] -= sign * step
                squares += ((sides[0] - sides[1]) / (2 * step)) ** 2
    assert penalty.item() == pytest.approx(((np.sqrt(squares) - 1) ** 2).mean(), rel=1e-4)
    penalty.backward()
    assert network.estimate.weight.grad is not None, "and it can be learned from"


def test_what_is_mixed_lies_between() -> None:
    one, other = (
        Inputs([torch.zeros(50, 4)], torch.zeros(50, 2)),
        Inputs([torch.ones(50, 4)], torch.full((50, 2), 3.0)),
    )
    mixed = interpolated(one, other, torch.Generator().manual_seed(0))
    assert mixed.actions is not None
    for values, top in ((mixed.obs[0], 1.0), (mixed.actions, 3.0)):
        assert (values >= 0).all() and (values <= top).all()
        assert len(values.unique()) == values.numel(), "every number has a share of its own"


@pytest.mark.parametrize("use_vail", [False, True])
def test_it_learns_to_tell_them_apart(use_vail: bool) -> None:
    gail = make(learning_rate=1e-2, use_vail=use_vail)
    gail.expert.obs[0] += 2.0
    batch = make_transitions(SPEC, 32, np.random.default_rng(0))
    plotted: dict[str, torch.Tensor] = {}
    for _ in range(150):
        plotted = gail.update(batch)
    assert gail.score(gail.expert).mean() > 1.1 * gail.score(batch).mean()
    assert {
        "Losses/GAIL Loss",
        "Policy/GAIL Policy Estimate",
        "Policy/GAIL Expert Estimate",
        "Policy/GAIL Grad Mag Loss",
    } == plotted.keys() - {"Losses/GAIL KL Loss", "Policy/GAIL Beta"}
    assert ("Policy/GAIL Beta" in plotted) is use_vail


def test_the_bottlenecks_weight_follows_its_excess() -> None:
    gail = make(use_vail=True)
    batch = make_transitions(SPEC, 8, np.random.default_rng(0))
    beta = 0.0
    for _ in range(5):
        plotted = gail.update(batch)
        assert plotted["Policy/GAIL Beta"].item() == pytest.approx(beta, abs=1e-7)
        information = plotted["Losses/GAIL KL Loss"].item()
        beta = max(0.0, beta + 0.0005 * (information - 0.5))
    assert gail.network.beta.item() == pytest.approx(beta, abs=1e-7)


def test_images_are_told_apart_too() -> None:
    spec = behavior(image_8_bit(1, 5, 5), branches=(2,))
    gail = make(spec, network_settings={"hidden_units": 4, "vis_encode_type": "match3"})
    images = np.random.default_rng(0).integers(0, 256, (6, 1, 5, 5), dtype=np.uint8)
    as_bytes = make_transitions(spec, 6, np.random.default_rng(0))._replace(
        obs=[torch.from_numpy(images)]
    )
    as_floats = as_bytes._replace(obs=[torch.from_numpy(images.astype("f4") / 255)])
    torch.testing.assert_close(gail.score(as_bytes), gail.score(as_floats))
    assert gail.update(as_bytes)["Losses/GAIL Loss"].isfinite()


def test_the_experts_statistics_normalize() -> None:
    network = {"hidden_units": 4, "num_layers": 1, "normalize": True}
    gail = make(network_settings=network)
    for encoder, obs in zip(gail.network.body.observations.encoders, gail.expert.obs, strict=True):
        # One observation of mean 0 is counted before any other.
        torch.testing.assert_close(encoder.normalizer.shift, obs.sum(0) / 13)
    before = gail.network.body.observations.encoders[0].normalizer.count.clone()
    gail.update(make_transitions(SPEC, 8, np.random.default_rng(0)))
    assert gail.network.body.observations.encoders[0].normalizer.count == before


def test_the_same_chance_learns_the_same() -> None:
    one, other = make(use_vail=True), make(use_vail=True)
    batch = make_transitions(SPEC, 8, np.random.default_rng(0))
    for _ in range(3):
        expected = one.update(batch)
        torch.rand(1)  # torch's own chance has no part in it
        torch.testing.assert_close(other.update(batch), expected, rtol=0, atol=0)
