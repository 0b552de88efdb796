"""Curiosity, computed again in float64 NumPy from its equations."""

import copy

import numpy as np
import pytest
import torch

from actors import behavior
from mlagents.trainers.algorithms.curiosity import Curiosity
from mlagents.trainers.settings.behavior import CuriositySettings
from steps import layer, make_transitions, swish, weights

SPEC = behavior(3, continuous=2, branches=(3, 2))
CPU = torch.device("cpu")


def make(**settings: object) -> Curiosity:
    network = {"hidden_units": 4, "num_layers": 1}
    torch.manual_seed(0)
    return Curiosity(
        SPEC,
        CuriositySettings.model_validate({"network_settings": network} | settings),
        device=CPU,
    )


def test_losses_and_rewards_follow_the_equations() -> None:
    curiosity = make(strength=0.5)
    batch = make_transitions(SPEC, 6, np.random.default_rng(0))
    w = weights(curiosity.network)

    plotted = curiosity.update(batch)

    before, after = (
        swish(layer(w, "features.dense.0", obs[0].double().numpy()))
        for obs in (batch.obs, batch.next_obs)
    )
    choices = batch.discrete.numpy()
    one_hot = [np.eye(size)[choices[:, k]] for k, size in enumerate((3, 2))]
    continuous = batch.continuous.double().numpy()
    actions = np.concatenate([continuous, *one_hot], axis=1)
    hidden = swish(layer(w, "forward_model.0.0", np.concatenate([before, actions], 1)))
    errors = 0.5 * ((after - layer(w, "forward_model.1", hidden)) ** 2).sum(1)
    hidden = swish(layer(w, "inverse.0.0", np.concatenate([before, after], 1)))
    told = layer(w, "inverse.1", hidden)
    inverse = ((told[:, :2] - continuous) ** 2).sum(1)
    for logits, chosen in zip((told[:, 2:5], told[:, 5:]), one_hot, strict=True):
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        inverse -= np.log((probabilities * chosen).sum(1))
    assert plotted["Losses/Curiosity Forward Loss"].item() == pytest.approx(errors.mean(), rel=1e-5)
    assert plotted["Losses/Curiosity Inverse Loss"].item() == pytest.approx(
        inverse.mean(), rel=1e-5
    )
    with torch.no_grad():
        for name, value in curiosity.network.named_parameters():
            value.copy_(torch.from_numpy(w[name]))
    np.testing.assert_allclose(curiosity.score(batch), np.minimum(0.5 * errors, 1.0), rtol=1e-5)


def test_the_gradient_is_of_both_losses_by_their_weights() -> None:
    curiosity = make()
    batch = make_transitions(SPEC, 6, np.random.default_rng(0))
    forward_error, inverse_error = curiosity.network.errors(batch)
    (10 * (0.2 * forward_error.mean() + 0.8 * inverse_error.mean())).backward()
    expected = [p.grad.clone() for p in curiosity.network.parameters()]

    curiosity.update(batch)

    for gradient, parameter in zip(expected, curiosity.network.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_nothing_is_rewarded_before_it_has_learned() -> None:
    curiosity = make()
    batch = make_transitions(SPEC, 6, np.random.default_rng(0))
    assert curiosity.score(batch).tolist() == [0.0] * 6
    curiosity.update(batch)
    assert (curiosity.score(batch) > 0).all()

    resumed = make()
    for name, module in resumed.modules().items():
        module.load_state_dict(copy.deepcopy(curiosity.modules()[name].state_dict()))
    torch.testing.assert_close(resumed.score(batch), curiosity.score(batch), rtol=0, atol=0)


@pytest.mark.parametrize("strength", [0.0, 0.01, 100.0])
def test_no_reward_is_above_one(strength: float) -> None:
    curiosity = make(strength=strength)
    batch = make_transitions(SPEC, 50, np.random.default_rng(0))
    curiosity.update(batch)
    rewards = curiosity.score(batch)
    assert (rewards >= 0).all() and (rewards <= 1).all()
    assert bool((rewards == 1).any()) is (strength == 100.0)


def test_what_is_predicted_well_is_rewarded_less() -> None:
    curiosity = make(learning_rate=1e-2)
    known, new = (make_transitions(SPEC, 8, np.random.default_rng(seed)) for seed in (0, 1))
    for _ in range(200):
        curiosity.update(known)
    assert curiosity.score(known).mean() < 0.3 * curiosity.score(new).mean()


def test_statistics_of_observations_are_kept() -> None:
    network = {"hidden_units": 4, "num_layers": 1, "normalize": True}
    curiosity = make(network_settings=network)
    batch = make_transitions(SPEC, 5000, np.random.default_rng(0))
    curiosity.update(batch)
    (encoder,) = curiosity.network.features.observations.encoders
    torch.testing.assert_close(encoder.normalizer.shift, batch.obs[0].mean(0), rtol=1e-2, atol=1e-2)
