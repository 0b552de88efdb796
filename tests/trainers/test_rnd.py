import numpy as np
import pytest
import torch

from actors import behavior
from mlagents.trainers.algorithms import rnd as rnd_module
from mlagents.trainers.algorithms.rnd import RND
from mlagents.trainers.settings.behavior import RNDSettings
from steps import layer, make_transitions, swish, weights

SPEC = behavior(3, continuous=1)


def make(*, normalize: bool = False, **settings: object) -> RND:
    torch.manual_seed(0)
    network = {"hidden_units": 4, "num_layers": 1, "normalize": normalize}
    written = {"network_settings": network, "learning_rate": 1e-2} | settings
    return RND(SPEC, RNDSettings.model_validate(written), device=torch.device("cpu"))


def test_the_reward_is_the_distance_to_the_target() -> None:
    rnd = make(strength=0.5)
    batch = make_transitions(SPEC, 6, np.random.default_rng(0))
    obs = batch.obs[0].double().numpy()
    predicted, wanted = (
        swish(layer(weights(network), "dense.0", obs)) for network in (rnd.predictor, rnd.target)
    )
    distances = ((predicted - wanted) ** 2).sum(1)

    np.testing.assert_allclose(rnd.score(batch), 0.5 * distances, rtol=1e-5)
    assert rnd.update(batch)["Losses/RND Loss"].item() == pytest.approx(distances.mean(), rel=1e-5)


def test_what_was_seen_often_is_rewarded_less() -> None:
    rnd = make()
    known, new = (make_transitions(SPEC, 8, np.random.default_rng(seed)) for seed in (0, 1))
    for _ in range(300):
        rnd.update(known)
    assert rnd.score(new).mean() > 10 * rnd.score(known).mean()


def test_the_target_never_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnd_module, "NORMALIZED_BY", 100)
    rnd = make(normalize=True)
    rng = np.random.default_rng(0)
    probe = make_transitions(SPEC, 5, rng)
    for _ in range(11):  # ten counted observations each, and one that the count starts with
        rnd.update(make_transitions(SPEC, 10, rng))
    fixed = rnd.target(probe.obs)
    normalizers = [
        network.observations.encoders[0].normalizer for network in (rnd.predictor, rnd.target)
    ]
    torch.testing.assert_close(normalizers[0].shift, normalizers[1].shift, rtol=0, atol=0)
    assert (normalizers[0].shift != 0).all(), "observations are normalized"

    for _ in range(20):
        rnd.update(make_transitions(SPEC, 10, rng))

    torch.testing.assert_close(rnd.target(probe.obs), fixed, rtol=0, atol=0)
    assert normalizers[1].count.item() == 101
    assert not any(p.requires_grad for p in rnd.target.parameters())
