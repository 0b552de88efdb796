"""`check_env`: a test of the contract of `BaseEnv`, for any environment."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.exception import UnityActionException

Steps = dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]]
Recording = list[dict[str, NDArray[Any]]]
"""Arrays of each step, by a name that tells the behavior, batch and field."""


def check_env(
    env: BaseEnv | Callable[..., BaseEnv],
    *,
    steps: int = 100,
    seed: int = 0,
    is_random: bool = True,
) -> None:
    """Check that an environment fulfills the contract of `BaseEnv`; for use in its tests.

    The environment is stepped with random actions. Its reports must match its specifications, be
    finite, and not change afterward. It must refuse actions of wrong shapes, and allow a reset at
    any time and a second `close`. If `env` is a function, equal seeds must give equal steps, and
    different seeds different steps.

        check_env(lambda seed: MyEnvironment(seed=seed))

    Args:
        env: Environment, which is closed at the end, or function that creates one and takes the
            keyword `seed`.
        steps: Number of steps to play.
        seed: Seed of the environment, if `env` is a function.
        is_random: Whether the steps depend on the seed.

    Raises:
        AssertionError: The environment breaks the contract. The message says where and how.
    """
    if isinstance(env, BaseEnv):
        _check_one(env, steps)
        return
    recording = _check_one(_make(env, seed), steps)
    with closing(_make(env, seed)) as again:
        _check_same(recording, _play(again, steps, in_two_phases=True))
    with closing(_make(env, seed)) as fresh:
        _check_first_step(fresh)
    with closing(_make(env, seed + 1)) as other:
        differs = not _equal(recording, _play(other, steps))
        _require(
            differs or not is_random,
            f"seeds {seed} and {seed + 1} give the same {steps} steps: draw all random numbers "
            "from a generator with this seed, or pass is_random=False if there are none",
        )


def _make(make: Callable[..., BaseEnv], seed: int) -> BaseEnv:
    env = make(seed=seed)
    _require(
        isinstance(env, BaseEnv), f"the function returned a {type(env).__name__}, not a BaseEnv"
    )
    return env


def _check_one(env: BaseEnv, steps: int) -> Recording:
    try:
        recording = _play(env, steps)
        _check_refusals(env)
        env.reset()
        _check_after_reset(env)
    finally:
        env.close()
    try:
        env.close()
    except Exception as error:
        raise AssertionError(f"close() failed when called again: {error!r}") from error
    return recording


def _play(env: BaseEnv, steps: int, *, in_two_phases: bool = False) -> Recording:
    """Play random actions, check every step, and return the recorded steps."""
    rng = np.random.default_rng(0)
    env.reset()
    _check_after_reset(env)
    recording: Recording = []
    before: dict[str, NDArray[Any]] = {}
    for number in range(steps):
        where = f"step {number}"
        reported = _steps(env)
        _require(
            any(len(batch) for pair in reported.values() for batch in pair),
            f"{where}: no agent requests a decision and no episode ended; step() must continue "
            "until one of the two happens",
        )
        arrays: dict[str, NDArray[Any]] = {}
        for name, pair in reported.items():
            arrays.update(_check_steps(*pair, env.behavior_specs[name], f"{where}, {name!r}"))
        _check_groups(reported, where)
        _check_kept(before, arrays, recording)
        before = arrays
        recording.append({key: array.copy() for key, array in arrays.items()})
        _act(env, reported, rng, leave_out=number % 7 == 6)
        if in_two_phases:
            env.step_send()
            env.step_receive()
        else:
            env.step()
    return recording


def _steps(env: BaseEnv) -> Steps:
    return {name: env.get_steps(name) for name in env.behavior_specs}


def _act(env: BaseEnv, reported: Steps, rng: np.random.Generator, *, leave_out: bool) -> None:
    """Set random actions; if `leave_out` is set, only that of the first agent, if any."""
    for name, (decisions, _) in reported.items():
        action = env.behavior_specs[name].action_spec.random_action(len(decisions), rng)
        if leave_out:
            if len(decisions):
                first = ActionTuple(action.continuous[:1], action.discrete[:1])
                env.set_action_for_agent(name, int(decisions.agent_id[0]), first)
            continue
        continuous, discrete = action.continuous.copy(), action.discrete.copy()
        env.set_actions(name, action)
        _require(
            np.array_equal(action.continuous, continuous)
            and np.array_equal(action.discrete, discrete),
            f"{name!r}: set_actions() changed the caller's arrays; work on a copy",
        )


# Checks of reports.


def _check_after_reset(env: BaseEnv) -> None:
    _require(
        isinstance(env.behavior_specs, Mapping) and len(env.behavior_specs) > 0,
        f"behavior_specs is {env.behavior_specs!r} after reset(); it must be a mapping from names "
        "to BehaviorSpec with at least one entry",
    )
    for name, spec in env.behavior_specs.items():
        _check_spec(name, spec)
    ended = {name: terminals.agent_id.tolist() for name, (_, terminals) in _steps(env).items()}
    _require(
        not any(ended.values()),
        f"after reset() there are terminal steps: {ended}; a reset must begin new episodes without "
        "terminal steps for the running ones",
    )


def _check_first_step(env: BaseEnv) -> None:
    env.step()
    _require(
        any(len(decisions) for decisions, _ in _steps(env).values()),
        "no agent requests a decision after the first step() of a new environment; without a reset "
        "before it, the first step must be a reset",
    )


def _check_spec(name: BehaviorName, spec: BehaviorSpec) -> None:
    where = f"behavior {name!r}"
    _require(isinstance(spec, BehaviorSpec), f"{where}: its spec is a {type(spec).__name__}")
    continuous_size, branches = spec.action_spec
    _require(
        continuous_size >= 0 and all(size > 0 for size in branches),
        f"{where}: {spec.action_spec!r} has a negative size or a branch without actions",
    )
    names = [observation.name for observation in spec.observation_specs]
    _require(
        len(set(names)) == len(names), f"{where}: names of observations are not unique: {names}"
    )
    for observation in spec.observation_specs:
        _require(
            len(observation.dimension_property) == len(observation.shape),
            f"{where}, observation {observation.name!r}: {len(observation.dimension_property)} "
            f"dimension properties for the shape {observation.shape}; expected one per axis",
        )


def _check_steps(
    decisions: DecisionSteps, terminals: TerminalSteps, spec: BehaviorSpec, where: str
) -> dict[str, NDArray[Any]]:
    """Check the steps of one behavior, and return all its arrays by name."""
    arrays: dict[str, NDArray[Any]] = {}
    for kind, steps in (("decision steps", decisions), ("terminal steps", terminals)):
        which = f"{where}, {kind}"
        n = len(steps)
        _require(
            len(steps.obs) == len(spec.observation_specs),
            f"{which}: {len(steps.obs)} observations, but the spec has "
            f"{len(spec.observation_specs)}",
        )
        fields: list[tuple[str, NDArray[Any], tuple[int, ...], type]] = [
            (
                f"observation {observation.name!r}",
                batch,
                (n, *observation.shape),
                observation.dtype.type,
            )
            for observation, batch in zip(spec.observation_specs, steps.obs, strict=True)
        ]
        fields += [
            ("agent_id", steps.agent_id, (n,), np.int32),
            ("reward", steps.reward, (n,), np.float32),
            ("group_id", steps.group_id, (n,), np.int32),
            ("group_reward", steps.group_reward, (n,), np.float32),
        ]
        if isinstance(steps, TerminalSteps):
            fields.append(("interrupted", steps.interrupted, (n,), np.bool_))
        else:
            fields += _mask_fields(steps, spec, which)
        for field, array, shape, dtype in fields:
            _check_array(array, shape, dtype, f"{which}: {field}")
            arrays[f"{which}: {field}"] = array
        _require(
            not (steps.group_id < 0).any(),
            f"{which}: group_id has negative numbers: {steps.group_id}; 0 means no group",
        )
        _require(
            not steps.group_reward[steps.group_id == 0].any(),
            f"{which}: agents without a group have a group reward: ids {steps.group_id}, rewards "
            f"{steps.group_reward}. Add it to their individual rewards, or put them into a group",
        )
        ids = steps.agent_id.tolist()
        _require(len(set(ids)) == n, f"{which}: agents are reported twice: {ids}")
    return arrays


def _check_groups(reported: Steps, where: str) -> None:
    """Check that the members of each group have the same behavior, and thus the same team."""
    behavior_of: dict[int, BehaviorName] = {}
    for name, pair in reported.items():
        for group in {int(group) for steps in pair for group in steps.group_id if group}:
            other = behavior_of.setdefault(group, name)
            _require(
                other == name,
                f"{where}: group {group} has members of {other!r} and of {name!r}; use separate "
                "groups for each behavior and each team",
            )


def _mask_fields(
    decisions: DecisionSteps, spec: BehaviorSpec, which: str
) -> Iterator[tuple[str, NDArray[Any], tuple[int, ...], type]]:
    masks, branches = decisions.action_mask, spec.action_spec.discrete_branches
    if not branches or not len(decisions):
        _require(
            masks is None,
            f"{which}: action_mask must be None if there are no discrete actions or no agents",
        )
        return
    _require(
        masks is not None and len(masks) == len(branches),
        f"{which}: action_mask must be a list of {len(branches)} arrays, one per branch",
    )
    for branch, (mask, size) in enumerate(zip(masks or (), branches, strict=True)):
        yield f"action_mask of branch {branch}", mask, (len(decisions), size), np.bool_
        _require(
            not mask.all(axis=1).any(),
            f"{which}: action_mask of branch {branch} allows an agent no action (True means not "
            "allowed)",
        )


def _check_array(array: NDArray[Any], shape: tuple[int, ...], dtype: type, what: str) -> None:
    _require(
        isinstance(array, np.ndarray),
        f"{what} is a {type(array).__name__}; expected a NumPy array",
    )
    _require(array.shape == shape, f"{what} has the shape {array.shape}; expected {shape}")
    _require(
        array.dtype == dtype, f"{what} is of type {array.dtype}; expected {np.dtype(dtype).name}"
    )
    _require(bool(np.isfinite(array).all()), f"{what} contains NaN or infinity: {array}")


def _check_kept(
    before: Mapping[str, NDArray[Any]], now: Mapping[str, NDArray[Any]], recording: Recording
) -> None:
    """Check that the arrays of the previous step did not change and are not used again."""
    for key, array in before.items():
        _require(
            np.array_equal(array, recording[-1][key]),
            f"{key} changed with the next step: return a new array each time, or a copy",
        )
    for (key, old), (new_key, new) in itertools.product(before.items(), now.items()):
        _require(
            not np.may_share_memory(old, new),
            f"{new_key} shares memory with {key}: return a new array each time, or a copy",
        )


# Checks of errors.


def _check_refusals(env: BaseEnv) -> None:
    unknown = "no such behavior"
    _require_raises(KeyError, lambda: env.get_steps(unknown), "get_steps() of an unknown behavior")
    _require_raises(
        UnityActionException,
        lambda: env.set_actions(unknown, ActionTuple(np.zeros((1, 1)))),
        "set_actions() of an unknown behavior",
    )
    for name in env.behavior_specs:
        _check_refusals_of(env, name)


def _check_refusals_of(env: BaseEnv, name: BehaviorName) -> None:
    spec, (decisions, _) = env.behavior_specs[name].action_spec, env.get_steps(name)
    n = len(decisions)
    wide = ActionTuple(np.zeros((n, spec.continuous_size + 1)), np.zeros((n, spec.discrete_size)))
    stranger = max(decisions.agent_id.tolist(), default=0) + 1
    _require_raises(
        UnityActionException,
        lambda: env.set_actions(name, spec.empty_action(n + 1)),
        f"set_actions({name!r}) with one row too many",
    )
    _require_raises(
        UnityActionException,
        lambda: env.set_actions(name, wide),
        f"set_actions({name!r}) with one continuous action too many",
    )
    _require_raises(
        IndexError,
        lambda: env.set_action_for_agent(name, stranger, spec.empty_action(1)),
        f"set_action_for_agent({name!r}, {stranger}) for an agent that did not request a decision",
    )


def _require_raises(kind: type[Exception], call: Callable[[], object], what: str) -> None:
    try:
        call()
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{what} raised {error!r}; expected {kind.__name__}") from error
    raise AssertionError(f"{what} was accepted; it must raise {kind.__name__}")


# Comparison of recordings.


def _check_same(one: Recording, other: Recording) -> None:
    for number, (left, right) in enumerate(zip(one, other, strict=True)):
        _require(
            left.keys() == right.keys(),
            f"step {number}: two environments with the same seed report different behaviors",
        )
        for key in left:
            _require(
                np.array_equal(left[key], right[key]),
                f"{key} differs between two environments with the same seed and actions: "
                f"{left[key]} and {right[key]}. Draw all random numbers from a generator with this "
                "seed, and make step() equivalent to step_send() and step_receive()",
            )


def _equal(one: Recording, other: Recording) -> bool:
    return all(
        left.keys() == right.keys() and all(np.array_equal(left[k], right[k]) for k in left)
        for left, right in zip(one, other, strict=True)
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
