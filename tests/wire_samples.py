"""Outputs and inputs of the wire, as hypothesis strategies, and how to compare them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
    behavior_name_problem,
)
from mlagents_envs.codec import Command, Input, Output

INT32 = st.integers(-(2**31), 2**31 - 1)
# Sums of a reward and a group reward stay finite in 32 bits too.
FLOAT32 = st.floats(-(2.0**126), 2.0**126, width=32)
NAMES = st.text(max_size=12)
BEHAVIOR_NAMES = st.text(max_size=12).filter(lambda name: not behavior_name_problem(name))


@st.composite
def observation_specs(draw: st.DrawFn) -> ObservationSpec:
    shape = draw(st.lists(st.integers(0, 4) | st.just(200), min_size=1, max_size=2))
    flags = draw(st.lists(st.integers(0, 7), min_size=len(shape), max_size=len(shape)))
    return ObservationSpec(
        tuple(shape),
        tuple(map(DimensionProperty, flags)),
        draw(st.sampled_from(ObservationType)),
        draw(NAMES),
    )


@st.composite
def action_specs(draw: st.DrawFn) -> ActionSpec:
    branches = draw(st.lists(st.integers(1, 5), max_size=3))
    return ActionSpec(draw(st.integers(0, 3)), tuple(branches))


@st.composite
def behavior_specs(draw: st.DrawFn) -> BehaviorSpec:
    return BehaviorSpec(draw(st.lists(observation_specs(), max_size=2)), draw(action_specs()))


def _numbers(draw: st.DrawFn, count: int, dtype: Any) -> Any:
    elements = {np.float32: FLOAT32, np.int32: INT32, np.bool_: st.booleans()}[dtype]
    return draw(npst.arrays(dtype, count, elements=elements))


def _observations(draw: st.DrawFn, spec: BehaviorSpec, n_agents: int) -> list[Any]:
    return [
        draw(npst.arrays(np.float32, (n_agents, *observation.shape), elements=FLOAT32))
        for observation in spec.observation_specs
    ]


@st.composite
def steps_of(draw: st.DrawFn, spec: BehaviorSpec) -> tuple[DecisionSteps, TerminalSteps]:
    asking, ended = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    branches = spec.action_spec.discrete_branches
    masks = None
    if asking and branches:
        masks = [draw(npst.arrays(np.bool_, (asking, size))) for size in branches]
    return (
        DecisionSteps(
            _observations(draw, spec, asking),
            _numbers(draw, asking, np.float32),
            _numbers(draw, asking, np.int32),
            masks,
            _numbers(draw, asking, np.int32),
            _numbers(draw, asking, np.float32),
        ),
        TerminalSteps(
            _observations(draw, spec, ended),
            _numbers(draw, ended, np.float32),
            _numbers(draw, ended, np.bool_),
            _numbers(draw, ended, np.int32),
            _numbers(draw, ended, np.int32),
            _numbers(draw, ended, np.float32),
        ),
    )


@st.composite
def outputs(draw: st.DrawFn, max_behaviors: int = 3) -> tuple[Output, dict[str, BehaviorSpec]]:
    """Draw an output and the specs announced before it."""
    all_specs = draw(st.dictionaries(BEHAVIOR_NAMES, behavior_specs(), max_size=max_behaviors))
    steps = {name: draw(steps_of(spec)) for name, spec in all_specs.items()}
    new = {
        name: spec
        for name, spec in all_specs.items()
        if any(map(len, steps[name])) and draw(st.booleans())
    }
    before = {name: spec for name, spec in all_specs.items() if name not in new}
    return Output(new, steps, draw(st.binary(max_size=20))), before


@st.composite
def inputs(draw: st.DrawFn, max_behaviors: int = 3) -> tuple[Input, dict[str, BehaviorSpec]]:
    """Draw an input and the specs announced before it."""
    specs = {
        name: BehaviorSpec([], spec)
        for name, spec in draw(
            st.dictionaries(BEHAVIOR_NAMES, action_specs(), max_size=max_behaviors)
        ).items()
    }
    actions = {}
    for name, (_, spec) in specs.items():
        n_agents = draw(st.integers(1, 4))
        choices = draw(st.sampled_from([st.integers(0, 4), INT32]))
        shape = n_agents, spec.continuous_size
        actions[name] = ActionTuple(
            draw(npst.arrays(np.float32, shape, elements=st.floats(width=32))),
            draw(npst.arrays(np.int32, (n_agents, spec.discrete_size), elements=choices)),
        )
    return Input(draw(st.sampled_from(Command)), actions, draw(st.binary(max_size=20))), specs


def assert_steps_equal(
    found: DecisionSteps | TerminalSteps, expected: DecisionSteps | TerminalSteps
) -> None:
    assert type(found) is type(expected)
    assert len(found.obs) == len(expected.obs)
    pairs = list(zip(found.obs, expected.obs, strict=True))
    for name in ("reward", "agent_id", "group_id", "group_reward"):
        pairs.append((getattr(found, name), getattr(expected, name)))
    if isinstance(found, TerminalSteps) and isinstance(expected, TerminalSteps):
        pairs.append((found.interrupted, expected.interrupted))
    elif isinstance(found, DecisionSteps) and isinstance(expected, DecisionSteps):
        assert (found.action_mask is None) == (expected.action_mask is None)
        pairs += zip(found.action_mask or [], expected.action_mask or [], strict=True)
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def assert_outputs_equal(found: Output, expected: Output) -> None:
    assert found.specs == expected.specs
    assert found.side_channel == expected.side_channel
    assert found.steps.keys() == expected.steps.keys()
    for name, pair in expected.steps.items():
        for one, other in zip(found.steps[name], pair, strict=True):
            assert_steps_equal(one, other)


def assert_inputs_equal(found: Input, expected: Input) -> None:
    assert found.command is expected.command
    assert found.side_channel == expected.side_channel
    assert found.actions.keys() == expected.actions.keys()
    for name, action in expected.actions.items():
        for part in ("continuous", "discrete"):
            one, other = getattr(found.actions[name], part), getattr(action, part)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
