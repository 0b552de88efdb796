"""Random and mutated messages: nothing but this package's exceptions may come out."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

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
    encode_close,
    encode_input,
    encode_output,
)
from mlagents_envs.exception import UnityException
from mlagents_envs.handshake import (
    Capabilities,
    SimulationHello,
    TrainerHello,
    check_version,
    decode_ready,
    decode_simulation_hello,
    decode_trainer_hello,
    encode_ready,
    encode_simulation_hello,
    encode_trainer_hello,
)
from mlagents_envs.messages import UnityMessageProto, field, varint

N_MESSAGES = 300_000

SPECS = {
    "Hybrid?team=0": BehaviorSpec(
        [ObservationSpec.vector(3, "a"), ObservationSpec.vector(1, "b")],
        ActionSpec.create_hybrid(2, (3, 2)),
    ),
    "Blind?team=1": BehaviorSpec([], ActionSpec.create_discrete((4,))),
}


def sample_steps(
    spec: BehaviorSpec, n_asking: int, n_ended: int
) -> tuple[DecisionSteps, TerminalSteps]:
    def common(n_agents: int) -> dict[str, Any]:
        return {
            "obs": [
                np.full((n_agents, *observation.shape), 0.5, np.float32)
                for observation in spec.observation_specs
            ],
            "reward": np.full(n_agents, 1.5, np.float32),
            "agent_id": np.arange(n_agents, dtype=np.int32),
            "group_id": np.full(n_agents, 2, np.int32),
            "group_reward": np.full(n_agents, -1.0, np.float32),
        }

    masks = [np.ones((n_asking, size), np.bool_) for size in spec.action_spec.discrete_branches]
    return (
        DecisionSteps(**common(n_asking), action_mask=masks),
        TerminalSteps(**common(n_ended), interrupted=np.ones(n_ended, np.bool_)),
    )


def sample_messages() -> list[bytes]:
    steps = {name: sample_steps(spec, 2, 1) for name, spec in SPECS.items()}
    actions = {
        name: ActionTuple(
            np.ones((2, spec.action_spec.continuous_size)),
            np.ones((2, spec.action_spec.discrete_size)),
        )
        for name, spec in SPECS.items()
    }
    return [
        encode_output(Output(SPECS, steps, b"side"), {}),
        encode_output(Output({}, steps, b""), SPECS),
        encode_input(Input(Command.STEP, actions, b"side")),
        encode_input(Input(Command.RESET, {}, b"")),
        encode_simulation_hello(SimulationHello("1.5.0", "3.0.0", Capabilities.all())),
        encode_trainer_hello(TrainerHello(42, "1.5.0", "1.1.0", Capabilities.all())),
        encode_ready(),
        encode_close(),
    ]


def mutated(message: bytes, rng: random.Random) -> bytes:
    """Change, remove, insert or repeat a few bytes."""
    data = bytearray(message)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.randint(1, 8))
        kind = rng.randrange(5)
        if kind == 0:
            data[at:end] = rng.randbytes(end - at)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = rng.choice([rng.randbytes(3), varint(rng.getrandbits(64)), data[at:end]])
        elif kind == 3:
            data[at : at + 1] = rng.choice([b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"])
        else:
            del data[rng.randint(0, len(data)) :]
    return bytes(data)


def parts(message: Any) -> Iterator[Any]:
    """Yield a message and all messages in it."""
    yield message
    for one, value in message.ListFields():
        if one.message_type is not None:
            inner = value.values() if hasattr(value, "values") else value
            for part in [inner] if isinstance(inner, Message) else inner:
                yield from parts(part)


def altered(message: bytes, rng: random.Random) -> bytes:
    """Give a few fields, anywhere in a valid message, other values of their type."""
    parsed = UnityMessageProto.FromString(message)
    for _ in range(rng.randint(1, 3)):
        part = rng.choice(list(parts(parsed)))
        one = rng.choice(part.DESCRIPTOR.fields)
        value = getattr(part, one.name)
        if rng.random() < 0.1:
            part.ClearField(one.name)
        elif isinstance(value, bytes):
            setattr(part, one.name, mutated(value, rng))
        elif isinstance(value, str):
            setattr(part, one.name, rng.choice(["", "2.0", *SPECS]))
        elif isinstance(value, float):
            setattr(part, one.name, rng.choice([0.0, math.nan, -math.inf, 3e38]))
        elif isinstance(value, int):  # enumerations and truth values too
            setattr(part, one.name, rng.choice([0, 1, 2, 3, 200, 2**31 - 1, -(2**31)]))
        elif one.cpp_type == one.CPPTYPE_INT32:  # repeated
            value.extend(list(value) or [rng.choice([-1, 0, 2**31 - 1])])
        elif hasattr(value, "add") and value:
            value.add().CopyFrom(rng.choice(list(value)))
    return parsed.SerializeToString()


def random_fields(rng: random.Random, depth: int) -> bytes:
    """Make a message of random fields, some of them messages: what a parser gets far into."""
    fields = []
    for _ in range(rng.randint(0, 4)):
        number = rng.randint(1, 15)
        kind = rng.randrange(4)
        if kind == 0:
            value = rng.choice([rng.randint(0, 3), rng.getrandbits(32), rng.getrandbits(64)])
            fields.append(varint(number << 3) + varint(value))
        elif kind == 1:
            fields.append(varint(number << 3 | 5) + rng.randbytes(4))
        elif kind == 2 or depth == 0:
            name = rng.choice([b"", *(name.encode() for name in SPECS), rng.randbytes(4)])
            fields.append(field(number, name))
        else:
            fields.append(field(number, random_fields(rng, depth - 1)))
    return b"".join(fields)


def random_message(rng: random.Random, samples: list[bytes]) -> bytes:
    kind = rng.randrange(8)
    if kind < 4:
        return altered(rng.choice(samples), rng)
    if kind == 4:
        return rng.randbytes(rng.randint(0, 60))
    if kind == 5:
        header = field(1, b"\x08\xc8\x01")
        agents = b"".join(field(1, random_fields(rng, 3)) for _ in range(rng.randint(0, 3)))
        entry = field(1, rng.choice(list(SPECS)).encode()) + field(2, agents)
        output = field(1, field(2, entry)) + field(2, random_fields(rng, 3))
        return header + field(2, output) + field(3, field(1, field(1, entry)))
    return mutated(rng.choice(samples), rng)


DECODERS: list[Callable[[bytes], Any]] = [
    lambda message: decode_output(message, SPECS),
    lambda message: decode_output(message, {}),
    lambda message: decode_input(message, SPECS),
    lambda message: check_version(decode_simulation_hello(message).communication_version),
    decode_trainer_hello,
    decode_ready,
]


def fuzz(n_messages: int, seed: int) -> int:
    """Decode as many random messages; return how many of them were accepted."""
    rng = random.Random(seed)
    samples = sample_messages()
    accepted = 0
    for number in range(n_messages):
        message = random_message(rng, samples)
        decode = DECODERS[number % len(DECODERS)]
        try:
            decode(message)
            accepted += 1
        except UnityException as error:
            assert str(error)
        except BaseException:
            print(f"message {number}: {message.hex()}")
            raise
    return accepted


def test_a_few_random_messages_give_only_this_packages_exceptions():
    assert 0 < fuzz(5_000, seed=1) < 5_000


@pytest.mark.slow
def test_many_random_messages_give_only_this_packages_exceptions():
    assert 0 < fuzz(N_MESSAGES, seed=2) < N_MESSAGES


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("sample", range(8))
def test_every_message_cut_short_gives_only_this_packages_exceptions(decode, sample):
    message = sample_messages()[sample]
    for end in range(len(message)):
        try:
            decode(message[:end])
        except UnityException as error:
            assert str(error)
