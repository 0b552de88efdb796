"""The models: every default, coercion, bounds, and the words of a refusal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.base import Settings
from mlagents.trainers.settings.behavior import (
    BehavioralCloningSettings,
    BehaviorSettings,
    CuriositySettings,
    ExtrinsicSettings,
    GailSettings,
    MemorySettings,
    NetworkSettings,
    RNDSettings,
    SelfPlaySettings,
)
from mlagents.trainers.settings.hyperparameters import (
    HyperparameterSettings,
    POCASettings,
    PPOSettings,
    SACSettings,
)
from mlagents.trainers.settings.parameters import CompletionCriteria, Lesson, Sampler
from mlagents.trainers.settings.run_options import (
    CheckpointSettings,
    EngineSettings,
    EnvironmentSettings,
    RunOptions,
    TorchSettings,
)

PPO_DEFAULTS = {
    "batch_size": 1024,
    "buffer_size": 10240,
    "learning_rate": 3e-4,
    "learning_rate_schedule": "linear",
    "max_grad_norm": None,
    "desired_kl": 0.01,
    "target_kl": None,
    "policy_head_gain": None,
    "normalize_advantages": "buffer",
    "normalize_values": False,
    "beta": 5e-3,
    "beta_schedule": "linear",
    "beta_floor": 1e-5,
    "epsilon": 0.2,
    "epsilon_schedule": "linear",
    "epsilon_floor": 0.1,
    "joint_ratio": False,
    "joint_entropy": False,
    "clip_values": False,
    "normalize_each_signal": False,
    "lambd": 0.95,
    "num_epoch": 3,
}
NETWORK_DEFAULTS = {
    "normalize": False,
    "hidden_units": 128,
    "num_layers": 2,
    "vis_encode_type": "simple",
    "memory": None,
    "goal_conditioning_type": "hyper",
    "deterministic": False,
}
SIGNAL_DEFAULTS = {"gamma": 0.99, "strength": 1.0, "network_settings": NETWORK_DEFAULTS}


@pytest.mark.parametrize(
    ("settings", "defaults"),
    [
        (PPOSettings(), {**PPO_DEFAULTS, "shared_critic": False}),
        (POCASettings(), PPO_DEFAULTS),
        (
            SACSettings(),
            {
                "batch_size": 128,
                "buffer_size": 50000,
                "learning_rate": 3e-4,
                "learning_rate_schedule": "constant",
                "max_grad_norm": None,
                "buffer_init_steps": 0,
                "tau": 0.005,
                "steps_per_update": 1.0,
                "reward_signal_steps_per_update": 1.0,
                "save_replay_buffer": False,
                "init_entcoef": 1.0,
                "critic_norm": "none",
                "n_step": 1,
            },
        ),
        (NetworkSettings(), NETWORK_DEFAULTS),
        (MemorySettings(), {"sequence_length": 64, "memory_size": 128}),
        (ExtrinsicSettings(), SIGNAL_DEFAULTS),
        (CuriositySettings(), {**SIGNAL_DEFAULTS, "learning_rate": 3e-4}),
        (RNDSettings(), {**SIGNAL_DEFAULTS, "learning_rate": 1e-4}),
        (
            GailSettings(demo_path="a.demo"),
            {
                **SIGNAL_DEFAULTS,
                "learning_rate": 3e-4,
                "demo_path": "a.demo",
                "use_actions": False,
                "use_vail": False,
            },
        ),
        (
            BehavioralCloningSettings(demo_path="a.demo"),
            {
                "demo_path": "a.demo",
                "steps": 0,
                "strength": 1.0,
                "samples_per_update": 0,
                "num_epoch": None,
                "batch_size": None,
            },
        ),
        (
            SelfPlaySettings(),
            {
                "save_steps": 20000,
                "team_change": 100000,
                "swap_steps": 2000,
                "swap_at": "episode",
                "window": 10,
                "play_against_latest_model_ratio": 0.5,
                "opponents": "uniform",
                "learn_from_both": True,
                "opponent": None,
                "opponent_ratio": 0.1,
                "keep_results": 2000,
                "initial_elo": 1200.0,
                "league": {
                    "exploiters": 0,
                    "exploiter_ratio": 0.25,
                    "restart_at": 0.7,
                    "restart_steps": 100000,
                    "restart_from": "initial",
                },
            },
        ),
        (
            BehaviorSettings(),
            {
                "trainer_type": "ppo",
                "legacy_defaults": False,
                "hyperparameters": {**PPO_DEFAULTS, "shared_critic": False},
                "checkpoint_interval": 500000,
                "network_settings": NETWORK_DEFAULTS,
                "reward_signals": {"extrinsic": SIGNAL_DEFAULTS},
                "init_path": None,
                "keep_checkpoints": 5,
                "even_checkpoints": False,
                "max_steps": 500000,
                "stop_at_reward": None,
                "time_horizon": 64,
                "summary_freq": 50000,
                "threaded": False,
                "self_play": None,
                "behavioral_cloning": None,
            },
        ),
        (
            EnvironmentSettings(),
            {
                "env_path": None,
                "env_args": None,
                "base_port": 0,
                "num_envs": 1,
                "players_per_process": None,
                "num_areas": 1,
                "timeout_wait": 60,
                "seed": -1,
                "max_lifetime_restarts": 10,
                "restarts_rate_limit_n": 1,
                "restarts_rate_limit_period_s": 60,
            },
        ),
        (
            EngineSettings(),
            {
                "width": 84,
                "height": 84,
                "quality_level": 5,
                "time_scale": 20.0,
                "target_frame_rate": -1,
                "capture_frame_rate": 60,
                "no_graphics": False,
                "no_graphics_monitor": False,
            },
        ),
        (
            CheckpointSettings(),
            {
                "run_id": "ppo",
                "initialize_from": None,
                "resume": False,
                "force": False,
                "inference": False,
                "film_every": None,
                "results_dir": "results",
            },
        ),
        (
            CompletionCriteria(behavior="B"),
            {
                "behavior": "B",
                "measure": "reward",
                "min_lesson_length": 0,
                "signal_smoothing": True,
                "threshold": 0.0,
                "require_reset": False,
            },
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Settings) else "",
)
def test_defaults(settings: Settings, defaults: dict[str, Any]) -> None:
    assert settings.model_dump(mode="json") == defaults


def subclasses(model: type[Settings]) -> list[type[Settings]]:
    return [model, *(below for child in model.__subclasses__() for below in subclasses(child))]


@pytest.mark.parametrize("model", subclasses(Settings)[1:], ids=lambda model: model.__name__)
def test_every_setting_has_its_sentence_and_stays_as_it_is(model: type[Settings]) -> None:
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
    assert model.model_config["frozen"] and model.model_config["extra"] == "forbid"


def message(model: type[Settings], written: Any) -> dict[str, str]:
    """Return what a model says of each key that it refuses."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(written)
    return {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}


@pytest.mark.parametrize(
    ("written", "number"),
    [(64, 64), ("64", 64), (64.0, 64), ("1e4", 10000), ("5.0e5", 500000), ("1_000", 1000)],
)
def test_whole_numbers_may_be_written_in_any_way(written: object, number: int) -> None:
    settings = BehaviorSettings.model_validate({"max_steps": written})
    assert settings.max_steps == number
    assert type(settings.max_steps) is int


@pytest.mark.parametrize(
    "written", [2.5, "2.5", True, "many", float("inf"), "nan", None, [], {}, "1e999", "9" * 5000]
)
def test_anything_else_is_no_whole_number(written: object) -> None:
    assert list(message(BehaviorSettings, {"max_steps": written})) == ["max_steps"]


@pytest.mark.parametrize("written", [3e-4, "3e-4", "3.0e-4", "0.0003"])
def test_numbers_may_be_text(written: object) -> None:
    assert PPOSettings.model_validate({"learning_rate": written}).learning_rate == 3e-4


@pytest.mark.parametrize("written", [True, "fast", float("nan"), "inf", None, [1.0]])
def test_anything_else_is_no_number(written: object) -> None:
    assert list(message(PPOSettings, {"learning_rate": written})) == ["learning_rate"]


def test_quoted_false_is_never_true() -> None:
    assert NetworkSettings.model_validate({"normalize": "false"}).normalize is False
    assert "normalize" in message(NetworkSettings, {"normalize": "maybe"})


def test_a_run_may_be_called_by_a_number() -> None:
    assert CheckpointSettings.model_validate({"run_id": 7}).run_id == "7"


@given(st.integers(-(10**15), 10**15))
def test_a_whole_number_is_the_same_in_every_notation(number: int) -> None:
    for written in (number, str(number), float(number), repr(float(number)), f"{number:.20e}"):
        elo = BehaviorSettings.model_validate({"keep_checkpoints": written})
        assert elo.keep_checkpoints == number


@pytest.mark.parametrize(
    ("model", "written", "key"),
    [
        (PPOSettings, {"batch_size": 0}, "batch_size"),
        (PPOSettings, {"learning_rate": -1e-4}, "learning_rate"),
        (PPOSettings, {"epsilon": -0.1}, "epsilon"),
        (RNDSettings, {"learning_rate": -1e-4}, "learning_rate"),
        (PPOSettings, {"beta": -0.1}, "beta"),
        (PPOSettings, {"lambd": 1.1}, "lambd"),
        (PPOSettings, {"num_epoch": 0}, "num_epoch"),
        (PPOSettings, {"max_grad_norm": 0}, "max_grad_norm"),
        (SACSettings, {"tau": 1.5}, "tau"),
        (SACSettings, {"steps_per_update": 0}, "steps_per_update"),
        (SACSettings, {"init_entcoef": 0}, "init_entcoef"),
        (MemorySettings, {"memory_size": 127}, "memory_size"),
        (MemorySettings, {"memory_size": 0}, "memory_size"),
        (MemorySettings, {"sequence_length": 0}, "sequence_length"),
        (NetworkSettings, {"hidden_units": 0}, "hidden_units"),
        (NetworkSettings, {"num_layers": -1}, "num_layers"),
        (ExtrinsicSettings, {"gamma": 1.01}, "gamma"),
        (GailSettings, {}, "demo_path"),
        (BehavioralCloningSettings, {}, "demo_path"),
        (SelfPlaySettings, {"window": 0}, "window"),
        (
            SelfPlaySettings,
            {"play_against_latest_model_ratio": 1.5},
            "play_against_latest_model_ratio",
        ),
        (EnvironmentSettings, {"num_envs": 0}, "num_envs"),
        (EnvironmentSettings, {"num_envs": 2}, "num_envs"),
        (EnvironmentSettings, {"num_areas": 0}, "num_areas"),
        (EnvironmentSettings, {"players_per_process": 0}, "players_per_process"),
        (EnvironmentSettings, {"base_port": 65536}, "base_port"),
        (EnvironmentSettings, {"base_port": 65535, "num_envs": 2, "env_path": "x"}, "base_port"),
        (EnvironmentSettings, {"env_args": "-x 1"}, "env_args"),
        (EnvironmentSettings, {"num_envs": -1}, "num_envs"),
        (EnvironmentSettings, {"seed": -2}, "seed"),
        (EnvironmentSettings, {"seed": 2**31}, "seed"),
        (EnvironmentSettings, {"seed": 2**31 - 2, "num_envs": 3, "env_path": "x"}, "seed"),
        (EnvironmentSettings, {"num_areas": 2**31}, "num_areas"),
        (EnvironmentSettings, {"timeout_wait": 0}, "timeout_wait"),
        (EnvironmentSettings, {"timeout_wait": 2**31 // 1000 + 1}, "timeout_wait"),
        (EnvironmentSettings, {"max_lifetime_restarts": -2}, "max_lifetime_restarts"),
        (EnvironmentSettings, {"restarts_rate_limit_n": -2}, "restarts_rate_limit_n"),
        (EnvironmentSettings, {"restarts_rate_limit_period_s": 0}, "restarts_rate_limit_period_s"),
        (EngineSettings, {"width": 0}, "width"),
        (EngineSettings, {"height": 0}, "height"),
        (EngineSettings, {"quality_level": -1}, "quality_level"),
        (EngineSettings, {"time_scale": 0}, "time_scale"),
        (EngineSettings, {"target_frame_rate": -2}, "target_frame_rate"),
        (EngineSettings, {"capture_frame_rate": -1}, "capture_frame_rate"),
        (EngineSettings, {"width": 2**31}, "width"),
        (EngineSettings, {"height": 2**31}, "height"),
        (EngineSettings, {"quality_level": 2**31}, "quality_level"),
        (EngineSettings, {"time_scale": 3.5e38}, "time_scale"),
        (EngineSettings, {"target_frame_rate": 2**31}, "target_frame_rate"),
        (EngineSettings, {"capture_frame_rate": 2**31}, "capture_frame_rate"),
        (TorchSettings, {"threads": 0}, "threads"),
        (CheckpointSettings, {"run_id": ""}, "run_id"),
        (BehaviorSettings, {"even_checkpoints": True, "keep_checkpoints": 0}, "keep_checkpoints"),
        (BehaviorSettings, {"reward_signals": {}}, "reward_signals"),
        (BehaviorSettings, {"network_settings": None}, "network_settings"),
        (CompletionCriteria, {"behavior": "B", "measure": "progress", "threshold": 2}, "threshold"),
        (CompletionCriteria, {}, "behavior"),
    ],
)
def test_values_out_of_range_are_refused_at_their_key(
    model: type[Settings], written: dict[str, Any], key: str
) -> None:
    assert list(message(model, written)) == [key]


def test_schedules_follow_the_learning_rate_unless_written() -> None:
    follow = PPOSettings.model_validate({"learning_rate_schedule": "constant"})
    assert (follow.beta_schedule, follow.epsilon_schedule) == ("constant", "constant")
    written = POCASettings.model_validate(
        {"learning_rate_schedule": "constant", "beta_schedule": "linear"}
    )
    assert (written.beta_schedule, written.epsilon_schedule) == ("linear", "constant")


@pytest.mark.parametrize("trainer_type", ["ppo", "poca"])
def test_legacy_defaults_are_those_of_the_original_unless_written(trainer_type: str) -> None:
    def gain(**written: Any) -> float | None:
        behavior = BehaviorSettings.model_validate({"trainer_type": trainer_type, **written})
        found: float | None = behavior.hyperparameters.policy_head_gain  # type: ignore[attr-defined]
        return found

    assert gain() is None
    assert gain(legacy_defaults=True) == 1.0
    assert gain(legacy_defaults=True, hyperparameters={"beta": 0.1}) == 1.0
    assert gain(legacy_defaults=True, hyperparameters={"policy_head_gain": 0.5}) == 0.5
    sac = BehaviorSettings.model_validate({"trainer_type": "sac", "legacy_defaults": True})
    assert sac.hyperparameters == SACSettings()


def test_defaults_that_follow_another_key() -> None:
    sac = SACSettings.model_validate({"steps_per_update": "20"})
    assert sac.reward_signal_steps_per_update == 20.0
    assert SelfPlaySettings.model_validate({"save_steps": "1e3"}).team_change == 5000


def test_a_refused_key_is_not_refused_again_where_others_follow_it() -> None:
    assert list(message(SACSettings, {"steps_per_update": -1})) == ["steps_per_update"]


def test_even_checkpoints_spread_over_the_run() -> None:
    settings = BehaviorSettings(
        even_checkpoints=True, keep_checkpoints=3, max_steps=1000, checkpoint_interval=7
    )
    assert settings.checkpoint_interval == 333


@pytest.mark.parametrize(
    ("trainer_type", "model"), [("ppo", PPOSettings), ("sac", SACSettings), ("poca", POCASettings)]
)
def test_hyperparameters_follow_the_trainer(
    trainer_type: str, model: type[HyperparameterSettings]
) -> None:
    for written in ({}, {"hyperparameters": {"batch_size": 64}}):
        settings = BehaviorSettings.model_validate({"trainer_type": trainer_type, **written})
        assert type(settings.hyperparameters) is model


def test_hyperparameters_of_another_trainer_are_unknown_keys() -> None:
    said = message(BehaviorSettings, {"trainer_type": "sac", "hyperparameters": {"lambd": 0.9}})
    assert list(said) == ["hyperparameters.lambd"]


def test_reward_signals_keep_one_order_and_their_own_models() -> None:
    settings = BehaviorSettings.model_validate(
        {"reward_signals": {"rnd": {}, "gail": {"demo_path": "a.demo"}, "extrinsic": {}}}
    )
    assert [(name, type(signal)) for name, signal in settings.reward_signals.items()] == [
        ("extrinsic", ExtrinsicSettings),
        ("gail", GailSettings),
        ("rnd", RNDSettings),
    ]


def test_memory_must_fit_the_batch_and_poca_its_attention() -> None:
    written = {
        "trainer_type": "poca",
        "hyperparameters": {"batch_size": 32},
        "network_settings": {"memory": {}, "hidden_units": 30},
    }
    said = message(BehaviorSettings, written)
    assert list(said) == [
        "network_settings.memory.sequence_length",
        "network_settings.hidden_units",
    ]
    assert "(32), got 64" in said["network_settings.memory.sequence_length"]


def test_a_refusal_says_what_came_what_is_allowed_and_what_is_near() -> None:
    said = message(
        NetworkSettings,
        {"vis_encode_type": "resnett", "conditioning": "hyper", "hidden_units": -3},
    )
    assert said["vis_encode_type"] == (
        "must be 'simple', 'nature_cnn', 'resnet', 'match3' or 'fully_connected', "
        "got 'resnett'; did you mean 'resnet'?"
    )
    assert said["conditioning"].startswith(
        "unknown key; did you mean 'goal_conditioning_type'? Allowed: normalize, "
    )
    assert said["hidden_units"] == "must be greater than or equal to 1, got -3"


def test_braces_and_long_values_are_quoted_as_they_are() -> None:
    said = message(BehaviorSettings, {"trainer_type": "{loc}", "max_steps": "x" * 10000})
    assert "got '{loc}'" in said["trainer_type"]
    assert len(said["max_steps"]) < 200


# Environment parameters


def parameters(written: Any) -> dict[str, list[dict[str, Any]]]:
    options = RunOptions.model_validate({"environment_parameters": written})
    dumped = options.model_dump(mode="json")["environment_parameters"]
    return {name: parameter["curriculum"] for name, parameter in dumped.items()}


def test_a_number_and_a_sampler_become_a_lesson_of_that_name() -> None:
    uniform = {"sampler_type": "uniform", "sampler_parameters": {"max_value": "2e0"}}
    assert parameters({"gravity": 10, "scale": uniform}) == {
        "gravity": [
            {
                "name": "gravity",
                "value": {
                    "sampler_type": "constant",
                    "sampler_parameters": {"seed": -1, "value": 10.0},
                },
                "completion_criteria": None,
            }
        ],
        "scale": [
            {
                "name": "scale",
                "value": {
                    "sampler_type": "uniform",
                    "sampler_parameters": {"seed": -1, "min_value": 0.0, "max_value": 2.0},
                },
                "completion_criteria": None,
            }
        ],
    }


@pytest.mark.parametrize(
    ("sampler_type", "defaults"),
    [
        ("constant", {"seed": -1, "value": 0.0}),
        ("uniform", {"seed": -1, "min_value": 0.0, "max_value": 1.0}),
        ("gaussian", {"seed": -1, "mean": 1.0, "st_dev": 1.0}),
        ("multirangeuniform", {"seed": -1, "intervals": [[0.0, 1.0]]}),
    ],
)
def test_defaults_of_samplers(sampler_type: str, defaults: dict[str, Any]) -> None:
    sampler = Sampler.model_validate({"sampler_type": sampler_type, "sampler_parameters": {}})
    assert sampler.model_dump(mode="json")["sampler_parameters"] == defaults


LESSON = {"name": "a", "value": 1, "completion_criteria": {"behavior": "B"}}


@pytest.mark.parametrize(
    ("written", "key", "says"),
    [
        ("fast", "", "must be a number, a sampler"),
        (3.5e38, "", "at most 3.4e+38 in magnitude"),
        (float("nan"), "", "must be a finite number, got nan"),
        (True, "", "must be a number, a sampler"),
        (None, "", "must be a number, a sampler"),
        ({}, "", "sampler_type and sampler_parameters, or curriculum"),
        ({"curiculum": []}, "", "did you mean 'curriculum'?"),
        ({"curriculum": []}, ".curriculum", "at least one lesson"),
        ({"curriculum": {}}, ".curriculum", "must be"),
        ({"curriculum": [LESSON], "sampler_type": "uniform"}, ".sampler_type", "unknown key"),
        ({"sampler_type": "uniform"}, ".sampler_parameters", "is required"),
        ({"sampler_parameters": {}}, ".sampler_type", "is required"),
        (
            {"sampler_type": "multirange_uniform", "sampler_parameters": {}},
            ".sampler_type",
            "did you mean 'multirangeuniform'?",
        ),
        (
            {"sampler_type": "uniform", "sampler_parameters": {"min": 0}},
            ".sampler_parameters.min",
            "unknown key",
        ),
        (
            {"sampler_type": "uniform", "sampler_parameters": {"min_value": 2}},
            ".sampler_parameters.min_value",
            "at most max_value (1.0), got 2.0",
        ),
        (
            {"sampler_type": "uniform", "sampler_parameters": {"seed": 5e9}},
            ".sampler_parameters.seed",
            "less than or equal to 2147483647",
        ),
        (
            {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[0, 1e39]]}},
            ".sampler_parameters.intervals.0.1",
            "at most 3.4e+38 in magnitude",
        ),
        (
            {"sampler_type": "gaussian", "sampler_parameters": {"st_dev": -1}},
            ".sampler_parameters.st_dev",
            "greater than or equal to 0",
        ),
        (
            {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[2, 1]]}},
            ".sampler_parameters.intervals.0",
            "must ascend",
        ),
        (
            {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[1, 2, 3]]}},
            ".sampler_parameters.intervals.0",
            "must be a pair [lower, upper], got [1, 2, 3]",
        ),
        (
            {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": []}},
            ".sampler_parameters.intervals",
            "at least one pair",
        ),
        ({"curriculum": [{"value": 1}]}, ".curriculum.0.name", "is required"),
        ({"curriculum": [{"name": "a"}]}, ".curriculum.0.value", "is required"),
        (
            {"curriculum": [{"name": "a", "value": 1}, LESSON]},
            ".curriculum.0.completion_criteria",
            "is required, except for the last",
        ),
    ],
)
def test_a_parameter_in_no_form_is_refused(written: Any, key: str, says: str) -> None:
    said = message(RunOptions, {"environment_parameters": {"p": written}})
    assert list(said) == [f"environment_parameters.p{key}"]
    assert says in next(iter(said.values()))


def test_parameter_names_are_ascii() -> None:
    said = message(RunOptions, {"environment_parameters": {"größe": 1.0}})
    assert list(said) == ["environment_parameters.größe"]


def test_a_lesson_that_waits_for_no_behavior_is_refused() -> None:
    written = {
        "behaviors": {"Ball": {}},
        "environment_parameters": {
            "p": {
                "curriculum": [
                    {"name": "a", "value": 1, "completion_criteria": {"behavior": "Bal"}},
                    {"name": "b", "value": 2},
                ]
            }
        },
    }
    said = message(RunOptions, written)
    key = "environment_parameters.p.curriculum.0.completion_criteria.behavior"
    assert list(said) == [key]
    assert "did you mean 'Ball'?" in said[key]
    RunOptions.model_validate({**written, "default_settings": {}})  # may be found later


# Run options


def test_settings_of_a_behavior_found_at_run_time() -> None:
    listed, default = BehaviorSettings(max_steps=1), BehaviorSettings(max_steps=2)
    options = RunOptions(behaviors={"Ball": listed}, default_settings=default)
    assert options.behavior_settings("Ball") is listed
    assert options.behavior_settings("Other") is default


def test_a_behavior_that_is_not_configured_is_refused_by_name() -> None:
    options = RunOptions(behaviors={"3DBall": BehaviorSettings()})
    with pytest.raises(TrainerConfigError, match=r"'3DBal'.*did you mean '3DBall'\? C.*'3DBall'"):
        options.behavior_settings("3DBal")
    with pytest.raises(TrainerConfigError, match=r"not configured\. Configured: '3DBall'\."):
        options.behavior_settings("Walker")


def test_a_seed_reaches_the_samplers_that_have_none() -> None:
    options = RunOptions.model_validate(
        {
            "behaviors": {"B": {}},
            "environment_parameters": {
                "a": 1.0,
                "b": {"curriculum": [LESSON, {**LESSON, "name": "b"}]},
                "c": {"sampler_type": "gaussian", "sampler_parameters": {"seed": 3}},
                "d": {"sampler_type": "gaussian", "sampler_parameters": {}},
            },
        }
    )
    seeded = options.with_seed(100)
    assert seeded.env_settings.seed == 100
    assert options.env_settings.seed == -1
    # Lessons are counted in the order of the file: a 0, b 1 and 2, c 3, d 4.
    assert [
        lesson.value.sampler_parameters.seed
        for parameter in (seeded.environment_parameters or {}).values()
        for lesson in parameter.curriculum
    ] == [100, 101, 102, 3, 104]
    assert RunOptions().with_seed(5).environment_parameters is None


def test_the_seeds_of_all_players_and_lessons_can_be_sent() -> None:
    # Three players have seed, seed + 1 and seed + 2, of which the largest is 2**31 - 1.
    players = {"env_settings": {"seed": 2**31 - 3, "num_envs": 3, "env_path": "x"}}
    lessons = {"environment_parameters": {"p": {"curriculum": [LESSON] * 3}, "q": 1.0}}
    written = {"default_settings": {}, **lessons}
    assert RunOptions.model_validate(players).env_settings.seed == 2**31 - 3
    assert RunOptions.model_validate(written | {"env_settings": {"seed": 2**31 - 4}})
    players["env_settings"]["seed"] += 1
    assert message(RunOptions, players) == {
        "env_settings.seed": "must be at most 2147483645: 3 environments (num_envs) are seeded "
        "with it and the numbers that follow; got 2147483646"
    }
    assert message(RunOptions, written | {"env_settings": {"seed": 2**31 - 3}}) == {
        "env_settings.seed": "must be at most 2147483644: 4 lessons of environment_parameters are "
        "seeded with it and the numbers that follow; got 2147483645"
    }


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        BehaviorSettings().max_steps = 3  # type: ignore[misc]


def test_a_lesson_takes_a_sampler_object() -> None:
    sampler = Sampler.model_validate({"sampler_type": "constant", "sampler_parameters": {}})
    assert Lesson(name="a", value=sampler).value is sampler
