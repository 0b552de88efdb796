"""What a person reads before and after a run."""

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.reporting.summaries import (
    Outcome,
    behavior_in_words,
    failure_in_words,
    next_commands,
    outcomes_in_words,
    run_in_words,
)
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.programs import command, program


def options(**sections: dict[str, Any]) -> RunOptions:
    return RunOptions.model_validate(sections)


def test_a_run_in_words() -> None:
    run = options(
        env_settings={"env_path": "builds/Ball", "num_envs": 4, "num_areas": 2, "seed": 5},
        checkpoint_settings={"run_id": "first"},
    )
    assert run_in_words(run, device="cuda", threads=2) == (
        "Training:\n"
        "  environment  builds/Ball\n"
        "  players      4, 2 areas each\n"
        "  seed         5\n"
        "  begins with  an untrained policy\n"
        "  computes on  cuda, 2 threads\n"
        f"  results      {Path('results/first')}"
    )


@pytest.mark.parametrize(
    ("checkpoints", "line"),
    [
        ({}, "begins with  an untrained policy"),
        ({"resume": True}, "begins with  a resumed run"),
        ({"initialize_from": "old"}, f"begins with  the weights of {Path('results/old')}"),
        ({"inference": True}, "Acting, without learning or saving:"),
    ],
)
def test_how_a_run_begins(checkpoints: dict[str, Any], line: str) -> None:
    text = run_in_words(options(checkpoint_settings=checkpoints), device="cpu", threads=1)
    assert line in text
    assert "the Unity Editor, on port 5004" in text and "cpu, 1 thread\n" in text


def observation(
    name: str, *shape: int, first: DimensionProperty = DimensionProperty.NONE, goal: bool = False
) -> ObservationSpec:
    properties = (first, *[DimensionProperty.NONE] * (len(shape) - 1))
    kind = ObservationType.GOAL_SIGNAL if goal else ObservationType.DEFAULT
    return ObservationSpec(shape, properties, kind, name, np.dtype(np.float32))


def test_a_behavior_in_words() -> None:
    spec = BehaviorSpec(
        [
            observation("Vector", 8),
            observation("Camera", 3, 84, 90),
            observation("Food", 20, 4, first=DimensionProperty.VARIABLE_SIZE),
            observation("Grid", 5, 6),
            observation("Target", 1, goal=True),
        ],
        ActionSpec.create_hybrid(1, (3, 2)),
    )
    assert behavior_in_words("Ball", spec, BehaviorSettings()) == (
        "Behavior Ball:\n"
        "  trained by  ppo for 500,000 steps\n"
        "  observes    Vector: 8 numbers\n"
        "              Camera: image, 3 x 84 x 90 (channels, height, width)\n"
        "              Food: up to 20 entities of 4 numbers\n"
        "              Grid: array of 5 x 6\n"
        "              Target: 1 number, the goal\n"
        "  does        1 continuous action and 2 discrete actions of 3 x 2 choices"
    )
    idle = BehaviorSpec([], ActionSpec.create_continuous(0))
    assert behavior_in_words("Idle", idle, BehaviorSettings()).endswith("does        nothing")


def test_outcomes_in_words() -> None:
    outcomes = [
        Outcome("Ball", 500_032, 500_000, 99.98765, 100, Path("results/first/Ball.onnx")),
        Outcome("Wall", 10, 500_000, None, 0, None),
    ]
    assert outcomes_in_words(outcomes, elapsed_s=3725.4) == (
        "Trained for 1:02:05:\n"
        "  Ball\n"
        "    reward  99.988, mean of the last 100 episodes\n"
        "    steps   500,032 of 500,000\n"
        f"    model   {Path('results/first/Ball.onnx')}\n"
        "  Wall\n"
        "    reward  no episode ended\n"
        "    steps   10 of 500,000\n"
        "    model   could not be written"
    )


def test_the_outcome_of_groups_is_told_beside_that_of_agents() -> None:
    outcome = Outcome("Box", 10, 10, 0.5, 4, Path("Box.onnx"), mean_group_reward=7.25)
    lines = outcomes_in_words([outcome], elapsed_s=1.0).splitlines()
    assert "    reward        0.500, mean of the last 4 episodes" in lines
    assert "    group reward  7.250" in lines


def test_what_a_player_wrote_comes_before_the_error() -> None:
    text = "player 0 failed. It exited with code 3. The last lines it wrote:\n    noise\n    more"
    assert failure_in_words(OSError(text)) == [
        "Last lines of a player's output:\n    noise\n    more",
        "player 0 failed. It exited with code 3.",
    ]
    assert failure_in_words(OSError("it is full")) == ["it is full"]


def commands(*argv: str) -> list[str]:
    """Return the commands shown after a run that was typed so."""
    command_line = parse_command_line(argv)
    return next_commands(command_line, RunOptions()).splitlines()[2::2]


@pytest.mark.skipif(os.name == "nt", reason="quotes as other shells do")
def test_the_commands_repeat_what_was_typed_quoted() -> None:
    typed = ["my ball.yaml", "--env", "3DBall", "--force", "--run=a b", "--no-graphics"]
    learn, tensorboard = (command(*program(name)) for name in ("mlagents-learn", "tensorboard"))
    base = f"{learn} 'my ball.yaml' --env 3DBall --run-id 'a b' --no-graphics"
    assert commands(*typed, "--env-args", "--x", "1") == [
        f"    {base} --resume --env-args --x 1",
        f"    {base} --resume --inference --env-args --x 1",
        f"    {tensorboard} --logdir {Path('results/ppo')}",
    ]


def test_a_goal_that_was_reached_is_not_repeated() -> None:
    def advice(*argv: str, has_learned: bool) -> list[str]:
        typed = parse_command_line(["a.yaml", *argv])
        return next_commands(typed, RunOptions(), has_learned=has_learned).splitlines()[1:3]

    why, resume = advice("--stop-at-reward", "95", has_learned=True)
    assert why == "  to resume, without --stop-at-reward:" and "stop" not in resume
    why, resume = advice("--stop-at-reward", "95", has_learned=False)
    assert why == "  to resume:" and "--stop-at-reward 95" in resume
    why, _ = advice(has_learned=True)
    assert why == "  to resume, after raising stop_at_reward:"


def test_a_run_that_reached_max_steps_is_not_resumed_as_it_is() -> None:
    typed = parse_command_line(["a.yaml"])
    lines = next_commands(typed, RunOptions(), has_finished=True).splitlines()
    assert lines[1] == "  to train longer, after raising max_steps:"
    assert lines[2].endswith("a.yaml --resume")


def test_a_policy_cloned_without_an_environment_has_no_reward_and_nothing_to_act_in() -> None:
    outcome = Outcome("Ball", 10, 10, None, 0, Path("Ball.onnx"), is_offline=True)
    told = outcomes_in_words([outcome], elapsed_s=1.0)
    assert "reward  unknown: learned from demonstrations alone" in told
    ball = {"trainer_type": "bc", "behavioral_cloning": {"demo_path": "ball.demo"}}
    cloned = RunOptions.model_validate({"behaviors": {"Ball": ball}})
    assert "--inference" not in next_commands(parse_command_line(["a.yaml"]), cloned)


FLAGS_TYPED = st.lists(
    st.sampled_from(
        [
            *(("--env", "x y"), ("--seed", "-1"), ("--run-id=-odd",), ("--time-scale", "2.5")),
            *(("--force",), ("--resume",), ("--inference",), ("--initialize-from", "old")),
            *(
                ("--stop-at-reward=-1.5",),
                ("--deterministic",),
                ("--debug",),
                ("--torch-device", "cuda:0"),
                ("--load",),
            ),
        ]
    ),
    unique=True,
)


@pytest.mark.skipif(os.name == "nt", reason="quotes as other shells do")
@given(FLAGS_TYPED, st.none() | st.lists(st.text("ab -'\"$", min_size=1), max_size=3))
def test_a_command_means_what_was_typed_but_for_how_it_begins(
    flags: list[tuple[str, ...]], env_args: list[str] | None
) -> None:
    argv = ["a.yaml", *(word for flag in flags for word in flag)]
    argv += [] if env_args is None else ["--env-args", *env_args]
    typed = parse_command_line(argv)
    resumed = parse_command_line(
        shlex.split(next_commands(typed, RunOptions()).splitlines()[2])[1:]
    )

    def without_beginning(command_line: CommandLine) -> dict[str, Any]:
        begin = {"resume", "force", "inference", "initialize_from"}
        sections = {**command_line.settings}
        checkpoints = sections.pop("checkpoint_settings", {})
        rest = {key: value for key, value in checkpoints.items() if key not in begin}
        return {"rest": rest, **sections}

    assert without_beginning(resumed) == without_beginning(typed)
    assert resumed.settings["checkpoint_settings"]["resume"] is True
    assert (resumed.config_path, resumed.deterministic) == (typed.config_path, typed.deterministic)
    assert resumed.stop_at_reward == typed.stop_at_reward
