"""Microseconds to decode an output and to encode an input, by agents and sizes.

    python benchmarks/decode.py

"parse" is what the protobuf library needs to read the message, the least that decoding can take.
Every figure is the best of several runs.
"""

import timeit

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.codec import (
    Command,
    Input,
    Output,
    decode_input,
    decode_output,
    encode_input,
    encode_output,
)
from mlagents_envs.messages import UnityMessageProto

NAME = "Behavior?team=0"
REPEATS, CALLS = 7, 300

# agents that ask, agents that ended, floats each sees, continuous actions, discrete branches
CASES = [
    (1, 0, 8, 2, ()),
    (12, 0, 8, 2, ()),
    (12, 1, 8, 2, ()),
    (12, 0, 8, 2, (3, 2)),
    (100, 0, 8, 2, ()),
    (100, 0, 100, 20, ()),
    (100, 0, 400, 20, ()),
    (100, 10, 8, 2, (3, 2)),
]


def microseconds(call) -> float:
    return min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def sample(n_asking, n_ended, n_floats, n_continuous, branches):
    rng = np.random.default_rng(0)

    def common(n_agents):
        return {
            "obs": [rng.random((n_agents, n_floats), np.float32)],
            "reward": rng.random(n_agents, np.float32),
            "agent_id": np.arange(n_agents, dtype=np.int32),
            "group_id": np.zeros(n_agents, np.int32),
            "group_reward": np.zeros(n_agents, np.float32),
        }

    spec = BehaviorSpec(
        [ObservationSpec.vector(n_floats, f"VectorSensor_size{n_floats}")],
        ActionSpec(n_continuous, branches),
    )
    masks = [rng.random((n_asking, size)) < 0.3 for size in branches] if branches else None
    decisions = DecisionSteps(**common(n_asking), action_mask=masks)
    terminals = TerminalSteps(**common(n_ended), interrupted=np.zeros(n_ended, np.bool_))
    action = spec.action_spec.random_action(n_asking, rng)
    return (
        {NAME: spec},
        Output({}, {NAME: (decisions, terminals)}, b""),
        Input(Command.STEP, {NAME: ActionTuple(action.continuous, action.discrete)}, b""),
    )


def main() -> None:
    print("                                             |  trainer           | simulation")
    print("agents  ended  floats  actions      bytes    |  parse decode encode | encode decode")
    for case in CASES:
        specs, output, answer = sample(*case)
        sent, answered = encode_output(output, specs), encode_input(answer)
        calls = [
            lambda sent=sent: UnityMessageProto.FromString(sent),
            lambda sent=sent, specs=specs: decode_output(sent, specs),
            lambda answer=answer: encode_input(answer),
            lambda output=output, specs=specs: encode_output(output, specs),
            lambda answered=answered, specs=specs: decode_input(answered, specs),
        ]
        asking, ended, floats, continuous, branches = case
        actions = f"{continuous} + {list(branches)}"
        figures = [f"{microseconds(call):6.1f}" for call in calls]
        print(
            f"{asking:6} {ended:6} {floats:7}  {actions:11} {len(sent):7}    |"
            f" {' '.join(figures[:3])} | {' '.join(figures[3:])}"
        )


if __name__ == "__main__":
    main()
