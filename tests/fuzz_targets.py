"""Everything that reads bytes from outside, each with random inputs that get far into it.

Tests feed some inputs, `scripts/fuzz` as many as time allows. An input is accepted or refused with
one of this package's exceptions; all else is a bug.
"""

import math
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock
from uuid import UUID

import numpy as np
import pytest
from google.protobuf.message import Message as Proto

import http2_peer as peer
import shared_data
from damage import damaged
from demonstrations import file_of, first_records, messages_of
from http2_peer import frame, grpc_message, settings, window_update
from mlagents_envs import images as image_module
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
from mlagents_envs.demonstration_file import decode_demonstration
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
    image_layout,
)
from mlagents_envs.http2 import (
    MAX_CONTROL_BYTES,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    ClientConnection,
    ProtocolError,
    ServerConnection,
)
from mlagents_envs.images import ImageReading, decode_image, encode_image
from mlagents_envs.messages import (
    AgentInfoActionPairProto,
    BrainParametersProto,
    DemonstrationMetaProto,
    UnityMessageProto,
    field,
    varint,
)
from mlagents_envs.output_decoder import OutputDecoder
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel
from mlagents_envs.side_channel.messages import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.raw_bytes_channel import RawBytesChannel
from mlagents_envs.side_channel.side_channel import SideChannel, SideChannelRouter
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel
from mlagents_sim.channels import SimulationChannels
from mlagents_sim.examples.ball_3d import Ball3D
from png_by_hand import chunk, header, png

MAX_MESSAGE_BYTES = 1000


class Target(NamedTuple):
    """One way in.

    Attributes:
        generate: Makes a random input.
        check: Reads one and returns whether it was accepted; what it raises is a bug.
    """

    generate: Callable[[random.Random], bytes]
    check: Callable[[bytes], bool]


def is_accepted(read: Callable[[], object]) -> bool:
    """Run `read`; return whether it was content, False where it raised an error of ours."""
    try:
        read()
    except UnityException as error:
        assert str(error), "an error that says nothing"
        return False
    return True


def dice(data: bytes) -> random.Random:
    """Return what decides how an input is read: the same for the same input."""
    return random.Random(zlib.crc32(data))


# HTTP/2: what valid conversations are made of; the fuzzer picks, repeats, cuts and changes them.
HTTP2_PIECES = [
    peer.request(b"abc"),
    peer.request(bytes(900), stream=3),
    peer.response(b"abc"),
    frame(peer.HEADERS, 0, 1, peer.REQUEST_HEADERS[:9]),
    frame(peer.CONTINUATION, peer.END_HEADERS, 1, peer.REQUEST_HEADERS[9:]),
    frame(peer.HEADERS, peer.END_HEADERS, 5, b"\x40\x01a\x01b\xbe\x83\x86"),
    frame(peer.HEADERS, peer.END_HEADERS | peer.PADDED | peer.HAS_PRIORITY, 1, bytes(9) + b"\x88"),
    frame(peer.DATA, 0, 1, grpc_message(b"abc")[:6]),
    frame(peer.DATA, peer.END_STREAM | peer.PADDED, 1, b"\x03bcpad"),
    frame(peer.RST_STREAM, 0, 1, bytes(4)),
    frame(peer.PRIORITY, 0, 1, bytes(5)),
    frame(peer.PING, 0, 0, bytes(8)),
    frame(peer.GOAWAY, 0, 0, bytes(8)),
    frame(0x42, 0, 0, b"extension"),
    settings(window=20, frame=20_000),
    settings(header_table=0, window=70_000),
    window_update(0, 1000),
    window_update(1, 1000),
]


def random_frames(rng: random.Random, greeting: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randrange(200))
    if kind < 0.2:
        return greeting + rng.randbytes(rng.randrange(200))
    if kind < 0.4:  # frames well made, of anything
        return greeting + b"".join(
            frame(
                rng.randrange(11),
                rng.choice((0, 1, 4, 5, 8, rng.randrange(256))),
                rng.choice((0, 1, 1, 2, 3, rng.getrandbits(31))),
                rng.randbytes(rng.choice((0, 4, 5, 6, 8, rng.randrange(40)))),
            )
            for _ in range(rng.randrange(1, 6))
        )
    data = bytearray(greeting + b"".join(rng.choices(HTTP2_PIECES, k=rng.randrange(1, 8))))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(data))
        change = rng.random()
        if change < 0.6:
            data[at] = rng.randrange(256)
        elif change < 0.8:
            del data[at : at + rng.randrange(1, 9)]
            data = data or bytearray(b"P")
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(data)


def feed(role: str, data: bytes, cut: int) -> list[Any]:
    """Feed `data` in two parts; return the events and, last, the error if there was one."""
    connection: ServerConnection | ClientConnection
    if role == "server":
        connection = ServerConnection(MAX_MESSAGE_BYTES)
    else:
        connection = ClientConnection("localhost:1", MAX_MESSAGE_BYTES)
        connection.request(b"question")
    happened: list[Any] = []
    for part in (data[:cut], data[cut:]):
        try:
            happened += connection.receive_data(part)
        except ProtocolError as error:
            assert error.reason
            return [*happened, error]
        if isinstance(connection, ServerConnection) and connection.awaits_response:
            connection.respond(b"answer" * 10)
        assert len(connection._buffer) <= 9 + MAX_FRAME_BYTES
        assert connection._n_held <= MAX_MESSAGE_BYTES
        assert connection._block is None or len(connection._block[2]) <= MAX_HEADER_BYTES
        assert sum(map(len, connection._out)) <= MAX_CONTROL_BYTES + 1000
    return happened


def http2(role: str) -> Target:
    """One role of an HTTP/2 connection."""
    greeting = settings() if role == "client" else peer.PREFACE + settings()

    def check(data: bytes) -> bool:
        happened = feed(role, data, dice(data).randrange(len(data) + 1))
        return not (happened and isinstance(happened[-1], ProtocolError))

    return Target(lambda rng: random_frames(rng, greeting), check)


# Messages.

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
            for part in [inner] if isinstance(inner, Proto) else inner:
                yield from parts(part)


def altered(message: bytes, rng: random.Random, kind: Any = UnityMessageProto) -> bytes:
    """Give a few fields, anywhere in a valid message, other values of their type."""
    parsed = kind.FromString(message)
    for _ in range(rng.randint(1, 3)):
        part = rng.choice(list(parts(parsed)))
        one = rng.choice(part.DESCRIPTOR.fields)
        value = getattr(part, one.name)
        if rng.random() < 0.1:
            part.ClearField(one.name)
        elif isinstance(value, bytes):
            setattr(part, one.name, mutated(value, rng))
        elif isinstance(value, str):
            setattr(part, one.name, rng.choice(["", "2.0", "\0", "StackingSensor_size3_x", *SPECS]))
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
    lambda message: OutputDecoder().decode(message, SPECS),
]


def messages() -> Target:
    """The codec and the handshake; the first byte says which function reads the rest."""
    samples = sample_messages()

    def generate(rng: random.Random) -> bytes:
        return bytes([rng.randrange(len(DECODERS))]) + random_message(rng, samples)

    def check(data: bytes) -> bool:
        decode = DECODERS[data[0] % len(DECODERS)] if data else decode_ready
        return is_accepted(lambda: decode(data[1:]))

    return Target(generate, check)


# Recordings.

RECORDINGS = ["1.6.0-discrete", "2.3.0-suite", "4.0.0-3dball", "4.0.0-suite", "4.0.0-visual3dball"]


def recordings() -> Target:
    """What players of Unity said, damaged; the first byte says to which recording it belongs."""
    pieces: list[list[bytes]] = []
    contexts = []
    for name in RECORDINGS:
        _, exchanges, _ = shared_data.load_recording(name)
        hello, _, first, *later = [request for request, _ in exchanges]
        layout = image_layout(decode_simulation_hello(hello).package_version)
        images = ImageReading(layout, keep_8_bit=len(contexts) % 2 == 0)
        contexts.append((decode_output(first, {}, images).specs, images, later[:3]))
        pieces.append([first, *later[:20]])

    def generate(rng: random.Random) -> bytes:
        number = rng.randrange(len(contexts))
        change = rng.choice([altered, mutated, damaged])
        return bytes([number]) + change(rng.choice(pieces[number]), rng)

    def check(data: bytes) -> bool:
        specs, images, before = contexts[data[0] % len(contexts) if data else 0]
        decoder = OutputDecoder(images)
        for message in before:
            decoder.decode(message, specs)
        by_codec = is_accepted(lambda: decode_output(data[1:], specs, images))
        assert is_accepted(lambda: decoder.decode(data[1:], specs)) == by_codec
        return by_codec

    return Target(generate, check)


# Side channels.


class Reader(SideChannel):
    """Reads values of all types, in an order that the message decides."""

    def on_message_received(self, msg: IncomingMessage) -> None:
        kinds = ("bool", "int32", "float32", "float32_list", "string")
        for kind in dice(bytes(msg.buffer)).choices(kinds, k=4):
            getattr(msg, f"read_{kind}")()


def side_channels() -> Target:
    """The router and all channels, of both ends."""

    def of_scripts() -> list[SideChannel]:
        return [Reader(UUID(int=1)), RawBytesChannel(UUID(int=2)), FloatPropertiesChannel()]

    def all_channels() -> list[SideChannel]:
        engine, parameters = EngineConfigurationChannel(), EnvironmentParametersChannel()
        return [*of_scripts(), StatsSideChannel(), engine, parameters]

    class Talkative(Ball3D):
        def __init__(self) -> None:
            super().__init__()
            self.side_channels = of_scripts()

    def generate(rng: random.Random) -> bytes:
        ours = all_channels()
        for _ in range(rng.randrange(1, 4)):
            message = OutgoingMessage()
            message.write_string(rng.choice(["", "gravity", "Loss/Policy"]))
            for _ in range(rng.choice([1, 3])):
                message.write_int32(rng.choice([0, 1, 2, -1]))
            for _ in range(rng.randrange(3)):
                message.write_float32(rng.choice([0.0, 2.5, math.nan]))
            message.write_float32_list([1.0] * rng.randrange(3))
            message.write_bool(rng.random() < 0.5)
            message.buffer[:] = damaged(bytes(message.buffer), rng) if rng.random() < 0.7 else b""
            rng.choice(ours).queue_message_to_send(message)
        data = SideChannelRouter(ours).collect()
        return damaged(data, rng) if rng.random() < 0.5 else data

    def check(data: bytes) -> bool:
        trainer = is_accepted(lambda: SideChannelRouter(all_channels()).deliver(data))
        world = Talkative()
        simulation = is_accepted(lambda: SimulationChannels(world).deliver(data))
        assert np.isfinite(list(world.parameters.values())).all()
        return trainer and simulation

    return Target(generate, check)


# Demonstrations.


def demonstrations() -> Target:
    """Files of demonstrations, small ones."""
    brain = BrainParametersProto(
        brain_name="Fuzz",
        action_spec={"num_continuous_actions": 1, "num_discrete_actions": 1},
    )
    brain.action_spec.discrete_branch_sizes.append(3)
    record = AgentInfoActionPairProto(
        agent_info={
            "observations": [{"shape": b"\x02", "float_data": {"data": bytes(8)}}],
            "action_mask": bytes(3),
        },
        action_info={"continuous_actions": bytes(4), "discrete_actions": b"\x02"},
    )
    by_hand = [b"\x08\x01\x18\x02", *(m.SerializeToString() for m in (brain, record, record))]
    folder = shared_data.ROOT / "demonstrations"
    files = [first_records(path.read_bytes(), 3) for path in sorted(folder.glob("*.demo"))]
    seeds = [by_hand, *(messages_of(file, 3) for file in files)]
    kinds = DemonstrationMetaProto, BrainParametersProto, AgentInfoActionPairProto

    def generate(rng: random.Random) -> bytes:
        parts = list(rng.choice(seeds))
        at = rng.randrange(len(parts) + 1)
        if at == len(parts):
            return damaged(file_of(parts), rng)
        if rng.random() < 0.5:
            parts[at] = damaged(parts[at], rng)
        else:
            parts[at] = altered(parts[at], rng, kinds[min(at, 2)])
        return file_of(parts)

    def check(data: bytes) -> bool:
        keep = dice(data).random() < 0.5
        return is_accepted(lambda: decode_demonstration(data, keep_8_bit_images=keep))

    return Target(generate, check)


# Images.


GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6


def images(library: str) -> Target:
    """One agent's image, of one or several files, read by one library; bombs among them."""
    pytest.importorskip(library)
    load = {"PIL": image_module._load_pillow, "cv2": image_module._load_opencv}[library]
    decoder = load()

    def rows_of(n_bytes: int) -> bytes:
        return chunk(b"IDAT", zlib.compress(bytes(6 * (1 + n_bytes))))

    pixels, rows = np.arange(90, dtype=np.uint8).reshape(3, 6, 5), rows_of(15)
    extra = [(b"tRNS", b"\0"), (b"eXIf", b"MM"), (b"acTL", bytes(8)), (b"fcTL", bytes(26))]
    extra.append((b"zTXt", b"k\0\0" + zlib.compress(bytes(2**20))))
    files = [encode_image(pixels), encode_image(pixels[:1])]
    files += [png(header(5, 6), chunk(*one), rows) for one in extra]
    kinds = [(8, GRAY, 5), (1, GRAY, 1), (8, GRAY_ALPHA, 10), (8, RGBA, 20), (16, RGB, 30)]
    files += [png(header(5, 6, depth, color), rows_of(size)) for depth, color, size in kinds]
    files.append(png(header(5, 6, 8, PALETTE), chunk(b"PLTE", bytes(12)), rows_of(5)))
    files.append(png(header(5, 6), chunk(b"IDAT", zlib.compress(bytes(2**22), 9))))
    files.append(png(header(30_000, 30_000), rows))

    def generate(rng: random.Random) -> bytes:
        parts = rng.choices(files, k=rng.choice([1, 1, 2, 3]))
        at = rng.randrange(len(parts))
        parts[at] = damaged(parts[at], rng, spare=[parts[at][:33], parts[at][-12:]])
        if rng.random() < 0.5:
            parts[at] = with_valid_checksums(parts[at])
        return b"".join(parts)

    def check(data: bytes) -> bool:
        rng = dice(data)
        n_channels = rng.choice([1, 3, 6, 9])
        mapping = rng.choice([[], [0, 1, 2], [0, 0, 0], [rng.randint(-1, 5) for _ in range(6)]])
        out = np.zeros((n_channels, 6, 5), rng.choice([np.float32, np.uint8]))
        with mock.patch.object(image_module, "_decoder", lambda: decoder):
            return is_accepted(
                lambda: decode_image(data, mapping, out, n_frames=rng.choice([1, 2]))
            )

    return Target(generate, check)


def with_valid_checksums(file: bytes) -> bytes:
    """Write the checksums anew, so that damage gets past them."""
    found, at = file[:8], 8
    while at + 8 <= len(file):
        length = min(int.from_bytes(file[at : at + 4]), max(len(file) - at - 12, 0))
        found += chunk(file[at + 4 : at + 8], file[at + 8 : at + 8 + length])
        at += 12 + length
    return found


TARGETS: dict[str, Callable[[], Target]] = {
    "http2-server": lambda: http2("server"),
    "http2-client": lambda: http2("client"),
    "messages": messages,
    "recordings": recordings,
    "side-channels": side_channels,
    "demonstrations": demonstrations,
    "images-pillow": lambda: images("PIL"),
    "images-opencv": lambda: images("cv2"),
}
"""What makes each target; what it needs may be missing, which skips a test."""
