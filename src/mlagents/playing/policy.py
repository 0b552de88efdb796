"""`Policy` acts with a trained ONNX model; `mlagents.policy` is its public import path.

Letters in shapes: N agents of this step, A continuous actions, K discrete branches, M memory size.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from mlagents.playing.model import Arrays, expose_draws, make_runner, read_model, replace_chance
from mlagents_envs.base_env import (
    ActionTuple,
    AgentId,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    FloatArray,
    IntArray,
    TerminalSteps,
    as_floats,
)
from mlagents_envs.exception import UnityPolicyException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

_OBSERVATION = re.compile(r"obs_(\d+)")
_MASKS, _MEMORY_IN, _MEMORY_OUT = "action_masks", "recurrent_in", "recurrent_out"
_BRANCHES = "discrete_action_output_shape"

# Inputs and outputs of version 2: models of Unity packages before 2.0.
_VECTORS, _IMAGE = "vector_observation", re.compile(r"visual_observation_(\d+)")
_ACTION, _IS_CONTINUOUS = "action", "is_continuous_control"
_NOISE = "epsilon"
"""Standard normal noise for each action, which the first models of version 2 take as an input."""

_MAX_INPUT_NUMBERS = 2**26
"""Largest number of values that an input may have for one agent: 256 MiB of floats."""


class Policy:
    """Policy for all agents of a behavior. It keeps the memory of each agent if the model has one.

    Like the engine, it supports models of version 3, which is the current one, and models of
    version 2 without memory. Models run on onnxruntime if it is installed. Otherwise they run on
    the reference evaluator of onnx, which is much slower.

    A model without deterministic outputs still acts deterministically: its random operators are
    replaced by the most likely choice and by the mean.

    Args:
        model: Content of an `.onnx` file.
        name: Name of the model in errors.
        deterministic: Whether to take the mean and the most likely choices instead of samples.
        seed: Seed of the samples. The same steps get the same actions.

    Raises:
        UnityPolicyException: The file is not an ONNX model, or not a policy this class supports.
        ModuleNotFoundError: onnx is not installed.
    """

    def __init__(
        self, model: bytes, *, name: str = "model", deterministic: bool = False, seed: int = 0
    ) -> None:
        self.name = name
        self._deterministic = deterministic
        self._rng = np.random.default_rng(seed)
        self._memories: dict[AgentId, FloatArray] = {}  # (M,) each
        parsed = read_model(model, name)
        graph = parsed.graph
        weights = {weight.name for weight in graph.initializer}
        self._axes = {
            value.name: tuple(axis.dim_value for axis in value.type.tensor_type.shape.dim)
            for value in graph.input
            if value.name not in weights
        }  # of every input; 0 means any length
        for key, axes in self._axes.items():
            is_known = key in (_MASKS, _MEMORY_IN, _NOISE) or _is_observation(key)
            self._require(is_known and len(axes) > 1, f"takes {key!r} of {len(axes)} axes")
            size = math.prod(max(axis, 1) for axis in axes)
            self._require(size <= _MAX_INPUT_NUMBERS, f"takes {key!r} of {_text(axes)} numbers")
        outputs = [value.name for value in graph.output]
        self._drawn_from = expose_draws(graph)
        self._require("version_number" in outputs and "memory_size" in outputs, "has no version")
        if deterministic:
            replace_chance(graph, name)
        zeros = {key: np.zeros(np.maximum(axes, 1), np.float32) for key, axes in self._axes.items()}
        self._run = make_runner(parsed, self._rng, name)
        at_zero = self._run(outputs, zeros)  # constants are outputs too
        self._memory_size = self._whole_number("memory_size", at_zero)
        self._continuous: str | None = None  # the outputs to act on
        self._discrete: str | None = None
        self._n_continuous = 0
        self._branches: tuple[int, ...] | None = ()
        # Version 2 returns log-probabilities of all discrete choices, but not the sizes of the
        # branches.
        self._n_log_probs = 0
        self._find_outputs(at_zero)

    @classmethod
    def load(cls, path: str | Path, *, deterministic: bool = False, seed: int = 0) -> Self:
        """Read a model from its file.

        Args:
            path: Path of the `.onnx` file.
            deterministic: Whether to take the mean and the most likely choices instead of samples.
            seed: Seed of the samples.

        Raises:
            UnityPolicyException: The file does not exist, or is not a policy this class supports.
            ModuleNotFoundError: onnx is not installed.
        """
        try:
            model = Path(path).read_bytes()
        except OSError as error:
            raise UnityPolicyException(f"model {path} cannot be read: {error.strerror}") from error
        return cls(model, name=str(path), deterministic=deterministic, seed=seed)

    def check(self, spec: BehaviorSpec, behavior: BehaviorName = "") -> None:
        """Raise an error unless the model fits a behavior.

        The model need not read every observation, because trainers may leave out unused ones. A
        warning names the observations that it does not read.

        Args:
            spec: Specification of the behavior.
            behavior: Name of the behavior, for the error.

        Raises:
            UnityPolicyException: Observations or actions differ. The message lists what the model
                expects and what the behavior has.
        """
        shapes = [observation.shape for observation in spec.observation_specs]
        branches = spec.action_spec.discrete_branches
        problems = []
        unread = set(range(len(shapes)))
        for key, (_, *axes) in self._axes.items():
            if not _is_observation(key):
                continue
            read = _observations_of(key, [len(shape) for shape in shapes])
            unread -= {*read}
            has = shapes[read[0]] if len(read) == 1 else (sum(shapes[i][0] for i in read),)
            if not read:
                problems.append(f"{key}: expected an observation of {_text(axes)}, got none")
            elif len(has) != len(axes) or any(
                a not in (0, b) for a, b in zip(axes, has, strict=True)
            ):
                names = ", ".join(repr(spec.observation_specs[i].name) for i in read)
                problems.append(f"{key}: expected {_text(axes)}, {names} is {_text(has)}")
        if self._n_continuous != spec.action_spec.continuous_size:
            problems.append(
                f"{self._n_continuous} continuous actions, but the behavior has "
                f"{spec.action_spec.continuous_size}"
            )
        if self._branches is None:  # version 2 only contains the sum
            if self._n_log_probs != sum(branches):
                problems.append(
                    f"{self._n_log_probs} discrete choices in total, but the behavior has "
                    f"{sum(branches)}"
                )
        elif self._branches != branches:
            problems.append(
                f"discrete branches {list(self._branches)}, but the behavior has {list(branches)}"
            )
        if problems:
            raise UnityPolicyException(
                f"{self.name} does not fit the behavior {behavior!r}: {'; '.join(problems)}. Use "
                "a model that was trained for this behavior."
            )
        self._branches = branches
        if unread:
            names = ", ".join(spec.observation_specs[i].name for i in sorted(unread))
            logger.warning(f"{self.name} does not read these observations of {behavior!r}: {names}")

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps | None = None) -> ActionTuple:
        """Return actions for N agents.

        Args:
            decisions: Steps of the agents that request a decision. Masked actions are not chosen.
            terminals: Steps of the agents that ended. Their memories are cleared first.
        """
        if terminals is not None:
            self.forget(terminals.agent_id.tolist())
        n_agents, n_branches = len(decisions), len(self._branches or ())
        continuous = np.zeros((n_agents, self._n_continuous), np.float32)
        discrete = np.zeros((n_agents, n_branches), np.int32)
        if n_agents == 0:
            return ActionTuple(continuous, discrete)
        names = [self._continuous, self._discrete, _MEMORY_OUT if self._memory_size else None]
        inputs = {key: self._input(key, decisions) for key in self._axes}
        found = self._run([name for name in names if name is not None], inputs)
        self._require_finite(found, decisions.agent_id)
        if self._memory_size:
            memories = found[_MEMORY_OUT][:, 0].copy()
            self._memories.update(zip(decisions.agent_id.tolist(), memories, strict=True))
        if self._continuous is not None:
            continuous = found[self._continuous]
        if self._discrete is not None:
            chosen = found[self._discrete]
            discrete = self._choose(chosen) if self._n_log_probs else chosen.astype(np.int32)
        return ActionTuple(continuous, discrete)

    def probabilities(self, decisions: DecisionSteps) -> list[FloatArray] | None:
        """Return the probabilities of the discrete choices, as seen in these steps.

        Args:
            decisions: Steps of N agents.

        Returns:
            One (N, size) array for each branch. None if the model has memory, has no discrete
            actions, or samples in an unknown way.
        """
        if self._memory_size or self._discrete is None or not len(decisions):
            return None
        inputs = {key: self._input(key, decisions) for key in self._axes}
        names = [self._discrete] if self._n_log_probs else self._drawn_from
        log_probs = list(self._run(names, inputs).values())
        if self._n_log_probs and self._branches is not None:
            log_probs = np.split(log_probs[0], np.cumsum(self._branches)[:-1], axis=1)
        if tuple(each.shape[1] for each in log_probs) != self._branches:
            return None
        found = []
        for each in log_probs:
            parts = np.exp(each - each.max(axis=1, keepdims=True))
            found.append((parts / parts.sum(axis=1, keepdims=True)).astype(np.float32))
        return found

    def forget(self, agents: Iterable[AgentId]) -> None:
        """Clear the memories of these agents. Their next step begins an episode."""
        for agent in agents:
            self._memories.pop(agent, None)

    def reset(self) -> None:
        """Clear the memories of all agents, for example after a reset of the environment."""
        self._memories.clear()

    def _require(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            raise UnityPolicyException(
                f"{self.name} is not a policy for agents: it {otherwise}. Use an .onnx file that "
                "mlagents-learn or Unity's trainer exported."
            )

    def _require_finite(self, outputs: Arrays, agent_id: IntArray) -> None:
        """Raise if an output of the model is not finite; the message names the agent."""
        for name, batch in outputs.items():
            # A masked choice may have the log-probability -inf.
            are_logarithms = name == self._discrete and self._n_log_probs
            is_sound = ~np.isnan(batch) if are_logarithms else np.isfinite(batch)
            if not is_sound.all():
                row = np.argwhere(~is_sound)[0][0]
                raise UnityPolicyException(
                    f"{self.name} returned NaN or infinity for agent {agent_id[row]} in {name!r}: "
                    "its training diverged, or an observation was not finite. Use an earlier model."
                )

    def _whole_number(self, name: str, at_zero: Arrays) -> int:
        """Return the value of a constant output."""
        values = at_zero[name].ravel()
        is_one = len(values) == 1 and bool(np.isfinite(values).all()) and 0 <= values[0] < 2**31
        self._require(is_one, f"has {values[:3].tolist()} for {name}, expected one whole number")
        return int(values[0])

    def _find_outputs(self, at_zero: Arrays) -> None:
        """Find the outputs with actions, and the sizes of actions."""
        version = self._whole_number("version_number", at_zero)
        self._require(version in (2, 3), f"has version {version}, expected 2 or 3")
        if self._memory_size:
            has_memory = _MEMORY_IN in self._axes and _MEMORY_OUT in at_zero
            self._require(has_memory, "does not return its memory")
            taken = self._axes[_MEMORY_IN][-1] or self._memory_size
            self._require(
                taken == self._memory_size <= _MAX_INPUT_NUMBERS,
                f"has a memory of {self._memory_size} numbers and takes {taken}",
            )
        if "continuous_actions" in at_zero:
            self._continuous = "continuous_actions"
        if "discrete_actions" in at_zero:
            self._discrete = "discrete_actions"
        if self._continuous is self._discrete is None and {_ACTION, _IS_CONTINUOUS} <= {*at_zero}:
            if at_zero[_IS_CONTINUOUS].item():
                self._continuous = _ACTION
            else:
                self._discrete = _ACTION
        self._require(bool(self._continuous or self._discrete), "has no actions")
        for name in (self._continuous, self._discrete):
            axes = 2 if name is None else at_zero[name].ndim
            self._require(axes == 2, f"has {axes} axes in {name!r}, expected 2")
        if self._continuous is not None:
            self._n_continuous = at_zero[self._continuous].shape[1]
        if self._discrete is not None and version == 2:
            self._n_log_probs = at_zero[self._discrete].shape[1]
            self._branches = None
        elif self._discrete is not None:
            self._require(_BRANCHES in at_zero, f"has no {_BRANCHES}")
            sizes = at_zero[_BRANCHES].ravel()
            self._require(bool(np.isfinite(sizes).all()), f"has {sizes.tolist()} for {_BRANCHES}")
            self._branches = tuple(int(size) for size in sizes)
        if self._deterministic and f"deterministic_{self._continuous}" in at_zero:
            self._continuous = f"deterministic_{self._continuous}"
        if self._deterministic and f"deterministic_{self._discrete}" in at_zero:
            self._discrete = f"deterministic_{self._discrete}"

    def _input(self, key: str, decisions: DecisionSteps) -> FloatArray:
        """Return the value of input `key`, (N, ...)."""
        if key == _MASKS:
            assert decisions.action_mask is not None  # ensured by `check`
            forbidden = np.concatenate(decisions.action_mask, axis=1)
            return 1.0 - forbidden.astype(np.float32)
        if key == _MEMORY_IN:
            nothing = np.zeros(self._memory_size, np.float32)
            held = [self._memories.get(agent, nothing) for agent in decisions.agent_id.tolist()]
            return np.stack(held)[:, None]  # (N, 1, M)
        if key == _NOISE:
            shape = (len(decisions), *self._axes[key][1:])
            if self._deterministic:
                return np.zeros(shape, np.float32)
            return self._rng.standard_normal(shape, np.float32)
        read = _observations_of(key, [batch.ndim - 1 for batch in decisions.obs])
        batches = [as_floats(decisions.obs[i]) for i in read]
        return batches[0] if len(batches) == 1 else np.concatenate(batches, axis=1)

    def _choose(self, log_probs: FloatArray) -> IntArray:
        """Return choices (N, K) for log-probabilities (N, sum of branches)."""
        if self._branches is None:
            raise UnityPolicyException(
                f"{self.name} is of version 2 and does not know the sizes of its branches: call "
                "check() with the behavior's specification first."
            )
        noise = 0.0 if self._deterministic else self._rng.gumbel(size=log_probs.shape)
        of_branches = np.split(log_probs + noise, np.cumsum(self._branches)[:-1], axis=1)
        return np.stack([branch.argmax(axis=1) for branch in of_branches], axis=1, dtype=np.int32)


def find_source(where: str | Path, *, results_dir: str | Path = "results") -> Path:
    """Return the source of a model: an `.onnx` file, or the folder of a run.

    Args:
        where: Path of the file or folder, or id of a run.
        results_dir: Folder of all runs.

    Raises:
        UnityPolicyException: Neither exists.
    """
    if Path(where).is_file():
        return Path(where)
    run = next((run for run in (Path(where), Path(results_dir, where)) if run.is_dir()), None)
    if run is None:
        runs = sorted(path.parent.name for path in Path(results_dir).glob("*/run_logs"))
        raise UnityPolicyException(
            f"there is no model {str(where)!r}: expected a file, or the folder or name of a run. "
            f"Runs in {str(results_dir)!r}: {', '.join(runs) or 'none'}."
        )
    return run


def find_model(where: str | Path, behavior: str, *, results_dir: str | Path = "results") -> Path:
    """Return the path of a model.

    Args:
        where: Path of an `.onnx` file, folder of a run, or id of a run.
        behavior: Name of the behavior, without the team.
        results_dir: Folder of all runs.

    Returns:
        `where`, if it is a file. For a run, the model of the latest step.

    Raises:
        UnityPolicyException: The file does not exist, or the run has no model of the behavior.
    """
    run = find_source(where, results_dir=results_dir)
    if run.is_file():
        return run
    by_step = {
        int(found[1]): path
        for path in run.joinpath(behavior).glob("*.onnx")
        if (found := re.fullmatch(rf"{re.escape(behavior)}-(\d+)\.onnx", path.name))
    }
    final = run / f"{behavior}.onnx"  # a copy of the newest one, even if that was deleted
    if not by_step and not final.is_file():
        others = sorted(path.name for path in run.glob("*.onnx"))
        raise UnityPolicyException(
            f"there is no model of {behavior!r} in {run}. Models there: "
            f"{', '.join(others) or 'none yet; the first checkpoint writes them'}."
        )
    return by_step[max(by_step)] if by_step else final


def _is_observation(key: str) -> bool:
    return bool(key == _VECTORS or _OBSERVATION.fullmatch(key) or _IMAGE.fullmatch(key))


def _observations_of(key: str, ranks: Sequence[int]) -> list[int]:
    """Return the indices of an input's observations, from the observations' numbers of axes."""
    if found := _OBSERVATION.fullmatch(key):
        number = int(found[1])
        return [number] if number < len(ranks) else []
    if found := _IMAGE.fullmatch(key):
        number = int(found[1])
        return [i for i, rank in enumerate(ranks) if rank == 3][number : number + 1]
    return [i for i, rank in enumerate(ranks) if rank == 1]


def _text(sizes: Sequence[int]) -> str:
    return " x ".join(str(size or "any") for size in sizes)
