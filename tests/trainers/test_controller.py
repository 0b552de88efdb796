"""The controller among a scripted manager, real trainers and a real folder."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.learning.on_policy import OnPolicyLearner
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES, TrainerType
from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.reporting.stats import StatsSummary, StatsWriter
from mlagents.trainers.reporting.summaries import is_resumable
from mlagents.trainers.run.controller import Controller
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.run.interrupt import Interrupt, Interrupted
from mlagents.trainers.settings.hyperparameters import PPOSettings
from mlagents.trainers.settings.parameters import Sampler
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.side_channel.stats_side_channel import EnvironmentStats, StatsAggregationMethod

SPEC = BehaviorSpec([ObservationSpec.vector(1, "number")], ActionSpec.create_continuous(1))
WIDE = BehaviorSpec([ObservationSpec.vector(2, "number")], ActionSpec.create_continuous(1))
SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 4, "buffer_size": 8},
    "network_settings": {"hidden_units": 4, "num_layers": 1},
    "time_horizon": 4,
    "summary_freq": 4,
    "checkpoint_interval": 1000,
    "max_steps": 40,
}


class EpisodesOfOneStep(EnvManager):
    """Every step is an episode with a reward of 1, of one agent of each behavior of each player.

    Attributes:
        log: What it was told, in order: parameters by name, "reset", or (player, behaviors).
    """

    def __init__(
        self,
        behaviors: Sequence[str] = ("A?team=0",),
        *,
        n_players: int = 1,
        statistics: EnvironmentStats | None = None,
        specs: Mapping[str, BehaviorSpec] | None = None,
    ) -> None:
        self._specs = {name: SPEC for name in behaviors} | dict(specs or {})
        self.log: list[Any] = []
        self.closed = False
        self._n_players = n_players
        self._statistics = statistics or {}
        self._new: set[int] = set()

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        return self._specs

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        self.log.append({name: p.sampler_parameters.value for name, p in parameters.items()})

    def reset(self) -> None:
        self.log.append("reset")
        self._new = set(range(self._n_players))

    def receive(self) -> list[PlayerSteps]:
        return [
            PlayerSteps(
                player,
                {
                    name: self._steps(number, spec, is_new=player in self._new)
                    for number, (name, spec) in enumerate(self.behavior_specs.items())
                },
                player in self._new,
                self._statistics,
            )
            for player in range(self._n_players)
        ]

    def _steps(
        self, agent: int, spec: BehaviorSpec, *, is_new: bool
    ) -> tuple[DecisionSteps, TerminalSteps]:
        obs = [np.zeros((1, *o.shape), np.float32) for o in spec.observation_specs]
        ids, zero, one = (
            np.array([agent], np.int32),
            np.zeros(1, np.float32),
            np.ones(1, np.float32),
        )
        group = np.zeros(1, np.int32)
        decisions = DecisionSteps(obs, zero, ids, None, group, zero)
        if is_new:
            return decisions, TerminalSteps.empty(spec)
        return decisions, TerminalSteps(obs, one, np.zeros(1, np.bool_), ids, group, zero)

    def send(self, player: int, actions: Mapping[str, ActionTuple]) -> None:
        assert all(len(action.continuous) == 1 for action in actions.values())
        self._new.discard(player)
        self.log.append((player, tuple(actions)))

    def close(self) -> None:
        self.closed = True


class Summaries(StatsWriter):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, Mapping[str, StatsSummary]]] = []

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        self.seen.append((category, step, values))


def options(**written: Any) -> RunOptions:
    return RunOptions.model_validate(
        {"default_settings": SETTINGS, "env_settings": {"seed": 1}, **written}
    ).with_seed(1)


def controller(
    manager: EnvManager, folder: Path, run_options: RunOptions | None = None, **arguments: Any
) -> Controller:
    defaults: dict[str, Any] = {
        "writers": [],
        "device": torch.device("cpu"),
        "interrupt": Interrupt(),
    }
    return Controller(run_options or options(), manager, RunFolder(folder), **defaults | arguments)


def status(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run_logs/training_status.json").read_text())


def test_each_behavior_has_its_trainer_and_teams_share_one(tmp_path: Path) -> None:
    manager = EpisodesOfOneStep(["B?team=0", "A?team=1", "A?team=0"], n_players=2)
    half = options(behaviors={"B": {**SETTINGS, "max_steps": 20}})
    run = controller(manager, tmp_path, half)

    run.run()

    assert list(run.trainers) == ["B", "A"], "in the order of appearance"
    assert (run.trainers["B"].step, run.trainers["A"].step) == (20, 40)
    assert {name for name in status(tmp_path) if name != "metadata"} == {"A", "B"}
    sent = [entry for entry in manager.log if isinstance(entry, tuple)]
    both = [(player, tuple(manager.behavior_specs)) for player in range(2)]
    # Two teams in each player: A has twice the steps of B in as long. The last is not answered.
    assert sent == 10 * both


def test_teams_that_do_not_fit_one_policy_are_named(tmp_path: Path) -> None:
    manager = EpisodesOfOneStep(["A?team=0"], specs={"A?team=1": WIDE})

    with pytest.raises(
        UnityTrainerException, match=r"'A\?team=1' and the other teams of 'A' have different"
    ):
        controller(manager, tmp_path).run()


def test_a_behavior_nobody_configured_stops_the_run_before_it_leaves_anything(
    tmp_path: Path,
) -> None:
    written = {"behaviors": {"A": SETTINGS}, "env_settings": {"seed": 1}}
    run = controller(EpisodesOfOneStep(["A", "B"]), tmp_path, RunOptions.model_validate(written))

    with pytest.raises(TrainerConfigError, match="'B' that is not configured"):
        run.run()

    assert not list(tmp_path.iterdir()), "so that it can be started again as it was"


def test_an_unknown_trainer_type_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnityTrainerException, match=r"trainer type 'ppo'\. Choose one of mine"):
        controller(
            EpisodesOfOneStep(), tmp_path, trainer_types={"mine": TRAINER_TYPES["ppo"]}
        ).run()


def test_a_behavior_that_cannot_be_trained_is_named(tmp_path: Path) -> None:
    written = {
        "behaviors": {"A": SETTINGS | {"behavioral_cloning": {"demo_path": "gone.demo"}}},
        "env_settings": {"seed": 1},
    }
    run = controller(EpisodesOfOneStep(), tmp_path, RunOptions.model_validate(written))
    with pytest.raises(UnityTrainerException, match=r"^behaviors\.A: demo_path: .* gone\.demo"):
        run.run()


def stopping_at(reward: float, **settings: Any) -> dict[str, Any]:
    return {**SETTINGS, "max_steps": 1000, "stop_at_reward": reward, **settings}


def test_a_behavior_that_earns_enough_is_trained_no_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Every step is an episode with a reward of 1: after a hundred the mean is known.
    run = controller(EpisodesOfOneStep(), tmp_path, options(behaviors={"A": stopping_at(1.0)}))

    run.run()

    assert run.trainers["A"].step == 100
    assert status(tmp_path)["A"]["final_checkpoint"]["steps"] == 100
    log = capsys.readouterr().out
    assert "ppo for 1,000 steps, or until the mean reward is 1\n" in log
    assert "A has reached a mean reward of 1.000 at step 100 (stop_at_reward: 1)." in log
    assert "steps   100 of 1,000; ended by stop_at_reward: 1" in log


def test_a_reward_just_short_of_it_does_not_end_training(tmp_path: Path) -> None:
    short = options(behaviors={"A": stopping_at(1.01, max_steps=120)})
    run = controller(EpisodesOfOneStep(), tmp_path, short)
    run.run()
    assert run.trainers["A"].step == 120 and not run.trainers["A"].has_learned


def test_one_that_has_learned_acts_on_beside_others(tmp_path: Path) -> None:
    both = {"A": stopping_at(1.0), "B": {**SETTINGS, "max_steps": 140}}
    run = controller(EpisodesOfOneStep(["A", "B"]), tmp_path, options(behaviors=both))
    run.run()
    assert run.trainers["A"].has_learned and run.trainers["B"].step == 140


def test_a_run_that_has_learned_is_resumed_to_learn_more_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller(EpisodesOfOneStep(), tmp_path, options(behaviors={"A": stopping_at(1.0)})).run()
    resumed = {"checkpoint_settings": {"resume": True}}
    again = options(behaviors={"A": stopping_at(1.0)}, **resumed)
    run = controller(EpisodesOfOneStep(), tmp_path, again)
    run.run()
    assert run.trainers["A"].step == 100
    assert "To train A further, raise stop_at_reward or leave it out." in capsys.readouterr().out
    on = options(behaviors={"A": {**SETTINGS, "max_steps": 120}}, **resumed)
    run = controller(EpisodesOfOneStep(), tmp_path, on)
    run.run()
    assert run.trainers["A"].step == 120


def test_nothing_is_learned_enough_before_the_last_lesson(tmp_path: Path) -> None:
    criteria = {"behavior": "A", "measure": "progress", "threshold": 0.15, "min_lesson_length": 1}
    lessons = [
        {"name": "low", "value": 1.0, "completion_criteria": criteria},
        {"name": "high", "value": 2.0},
    ]
    run = controller(
        EpisodesOfOneStep(),
        tmp_path,
        options(
            behaviors={"A": stopping_at(1.0)},
            environment_parameters={"wall": {"curriculum": lessons}},
        ),
    )
    run.run()
    # The first lesson ends above 150 of 1000 steps; the last needs its own hundred episodes.
    assert run.trainers["A"].step == 251


CURRICULUM = {
    "wall": {
        "curriculum": [
            {
                "name": "low",
                "value": 1.0,
                "completion_criteria": {
                    "behavior": "A",
                    "threshold": 0.5,
                    "min_lesson_length": 10,
                    "signal_smoothing": False,
                    "require_reset": True,
                },
            },
            {"name": "high", "value": 4.0},
        ]
    },
    "gravity": 9.0,
}


def test_lessons_reach_the_players_the_statistics_and_the_status(tmp_path: Path) -> None:
    manager, summaries = EpisodesOfOneStep(), Summaries()
    run_options = options(environment_parameters=CURRICULUM)

    run = controller(manager, tmp_path, run_options, writers=[summaries])
    run.run()

    told = [entry for entry in manager.log if not isinstance(entry, tuple)]
    assert told == [
        {"wall": 1.0, "gravity": 9.0},
        "reset",
        {"wall": 4.0},
        "reset",
    ], "parameters go before the reset, and later only what changes"
    # The first answer opens an episode; each further one answers an episode's end.
    answered = manager.log[2 : manager.log.index({"wall": 4.0})]
    assert len(answered) == 10, "the tenth episode ends the lesson, and its report is void"
    assert len(run.trainers["A"].meter.recent_returns) == 30, "judged by its own episodes"
    numbers = [
        (step, values["Environment/Lesson Number/wall"].aggregated_value)
        for _, step, values in summaries.seen
    ]
    assert numbers[:2] == [(4, 0.0), (8, 0.0)] and numbers[2:] == [
        (step, 1.0) for step in range(12, 41, 4)
    ]
    assert status(tmp_path)["wall"]["lesson_num"] == 1
    assert status(tmp_path)["gravity"]["lesson_num"] == 0


def test_a_resumed_run_is_in_the_lesson_it_was_in(tmp_path: Path) -> None:
    controller(EpisodesOfOneStep(), tmp_path, options(environment_parameters=CURRICULUM)).run()
    manager = EpisodesOfOneStep()

    controller(
        manager,
        tmp_path,
        options(environment_parameters=CURRICULUM, checkpoint_settings={"resume": True}),
    ).run()

    assert manager.log[:2] == [{"wall": 4.0, "gravity": 9.0}, "reset"]


@pytest.mark.parametrize(("lesson_now", "more"), [(0, 2), (1, 10)], ids=["same", "another"])
def test_a_resumed_lesson_counts_the_episodes_from_before_the_stop(
    tmp_path: Path, lesson_now: int, more: int
) -> None:
    middle = CURRICULUM["wall"]["curriculum"][0] | {"name": "middle", "value": 2.0}
    first, last = CURRICULUM["wall"]["curriculum"]
    lessons = {"wall": {"curriculum": [first, middle, last]}}

    def run(max_steps: int, **checkpoint_settings: bool) -> EpisodesOfOneStep:
        manager = EpisodesOfOneStep()
        run_options = options(
            default_settings=SETTINGS | {"max_steps": max_steps},
            environment_parameters=lessons,
            checkpoint_settings=checkpoint_settings,
        )
        controller(manager, tmp_path, run_options).run()
        return manager

    run(8)
    written = status(tmp_path)
    written["wall"]["lesson_num"] = lesson_now  # as if saved with another behavior, later
    (tmp_path / "run_logs/training_status.json").write_text(json.dumps(written))
    log = run(40, resume=True).log

    changes = [index for index, entry in enumerate(log) if isinstance(entry, dict)]
    answered = [entry for entry in log[: changes[1]] if isinstance(entry, tuple)]
    assert len(answered) == more


def test_what_players_record_goes_to_every_behavior(tmp_path: Path) -> None:
    recorded = {
        "mean": [(1.0, StatsAggregationMethod.AVERAGE), (3.0, StatsAggregationMethod.AVERAGE)],
        "sum": [(1.0, StatsAggregationMethod.SUM)],
    }
    summaries = Summaries()
    manager = EpisodesOfOneStep(["A", "B"], n_players=2, statistics=recorded)

    controller(manager, tmp_path, writers=[summaries]).run()

    # Two agents, one in each player: four steps take the first report and two more of each.
    for category in ("A", "B"):
        values = next(values for name, step, values in summaries.seen if name == category)
        assert values["mean"].aggregated_value == 2.0
        assert values["sum"].aggregated_value == pytest.approx(values["mean"].num / 2)


def test_of_latest_values_the_first_players_hold(tmp_path: Path) -> None:
    class Several(EpisodesOfOneStep):
        def receive(self) -> list[PlayerSteps]:
            latest = StatsAggregationMethod.MOST_RECENT
            return [
                report._replace(statistics={"height": [(float(report.player), latest)]})
                for report in super().receive()
            ]

    summaries = Summaries()
    controller(Several(n_players=3), tmp_path, writers=[summaries]).run()

    assert all(values["height"].aggregated_value == 0.0 for _, _, values in summaries.seen)


def test_a_finished_run_is_resumed_without_touching_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller(EpisodesOfOneStep(), tmp_path).run()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "A").iterdir()}
    capsys.readouterr()
    resumed = controller(
        EpisodesOfOneStep(), tmp_path, options(checkpoint_settings={"resume": True})
    )

    resumed.run()

    assert resumed.trainers["A"].step == 40
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "A").iterdir()} == before
    assert "A has reached max_steps (40)" in capsys.readouterr().out


def test_resume_wins_over_init_path(tmp_path: Path) -> None:
    controller(EpisodesOfOneStep(), tmp_path).run()
    longer = {**SETTINGS, "max_steps": 44, "init_path": "no/such/file.pt"}
    resumed = controller(
        EpisodesOfOneStep(),
        tmp_path,
        options(default_settings=longer, checkpoint_settings={"resume": True}),
    )

    resumed.run()

    assert resumed.trainers["A"].step == 44


def test_a_behavior_without_a_checkpoint_begins_when_the_run_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller(EpisodesOfOneStep(["A"]), tmp_path).run()
    longer = options(
        default_settings={**SETTINGS, "max_steps": 60}, checkpoint_settings={"resume": True}
    )
    resumed = controller(EpisodesOfOneStep(["A", "B"]), tmp_path, longer)

    resumed.run()

    assert "B has no checkpoint yet: it begins at step 0" in capsys.readouterr().out
    # A has what it needs, and goes on beside B, which begins 40 steps later.
    assert (resumed.trainers["A"].step, resumed.trainers["B"].step) == (100, 60)


def test_inference_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run_logs").mkdir()
    settings = {"resume": True, "inference": True}
    with pytest.raises(UnityTrainerException, match="no checkpoint of A"):
        controller(EpisodesOfOneStep(), tmp_path, options(checkpoint_settings=settings)).run()
    assert [path.name for path in tmp_path.rglob("*")] == ["run_logs"]


def test_inference_writes_nothing(tmp_path: Path) -> None:
    class Ends(EpisodesOfOneStep):
        def receive(self) -> list[PlayerSteps]:
            if len(self.log) > 3000:  # three checkpoint intervals
                raise Interrupted
            return super().receive()

    run = controller(Ends(), tmp_path, options(checkpoint_settings={"inference": True}))
    run.run()

    assert run.trainers["A"].step > 2900
    assert not list(tmp_path.iterdir())


def test_inference_is_judged_by_its_own_episodes(tmp_path: Path) -> None:
    class Ends(EpisodesOfOneStep):
        def receive(self) -> list[PlayerSteps]:
            if len(self.log) > 6:  # parameters, a reset, and five answers
                raise Interrupted
            return super().receive()

    controller(EpisodesOfOneStep(), tmp_path).run()
    acts = options(checkpoint_settings={"resume": True, "inference": True})
    run = controller(Ends(), tmp_path, acts)
    run.run()

    assert len(run.trainers["A"].meter.recent_returns) == 4


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_trainer_learns_in_the_precision_that_is_asked_for(
    asked_for: bool, tmp_path: Path
) -> None:
    torch_settings = {"mixed_precision": asked_for}
    run = controller(EpisodesOfOneStep(), tmp_path, options(torch_settings=torch_settings))
    run.run()
    body = run.trainers["A"].learner.algorithm.actor.body
    assert body.compute.precision is (torch.bfloat16 if asked_for else None)


def test_a_failing_environment_loses_nothing_that_was_learned(tmp_path: Path) -> None:
    class Fails(EpisodesOfOneStep):
        def receive(self) -> list[PlayerSteps]:
            if len(self.log) > 20:
                raise OSError("the cable")
            return super().receive()

    with pytest.raises(OSError, match="the cable") as error:
        controller(Fails(), tmp_path).run()

    assert is_resumable(error.value)
    (entry,) = status(tmp_path)["A"]["checkpoints"]
    assert entry["steps"] == 18
    assert (tmp_path / "A.onnx").exists()


def test_an_end_of_the_program_loses_nothing_that_was_learned(tmp_path: Path) -> None:
    class Quits(EpisodesOfOneStep):
        def receive(self) -> list[PlayerSteps]:
            if len(self.log) > 20:
                sys.exit(3)
            return super().receive()

    with pytest.raises(SystemExit) as error:
        controller(Quits(), tmp_path).run()

    assert error.value.code == 3 and is_resumable(error.value)
    assert status(tmp_path)["A"]["checkpoints"][0]["steps"] == 18


def test_a_run_that_never_began_is_not_called_resumable(tmp_path: Path) -> None:
    class Fails(EpisodesOfOneStep):
        def reset(self) -> None:
            raise OSError("the cable")

    with pytest.raises(OSError, match="the cable") as error:
        controller(Fails(), tmp_path).run()
    assert not is_resumable(error.value)


def test_a_second_signal_saves_nothing(tmp_path: Path) -> None:
    class Killed(EpisodesOfOneStep):
        def receive(self) -> list[PlayerSteps]:
            if len(self.log) > 20:
                raise KeyboardInterrupt
            return super().receive()

    with pytest.raises(KeyboardInterrupt):
        controller(Killed(), tmp_path).run()

    assert status(tmp_path).get("A", {}).get("checkpoints") is None


def test_diverged_weights_do_not_replace_good_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Diverges(OnPolicyLearner):
        def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
            if step >= 24:
                with torch.no_grad():
                    next(self.algorithm.actor.parameters())[:] = torch.nan
            return super().learn(segments, step=step, n_unfinished=n_unfinished)

    often = options(default_settings={**SETTINGS, "checkpoint_interval": 10})
    run = controller(
        EpisodesOfOneStep(),
        tmp_path,
        often,
        trainer_types={"ppo": TrainerType(Diverges, PPO, PPOSettings)},
    )

    with pytest.raises(UnityTrainerException, match="learning has diverged"):
        run.run()

    assert "not saved at step" in capsys.readouterr().out
    newest = torch.load(tmp_path / "A/checkpoint.pt", weights_only=True)
    assert newest["global_step"] == 19
    assert all(bool(value.isfinite().all()) for value in newest["Policy"].values())


def test_a_folder_that_vanishes_comes_back_with_what_belongs_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    class Vanishes(EpisodesOfOneStep):
        def receive(self) -> list[PlayerSteps]:
            if len(self.log) == 30:
                folder.rename(tmp_path / "elsewhere")
            return super().receive()

    often = options(default_settings={**SETTINGS, "checkpoint_interval": 10})
    controller(Vanishes(), folder, often).run()

    entries = status(folder)["A"]["checkpoints"]
    assert [entry["steps"] for entry in entries] == [29, 39, 40]
    for entry in entries:
        assert all(Path(p).exists() for p in [entry["file_path"], *entry["auxillary_file_paths"]])
    assert (folder / "configuration.yaml").exists() and (folder / "run_logs/timers.json").exists()


def test_what_cannot_be_saved_at_the_end_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.write_text("a file where the folder should be")

    with pytest.raises(UnityTrainerException, match="the last training progress of A could not be"):
        controller(EpisodesOfOneStep(), folder).run()

    log = capsys.readouterr().out
    assert "Could not write A at step 40" in log and "Could not write the timers" in log
