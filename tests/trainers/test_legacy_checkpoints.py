"""Checkpoints of the original ML-Agents: of the form it saves, and of models that it trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper

import shared_data
from actors import (
    CASES,
    CONTINUOUS,
    Case,
    action_mask,
    behavior,
    make_actor,
    memories,
    network_settings,
    observations,
    outputs,
)
from guess_environment import GuessEnvironment
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.data.group_steps import Arrangement
from mlagents.trainers.learn import main
from mlagents.trainers.networks.actor_critic import Actor, Critic
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.group_critic import GroupCritic, Places, Seen
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.run.legacy_checkpoints import converted, is_legacy
from mlagents.trainers.settings.behavior import BehaviorSettings
from original_network import OriginalNetwork

STEP = {"_GlobalSteps__global_step": torch.tensor([1234])}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_actor_gives_what_it_gave_in_the_original(case: Case) -> None:
    rng = np.random.default_rng(3)
    original = OriginalNetwork(case.spec, network_settings(**case.settings), seed=1)
    actor = make_actor(case.spec, **case.settings)
    obs, memory = observations(case.spec, 9, rng), memories(actor, 9, rng)
    mean, logits, memory_after = original.act(obs, memory)

    state = converted({"Policy": original.saved(), "global_step": STEP}, ["extrinsic"])
    actor.load_state_dict(state["Policy"])

    ours = outputs(actor, obs, memory)
    theirs = mean, torch.cat(logits, dim=1) if logits else None, memory_after
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, atol=1e-5)
    if mean is not None:
        log_sigma = original.state["action_model._continuous_distribution.log_sigma"]
        torch.testing.assert_close(actor.heads.log_std.detach(), log_sigma[0])
    assert state["global_step"] == 1234


def test_a_critic_gives_the_values_of_the_signals_it_is_asked_for() -> None:
    case, rng = CASES["vector and two images"], np.random.default_rng(3)
    settings = network_settings(**case.settings)
    original = OriginalNetwork(case.spec, settings, seed=2)
    obs = observations(case.spec, 5, rng)
    values = original.value(obs, np.zeros((5, 0)), ["extrinsic", "gail", "curiosity"])

    state = converted(
        {"Optimizer:critic": original.saved(), "global_step": STEP}, ["curiosity", "extrinsic"]
    )
    critic = Critic(NetworkBody(case.spec.observation_specs, settings), n_signals=2)
    critic.load_state_dict(state["Optimizer:critic"])

    found = critic([torch.from_numpy(batch) for batch in obs]).detach()
    expected = torch.stack([values["curiosity"], values["extrinsic"]], dim=1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", ["vector and two images", "two lists of entities"])
def test_a_critic_of_groups_gives_the_estimates_of_the_original(case: str) -> None:
    spec, settings = CASES[case].spec, network_settings(**CASES[case].settings)
    rng, n_members, n_steps = np.random.default_rng(3), 3, 4
    original = OriginalNetwork(spec, settings, seed=2)
    members = [observations(spec, n_steps, rng) for _ in range(n_members)]
    actions = spec.action_spec
    continuous = rng.standard_normal((n_members, n_steps, actions.continuous_size))
    discrete = [rng.integers(n, size=(n_members, n_steps)) for n in actions.discrete_branches]
    chosen = [np.eye(n)[d] for n, d in zip(actions.discrete_branches, discrete, strict=True)]
    done = np.concatenate([continuous, *chosen], axis=2).astype(np.float32)  # by member and step

    def estimate(own: int | None) -> torch.Tensor:
        shown = [None if own in (None, i) else done[i] for i in range(n_members)]
        found = original.value_of_group(
            list(zip(members, shown, strict=True)), largest=5, signals=["curiosity", "extrinsic"]
        )
        return torch.stack([found["extrinsic"], found["curiosity"]], dim=1)

    value, baselines = estimate(None), [estimate(i) for i in range(n_members)]
    state = converted(
        {"Optimizer:critic": original.saved(), "global_step": STEP}, ["extrinsic", "curiosity"]
    )
    critic = GroupCritic(spec, settings, n_signals=2)
    critic.load_state_dict(state["Optimizer:critic"])

    rows = np.arange(n_steps * n_members)  # step by step
    seen = Seen(
        [
            torch.from_numpy(np.stack(batches, axis=1).reshape(-1, *batches[0].shape[1:]))
            for batches in zip(*members, strict=True)
        ],
        torch.from_numpy(np.swapaxes(continuous, 0, 1).reshape(len(rows), -1)).float(),
        torch.from_numpy(np.stack([d.T.reshape(-1) for d in discrete], axis=1)),
        None,
    )
    arrangement = Arrangement(
        np.arange(n_steps), rows, None, [(n_steps, n_members)], rows, rows // n_members, rows
    )
    places = Places.of(arrangement, torch.device("cpu"))
    found, of_members = (each.detach() for each in critic(seen, places))
    expected = torch.stack(baselines, dim=1).flatten(0, 1)
    torch.testing.assert_close(found[::n_members], value, atol=1e-5, rtol=0)
    torch.testing.assert_close(of_members, expected, atol=1e-5, rtol=0)


def test_values_of_sac_are_those_of_the_original() -> None:
    spec, rng = CONTINUOUS, np.random.default_rng(3)
    settings = network_settings(normalize=True)
    original = OriginalNetwork(spec, settings, seed=2)
    obs = observations(spec, 5, rng)
    wanted = original.value(obs, np.zeros((5, 0)), ["extrinsic"])["extrinsic"]
    sac = SAC(
        spec,
        BehaviorSettings(trainer_type="sac", network_settings=settings),
        device=torch.device("cpu"),
        seed=0,
    )

    # The original copies the actor's statistics into every network before it learns.
    networks = "Policy", "Optimizer:value_network", "Optimizer:target_network"
    theirs = {name: original.saved() for name in networks}
    state = converted({**theirs, "global_step": STEP}, ["extrinsic"])
    sac.value.load_state_dict(state["Optimizer:value_network"])
    sac.target_value.load_state_dict(state["Optimizer:target_network"])
    prefix = "body.observations."
    sac.actor.body.observations.load_state_dict(
        {n.removeprefix(prefix): t for n, t in state["Policy"].items() if n.startswith(prefix)}
    )

    seen = sac.actor.body.observations.normalized([torch.from_numpy(batch) for batch in obs])
    for network in (sac.value, sac.target_value):
        torch.testing.assert_close(network(seen).detach()[:, 0], wanted, atol=1e-5, rtol=0)


def test_a_normalizer_goes_on_counting_where_it_was() -> None:
    # 50 steps with mean 1 and sum of squares 200, that is variance 4; then 1 + 2 * 3 = 7 comes:
    # mean = 1 + 6 / 51, squares = 200 + (7 - mean) * 6.
    actor = make_actor(behavior(1, continuous=1), normalize=True)
    normalizer = actor.body.observations.encoders[0].normalizer
    name = "network_body.observation_encoder.processors.0.normalizer"
    theirs = {
        f"{name}.running_mean": torch.tensor([1.0]),
        f"{name}.running_variance": torch.tensor([200.0]),
        f"{name}.normalization_steps": torch.tensor(50),
    }
    state = converted({"Policy": theirs, "global_step": STEP}, [])["Policy"]
    prefix = "body.observations.encoders.0.normalizer."
    normalizer.load_state_dict({key.removeprefix(prefix): value for key, value in state.items()})

    seven = torch.tensor([[7.0]])
    assert normalizer(seven).item() == pytest.approx(3.0)
    normalizer.update(seven)

    mean = 1 + 6 / 51
    assert normalizer.count.item() == 51
    assert normalizer.mean.item() == pytest.approx(mean)
    assert normalizer.squares.item() == pytest.approx(200 + (7 - mean) * 6)


MODELS = {
    "3DBall": Case(behavior(8, continuous=2), {"hidden_units": 128, "normalize": True}),
    "PushBlock": Case(behavior(105, 105, branches=(7,)), {"hidden_units": 256}),
    "Match3VectorObs": Case(
        behavior(432, 216, branches=(127,)),
        {"hidden_units": 256, "num_layers": 4, "normalize": True},
    ),
}


def load_model(name: str) -> tuple[onnxruntime.InferenceSession, dict[str, torch.Tensor]]:
    """Load a model that the original trained and exported.

    Returns:
        The model, whose only output is what chance has no part in: the mean action, or the
        log-probabilities of discrete ones. And the weights as they were saved. Of a normalizer the
        graph holds the mean, under its name, and the deviation that it divides by.
    """
    model = onnx.load(shared_data.require(shared_data.ROOT / "models" / f"{name}.onnx"))
    graph = model.graph
    weights = {
        each.name: torch.from_numpy(numpy_helper.to_array(each).copy())
        for each in graph.initializer
    }
    divisors = {node.input[0]: node.input[1] for node in graph.node if node.op_type == "Div"}
    for node in graph.node:
        if node.op_type == "Sub" and node.input[1].endswith(".running_mean"):
            normalizer = node.input[1].removesuffix("running_mean")
            steps = torch.tensor(4_000_000)
            deviation = weights[divisors[node.output[0]]]
            weights[f"{normalizer}normalization_steps"] = steps
            weights[f"{normalizer}running_variance"] = deviation.square() * steps
    log_probs = [node.output[0] for node in graph.node if node.op_type == "Log"]
    (output,) = log_probs or ["deterministic_continuous_actions"]
    del graph.output[:]
    graph.output.append(onnx.helper.make_empty_tensor_value_info(output))
    return onnxruntime.InferenceSession(model.SerializeToString()), weights


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_was_trained_in_unity_acts_the_same(name: str) -> None:
    session, weights = load_model(name)
    spec, settings = MODELS[name]
    rng = np.random.default_rng(4)
    obs, mask = observations(spec, 50, rng), action_mask(spec, 50, rng)
    inputs = {f"obs_{i}": batch for i, batch in enumerate(obs)}
    if spec.action_spec.discrete_size:
        inputs["action_masks"] = (~mask).astype(np.float32)
    (expected,) = session.run(None, inputs)

    assert is_legacy({"Policy": weights})
    actor = Actor(spec, network_settings(**settings))
    actor.load_state_dict(converted({"Policy": weights, "global_step": STEP}, [])["Policy"])

    if spec.action_spec.continuous_size:
        policy = ActingPolicy(snapshot_of(actor), spec.action_spec, deterministic=True, rng=rng)
        found = policy.act(obs, mask).action.continuous
    else:
        _, logits, _ = outputs(actor, obs)
        allowed = np.where(mask, -1e8, logits)
        found = torch.from_numpy(allowed).softmax(dim=1).numpy()
        expected = np.exp(expected)
    np.testing.assert_allclose(found, expected, atol=1e-5)


CONFIGURATION = """
behaviors:
  Guess:
    trainer_type: ppo
    # Too slow to be seen, so that what was loaded is what is saved in the end.
    hyperparameters: {batch_size: 64, buffer_size: 512, learning_rate: 1.0e-10}
    network_settings: {hidden_units: 16, num_layers: 1, normalize: true}
    max_steps: 2000
    time_horizon: 8
environment_parameters:
  wall:
    curriculum:
      - {name: low, value: 1, completion_criteria: {behavior: Guess, threshold: 99}}
      - {name: high, value: 2, completion_criteria: {behavior: Guess, threshold: 99}}
      - {name: top, value: 3}
"""
ENVIRONMENT = "guess_environment:GuessEnvironment"


@pytest.fixture
def run_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the original, in its second lesson at step 1234, as it leaves it in a folder."""
    monkeypatch.chdir(tmp_path)
    Path("guess.yaml").write_text(CONFIGURATION)
    spec = GuessEnvironment().spec
    settings = network_settings(num_layers=1, normalize=True)
    actor, critic = (OriginalNetwork(spec, settings, seed=seed) for seed in (1, 2))
    nothing_seen = [np.zeros((1, *o.shape), np.float32) for o in spec.observation_specs]
    actor.act(nothing_seen, np.zeros((1, 0), np.float32))
    critic.value(nothing_seen, np.zeros((1, 0), np.float32), ["extrinsic"])
    adam = torch.optim.Adam(actor.state.values())

    run = Path("results/old")
    (run / "Guess").mkdir(parents=True)
    (run / "run_logs").mkdir()
    for name in ("checkpoint.pt", "Guess-1234.pt"):
        torch.save(
            {
                "Policy": actor.saved(),
                "global_step": STEP,
                "Optimizer:value_optimizer": adam.state_dict(),
                "Optimizer:critic": critic.saved(),
            },
            run / "Guess" / name,
        )
    for path in (run / "Guess.onnx", run / "Guess/Guess-1234.onnx"):
        path.write_bytes(b"a model")
    entry = {
        "steps": 1234,
        "file_path": "results/old/Guess/Guess-1234.onnx",
        "reward": 0.5,
        "creation_time": 1700000000.5,
        "auxillary_file_paths": ["results/old/Guess/Guess-1234.pt"],
    }
    status = {
        "Guess": {
            "checkpoints": [entry],
            "final_checkpoint": entry | {"file_path": "results/old/Guess.onnx"},
            "elo": 1210.5,
        },
        "wall": {"lesson_num": 1},
        "metadata": {
            "stats_format_version": "0.3.0",
            "mlagents_version": "1.1.0",
            "torch_version": "2.1.1",
        },
    }
    (run / "run_logs/training_status.json").write_text(json.dumps(status, indent=4))
    return run


def learn(*arguments: str, run_id: str = "new") -> int:
    return main(["guess.yaml", "--env", ENVIRONMENT, "--run-id", run_id, *arguments])


def weights(run_id: str, network: str) -> dict[str, torch.Tensor]:
    path = Path("results", run_id, "Guess", "checkpoint.pt")
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True)[network]
    return state


def warnings_in(log: str) -> list[str]:
    of_the_environment = "GuessEnvironment does not support environment parameters"
    lines = [line for line in log.splitlines() if "[WARNING]" in line]
    return [line for line in lines if of_the_environment not in line]


def test_resume_goes_on_with_a_run_of_the_original(
    run_of_the_original: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = {network: weights("old", network) for network in ("Policy", "Optimizer:critic")}

    assert learn("--resume", run_id="old") == 0

    log = capsys.readouterr().out
    assert "Resuming Guess at step 1234." in log
    assert "These start from scratch: Optimizer:value_optimizer, random_states." in log
    assert "'wall' is in lesson 'high' (2 of 3)" in log
    assert not warnings_in(log)
    for network, saved in theirs.items():
        found = weights("old", network)["body.dense.0.weight"]
        torch.testing.assert_close(
            found, saved["network_body._body_endoder.seq_layers.0.weight"], atol=1e-6, rtol=0
        )
        counts = "normalizer.normalization_steps", "normalizer.count"
        before = saved[f"network_body.observation_encoder.processors.0.{counts[0]}"]
        after = weights("old", network)[f"body.observations.encoders.0.{counts[1]}"]
        assert after == before + 512, "what was observed was counted on"
    status = json.loads((run_of_the_original / "run_logs/training_status.json").read_text())
    assert [entry["steps"] for entry in status["Guess"]["checkpoints"]] == [1234, 2002]
    assert status["Guess"]["elo"] == 1210.5
    assert status["wall"]["lesson_num"] == 1
    assert (run_of_the_original / "Guess/Guess-1234.pt").exists()


@pytest.mark.parametrize("by_path", [False, True])
@pytest.mark.usefixtures("run_of_the_original")
def test_a_run_begins_with_the_weights_of_the_original(
    by_path: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--initialize-from", "old"]
    if by_path:
        init_path = "    init_path: results/old/Guess/Guess-1234.pt\n"
        after = "    time_horizon: 8\n"
        Path("guess.yaml").write_text(CONFIGURATION.replace(after, after + init_path))
        arguments = []

    assert learn(*arguments) == 0

    assert not warnings_in(capsys.readouterr().out)
    torch.testing.assert_close(
        weights("new", "Optimizer:critic")["values.weight"],
        weights("old", "Optimizer:critic")["value_heads.value_heads.extrinsic.weight"],
        atol=1e-6,
        rtol=0,
    )
    state = torch.load("results/new/Guess/checkpoint.pt", weights_only=True)
    assert 2000 <= state["global_step"] < 2100, "counted from zero"


@pytest.mark.usefixtures("run_of_the_original")
def test_what_does_not_fit_is_named_and_stops_only_what_is_resumed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("guess.yaml").write_text(CONFIGURATION.replace("num_layers: 1", "num_layers: 2"))

    assert learn("--initialize-from", "old") == 0
    log = capsys.readouterr().out
    assert "These start from scratch: Policy: body.dense.2, Optimizer:critic: body.dense.2." in log
    assert learn("--resume", run_id="old") == 1

    log = capsys.readouterr().out
    assert "does not fit behavior 'Guess'" in log and "body.dense.2.weight" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([1, 2], "is not a checkpoint: expected a dictionary, got a list"),
        ({"model": {"weight": torch.zeros(2)}}, "does not fit behavior 'Guess': no layer"),
        ({"Policy": 5}, "cannot be used: its Policy is not a dictionary of tensors"),
        ({"Policy": {"network_body.x": torch.zeros(1)}}, "does not fit behavior 'Guess'"),
    ],
)
@pytest.mark.usefixtures("run_of_the_original")
def test_what_is_neither_ours_nor_theirs_is_one_clear_error(
    content: Any, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(content, "results/old/Guess/checkpoint.pt")

    assert learn("--initialize-from", "old") == 1

    log = capsys.readouterr().out
    assert expected in log and "Traceback" not in log
