"""Microseconds to decode an output and to encode an input, by number of agents and sizes.

    python benchmarks/decode.py

"parse" is the time in which the protobuf library reads the message, a lower bound for decoding.
Every figure is the best of several runs.
"""

import io
import os
import timeit
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
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
from mlagents_envs.images import ImageReading
from mlagents_envs.messages import UnityMessageProto

NAME = "Behavior?team=0"
REPEATS, CALLS = 7, 300
ROUNDS = 200

# agents that ask, agents that ended, floats per agent, continuous actions, discrete branches
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


def scene(rng) -> np.ndarray:
    """Draw a picture as of a camera: slow gradients, a few discs, a little noise."""
    y, x = np.mgrid[:84, :84]
    picture = np.stack([120 + 60 * np.sin(x / 20), 100 + 50 * np.cos(y / 15), 80 + 0 * x], axis=2)
    for _ in range(8):
        center_x, center_y, radius = rng.integers(0, (84, 84, 14))
        disc = (x - center_x) ** 2 + (y - center_y) ** 2 < radius**2
        picture[disc] = rng.integers(0, 256, 3)
    return (picture + rng.normal(size=picture.shape)).clip(0, 255).astype(np.uint8)


def images() -> None:
    """Compare messages of images with the bare library; both use all processors."""
    try:
        import cv2
    except ImportError:
        cv2 = None
    from PIL import Image

    def with_opencv(file):
        return cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)

    def with_pillow(file):
        return np.asarray(Image.open(io.BytesIO(file)))

    bare = with_pillow if cv2 is None else with_opencv
    rng = np.random.default_rng(0)
    pixels = np.stack([scene(rng).transpose(2, 0, 1) for _ in range(16)])
    flags = (DimensionProperty.NONE, *[DimensionProperty.TRANSLATIONAL_EQUIVARIANCE] * 2)
    eye = ObservationSpec((3, 84, 84), flags, ObservationType.DEFAULT, "CameraSensor")
    bytes_eye = eye._replace(dtype=np.dtype(np.uint8))
    files = []
    for picture in pixels:
        file = io.BytesIO()
        Image.fromarray(picture.transpose(1, 2, 0)).save(file, "PNG")
        files.append(file.getvalue())
    specs = {NAME: BehaviorSpec([eye], ActionSpec(2, ()))}
    as_bytes = {NAME: BehaviorSpec([bytes_eye], ActionSpec(2, ()))}
    zeros, ids = np.zeros(16, np.float32), np.arange(16, dtype=np.int32)
    decisions = DecisionSteps([pixels], zeros, ids, None, np.zeros(16, np.int32), zeros)
    output = Output({}, {NAME: (decisions, TerminalSteps.empty(as_bytes[NAME]))}, b"")
    stored = encode_output(output, as_bytes)
    plain = encode_output(output, specs)
    message = UnityMessageProto.FromString(stored)
    for agent, file in zip(
        message.unity_output.rl_output.agentInfos[NAME].value, files, strict=True
    ):
        agent.observations[0].compressed_data = file
    packed = message.SerializeToString()

    keep = ImageReading(keep_8_bit=True)
    n_processors = os.cpu_count()
    with ThreadPoolExecutor(n_processors) as pool:
        calls = {
            f"bare {bare.__name__[5:]}, {n_processors} threads": lambda: [*pool.map(bare, files)],
            "decode to float32": lambda: decode_output(packed, specs),
            "decode to uint8": lambda: decode_output(packed, as_bytes, keep),
            "decode stored files to float32": lambda: decode_output(stored, specs),
            "decode uncompressed floats": lambda: decode_output(plain, specs),
            "encode as stored files": lambda: encode_output(output, as_bytes),
            "encode uncompressed floats": lambda: encode_output(output, specs),
        }
        # The calls take turns, so that a busy moment of the machine affects all of them.
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(timeit.timeit(call, number=1) * 1e6)
    print("\n16 agents, 84 x 84 x 3                 microseconds: median, best")
    for name, measured in times.items():
        print(f"  {name:34} {np.median(measured):7.0f} {min(measured):7.0f}")


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

    images()


if __name__ == "__main__":
    main()
