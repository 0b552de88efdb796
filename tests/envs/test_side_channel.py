import json
import math
import struct
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityEnvironmentException,
    UnityException,
    UnitySideChannelException,
)
from mlagents_envs.messages import parse_message
from mlagents_envs.side_channel import (
    DefaultTrainingAnalyticsSideChannel,
    IncomingMessage,
    OutgoingMessage,
    SideChannel,
    default_training_analytics_side_channel,
)
from mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel
from mlagents_envs.side_channel.raw_bytes_channel import RawBytesChannel
from mlagents_envs.side_channel.side_channel import SideChannelRouter
from mlagents_envs.side_channel.stats_side_channel import (
    StatsAggregationMethod,
    StatsSideChannel,
)
from shared_data import VECTORS, load_recording, load_vectors, require

ID = UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7")
OTHER_ID = UUID("a85ba5c0-4f87-11ea-a517-784f4387d1f7")

int32s = st.integers(-(2**31), 2**31 - 1)
float32s = st.floats(width=32)
ascii_texts = st.text(st.characters(max_codepoint=127))
# By type: how values are made, and the pair of methods that must undo each other.
TYPES = {
    "bool": st.booleans(),
    "int32": int32s,
    "float32": float32s,
    "float32_list": st.lists(float32s),
    "string": ascii_texts,
}
typed_values = st.sampled_from(sorted(TYPES)).flatmap(
    lambda name: st.tuples(st.just(name), TYPES[name])
)


def written(*values: tuple[str, Any]) -> bytes:
    message = OutgoingMessage()
    for name, value in values:
        getattr(message, f"write_{name}")(value)
    return bytes(message.buffer)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    both_nan = left != left and right != right
    return both_nan or (left == right and type(left) is type(right))


class Recorder(SideChannel):
    """Keeps every message it receives."""

    def __init__(self, channel_id: UUID = ID) -> None:
        super().__init__(channel_id)
        self.messages: list[bytes] = []

    def on_message_received(self, msg: IncomingMessage) -> None:
        self.messages.append(msg.get_raw_bytes())

    def queue(self, data: bytes) -> None:
        message = OutgoingMessage()
        message.set_raw_bytes(data)
        self.queue_message_to_send(message)


# --- messages


def test_primitives_match_the_published_bytes():
    primitives = json.loads(require(VECTORS / "side_channels.json").read_text())["primitives"]
    by_prefix = {
        "bool": ["bool"],
        "int32": ["int32"],
        "float32": ["float32"],
        "string": ["string"],
        "float_list": ["float32_list"],
        "mixed": ["bool", "int32", "string", "float32", "float32_list"],
    }
    for vector in primitives:
        prefix = next(p for p in by_prefix if vector["name"].startswith(p))
        types = by_prefix[prefix]
        values = vector["value"] if prefix == "mixed" else [vector["value"]]
        data = bytes.fromhex(vector["hex"])
        assert written(*zip(types, values, strict=True)) == data, vector["name"]
        message = IncomingMessage(data)
        assert [getattr(message, f"read_{name}")() for name in types] == values, vector["name"]


def test_a_message_by_hand():
    # true | 7 | 2 characters "ab" | -0.5 | 1 float: 3.0
    data = bytes.fromhex("0107000000020000006162000000bf0100000000004040")
    assert data == written(
        ("bool", True), ("int32", 7), ("string", "ab"), ("float32", -0.5), ("float32_list", [3.0])
    )


@given(st.lists(typed_values, max_size=8))
def test_values_read_back_as_written(values: list[tuple[str, Any]]):
    message = IncomingMessage(written(*values))
    for name, value in values:
        assert same(getattr(message, f"read_{name}")(), value)
    assert message.offset == len(message.buffer)


@given(typed_values)
def test_a_value_cut_in_two_is_an_error_and_nothing_at_all_is_the_default(value: tuple[str, Any]):
    name, _ = value
    data = written(value)
    default = object()
    assert getattr(IncomingMessage(data, offset=len(data)), f"read_{name}")(default) is default
    for length in range(1, len(data)):
        with pytest.raises(UnitySideChannelException):
            getattr(IncomingMessage(data[:length]), f"read_{name}")()


def test_defaults_without_a_message():
    empty = IncomingMessage(b"")
    assert empty.read_bool() is False
    assert empty.read_int32() == 0
    assert empty.read_float32() == 0.0
    assert empty.read_float32_list() == []
    assert empty.read_string() == ""
    assert empty.get_raw_bytes() == b""


def test_any_byte_but_zero_is_true():
    assert IncomingMessage(b"\x02").read_bool() is True


@pytest.mark.parametrize("name", ["string", "float32_list"])
@pytest.mark.parametrize("length", [2**31 - 1, 2**29, 5, -1, -(2**31)])
def test_a_wrong_length_is_an_error_and_claims_no_memory(name: str, length: int):
    message = IncomingMessage(struct.pack("<i", length) + b"four")
    tracemalloc.start()
    try:
        with pytest.raises(UnitySideChannelException, match=f"announces {length} items"):
            getattr(message, f"read_{name}")()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@given(st.binary(max_size=40), st.lists(st.sampled_from(sorted(TYPES)), max_size=6))
def test_random_bytes_read_as_anything_raise_only_our_error(data: bytes, names: list[str]):
    message = IncomingMessage(data)
    try:
        for name in names:
            getattr(message, f"read_{name}")()
    except UnitySideChannelException:
        pass
    assert message.offset <= len(data)


def test_a_text_beyond_ascii_is_refused_both_ways():
    with pytest.raises(UnitySideChannelException, match=r"character 1 \('é'\) is not ASCII"):
        OutgoingMessage().write_string("hé")
    with pytest.raises(UnitySideChannelException, match="not ASCII"):
        IncomingMessage(b"\x01\x00\x00\x00\xe9").read_string()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int32", 2**31),
        ("int32", -(2**31) - 1),
        ("int32", 1.5),
        ("float32", 1e39),
        ("float32", "fast"),
        ("float32_list", [0.0, 1e39]),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused(name: str, value: Any):
    message = OutgoingMessage()
    with pytest.raises(UnitySideChannelException, match="cannot write"):
        getattr(message, f"write_{name}")(value)
    assert not message.buffer


# --- routing


def test_records_match_the_published_bytes():
    vectors = load_vectors("side_channels")
    for vector in vectors:
        channel = Recorder(UUID(vector["channel_id"]))
        payload, record = (bytes.fromhex(vector[key]) for key in ("payload_hex", "enveloped_hex"))
        channel.queue(payload)
        router = SideChannelRouter([channel])
        assert router.collect() == record, vector["name"]
        router.deliver(record)
        assert channel.messages == [payload], vector["name"]


def test_two_records_by_hand():
    # Time scale 20 on the engine's channel, then mass 2.5 on that of the parameters.
    engine, parameters = EngineConfigurationChannel(), EnvironmentParametersChannel()
    parameters.set_float_parameter("mass", 2.5)
    engine.set_configuration_parameters(time_scale=20)
    assert SideChannelRouter([engine, parameters]).collect() == bytes.fromhex(
        "2c3451e97e4fea11b238784f4387d1f7"
        "08000000"
        "020000000000a041"
        "1e894c530f81ea11a9d0822485860400"
        "10000000"
        "040000006d6173730000000000002040"
    )


def test_all_queues_are_emptied_in_order_of_registration_then_of_queueing():
    first, second = Recorder(ID), Recorder(OTHER_ID)
    router = SideChannelRouter([first, second])
    second.queue(b"c")
    first.queue(b"a")
    first.queue(b"b")

    def record(channel: SideChannel, data: bytes) -> bytes:
        return channel.channel_id.bytes_le + b"\x01\x00\x00\x00" + data

    assert router.collect() == record(first, b"a") + record(first, b"b") + record(second, b"c")
    assert router.collect() == b""


def test_a_queued_message_is_not_changed_by_later_writes():
    channel = Recorder()
    message = OutgoingMessage()
    message.write_bool(True)
    channel.queue_message_to_send(message)
    message.write_bool(False)
    assert channel.message_queue == [b"\x01"]


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=20)), max_size=10))
def test_what_one_router_collects_the_other_delivers(messages: list[tuple[bool, bytes]]):
    here = [Recorder(ID), Recorder(OTHER_ID)]
    there = [Recorder(ID), Recorder(OTHER_ID)]
    for which, data in messages:
        here[which].queue(data)
    SideChannelRouter(there).deliver(SideChannelRouter(here).collect())
    for which in (False, True):
        assert there[which].messages == [data for to, data in messages if to == which]


def test_two_channels_of_one_id_are_refused():
    with pytest.raises(UnityEnvironmentException, match=rf"{ID}, the second a RawBytesChannel"):
        SideChannelRouter([Recorder(ID), RawBytesChannel(ID)])


def test_the_same_channel_twice_is_refused():
    channel = Recorder()
    with pytest.raises(UnityEnvironmentException, match="a different id for each channel"):
        SideChannelRouter([channel, channel])


def test_an_unknown_channel_is_skipped_with_one_warning(capsys: pytest.CaptureFixture[str]):
    known, unknown, other = Recorder(ID), Recorder(OTHER_ID), Recorder(UUID(int=7))
    router = SideChannelRouter([known])
    for _ in range(2):
        for channel in (unknown, other):
            channel.queue_message_to_send(OutgoingMessage())
        known.queue(b"kept")
        router.deliver(SideChannelRouter([unknown, other, known]).collect())
    assert known.messages == [b"kept", b"kept"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("[WARNING]") for line in lines] == [True, True]
    assert str(OTHER_ID) in lines[0]
    assert str(UUID(int=7)) in lines[1]


def test_statistics_that_no_channel_takes_are_named_and_no_reason_to_warn(
    capsys: pytest.CaptureFixture[str],
):
    statistics = StatsSideChannel()
    router = SideChannelRouter([])
    for _ in range(2):
        statistics.queue_message_to_send(OutgoingMessage())
        router.deliver(SideChannelRouter([statistics]).collect())
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("[INFO] ") and "StatsSideChannel" in line


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ID.bytes_le[:15], "15 bytes at byte 24"),
        (ID.bytes_le + b"\x01\x00\x00", "19 bytes at byte 24"),
        (ID.bytes_le + b"\x02\x00\x00\x00x", "message of 2 bytes at byte 44, but 1 are left"),
        (ID.bytes_le + b"\xff\xff\xff\xff", "message of -1 bytes"),
        (ID.bytes_le + b"\xff\xff\xff\x7f", "message of 2147483647 bytes"),
    ],
)
def test_malformed_data_are_refused_before_anything_is_delivered(end: bytes, reason: str):
    channel = Recorder()
    channel.queue(b"good")
    router = SideChannelRouter([channel])
    with pytest.raises(UnityEnvironmentException, match=reason):
        router.deliver(router.collect() + end)
    assert channel.messages == []


@given(st.binary(max_size=80))
def test_random_data_raise_only_our_errors(data: bytes):
    channels = [Recorder(), StatsSideChannel(), FloatPropertiesChannel()]
    router = SideChannelRouter(channels)
    for head in (b"", *(channel.channel_id.bytes_le for channel in channels)):
        try:
            router.deliver(head + data)
            router.deliver(head + struct.pack("<i", len(data)) + data if head else b"")
        except UnityException:
            pass


def test_an_error_of_a_handler_reaches_the_caller():
    class Failing(Recorder):
        def on_message_received(self, msg: IncomingMessage) -> None:
            raise ZeroDivisionError("the handler's own")

    channel = Failing()
    channel.queue(b"")
    router = SideChannelRouter([channel])
    with pytest.raises(ZeroDivisionError, match="the handler's own"):
        router.deliver(router.collect())


# --- the channels we ship


def payloads(channel: SideChannel) -> list[str]:
    return [message.hex() for message in channel.message_queue]


def test_engine_settings_one_message_each_in_fixed_order():
    channel = EngineConfigurationChannel()
    channel.set_configuration(EngineConfig(84, 64, 5, 20.0, -1, 60))
    assert payloads(channel) == [
        "000000005400000040000000",
        "0100000005000000",
        "020000000000a041",
        "03000000ffffffff",
        "040000003c000000",
    ]


def test_engine_settings_not_given_are_not_sent():
    channel = EngineConfigurationChannel()
    channel.set_configuration_parameters(capture_frame_rate=0)
    assert payloads(channel) == ["0400000000000000"]


def test_default_engine_configuration():
    assert EngineConfig.default_config() == (80, 80, 1, 20.0, -1, 60)


@pytest.mark.parametrize("half", [{"width": 84}, {"height": 84}])
def test_half_a_resolution_is_refused(half: dict[str, int]):
    channel = EngineConfigurationChannel()
    with pytest.raises(UnitySideChannelException, match="set both or neither"):
        channel.set_configuration_parameters(time_scale=1, **half)
    assert channel.message_queue == []


@pytest.mark.parametrize("channel", [EngineConfigurationChannel(), EnvironmentParametersChannel()])
def test_a_message_on_a_channel_that_only_sends_is_refused(channel: SideChannel):
    with pytest.raises(UnityCommunicationException):
        channel.on_message_received(IncomingMessage(b""))


@pytest.mark.parametrize(
    ("method", "numbers", "text"),
    [
        ("float_parameter", (float("nan"),), "'mass' is nan: expected a finite 32-bit number"),
        ("float_parameter", (1e39,), r"'mass' is 1e\+39"),
        ("uniform_sampler_parameters", (2, 1, 0), r"'mass': cannot draw from \[\(2, 1\)\]"),
        ("uniform_sampler_parameters", (0, float("inf"), 0), r"\(0, inf\)"),
        ("gaussian_sampler_parameters", (0, -1, 0), "'mass': cannot draw with mean 0 and .* -1:"),
        ("gaussian_sampler_parameters", (float("nan"), 1, 0), "mean nan"),
        ("multirangeuniform_sampler_parameters", ([], 0), "'mass': expected at least one interval"),
        ("multirangeuniform_sampler_parameters", ([(0, 1), (3, 2)], 0), r"\(3, 2\)"),
    ],
)
def test_environment_parameters_that_cannot_be_obeyed_are_refused(method, numbers, text):
    channel = EnvironmentParametersChannel()
    with pytest.raises(UnityEnvironmentException, match=text):
        getattr(channel, f"set_{method}")("mass", *numbers)
    assert SideChannelRouter([channel]).collect() == b""


def test_environment_parameters():
    channel = EnvironmentParametersChannel()
    channel.set_float_parameter("mass", 2.5)
    channel.set_uniform_sampler_parameters("mass", 0.5, 10, seed=1234)
    channel.set_gaussian_sampler_parameters("mass", 1, 0.25, seed=-7)
    channel.set_multirangeuniform_sampler_parameters("mass", [(0, 1), (4, 6.5)], seed=5)
    mass = "040000006d617373"
    assert payloads(channel) == [
        mass + "0000000000002040",
        mass + "01000000d2040000000000000000003f00002041",
        mass + "01000000f9ffffff010000000000803f0000803e",
        mass + "01000000050000000200000004000000000000000000803f000080400000d040",
    ]


def test_a_parameter_name_beyond_ascii_is_refused_and_not_sent():
    channel = EnvironmentParametersChannel()
    with pytest.raises(UnitySideChannelException, match="größe"):
        channel.set_float_parameter("größe", 1)
    assert channel.message_queue == []


def test_stats_are_kept_by_name_in_order_until_read():
    channel = StatsSideChannel()
    head = "0c000000" + b"Agent/Health".hex()
    for value, aggregation in [("0000403f", 0), ("0000803f", 0), ("00000040", 3)]:
        channel.on_message_received(
            IncomingMessage(bytes.fromhex(head + value) + struct.pack("<i", aggregation))
        )
    average, histogram = StatsAggregationMethod.AVERAGE, StatsAggregationMethod.HISTOGRAM
    assert channel.get_and_reset_stats() == {
        "Agent/Health": [(0.75, average), (1.0, average), (2.0, histogram)]
    }
    assert channel.get_and_reset_stats() == {}


def test_published_stats_decode():
    for vector in load_vectors("side_channels"):
        if vector["channel_id"] == str(StatsSideChannel.CHANNEL_ID):
            channel = StatsSideChannel()
            SideChannelRouter([channel]).deliver(bytes.fromhex(vector["enveloped_hex"]))
            meant = vector["decoded"]
            method = StatsAggregationMethod(meant["aggregation"])
            assert channel.get_and_reset_stats() == {meant["key"]: [(meant["value"], method)]}


@pytest.mark.parametrize("name", ["4.0.0-suite", "2.3.0-suite"])
def test_recorded_stats_are_those_the_reference_received(name: str):
    meta, exchanges, _ = load_recording(name)
    stats, custom = StatsSideChannel(), Recorder(ID)
    router = SideChannelRouter([stats, custom])
    received = []
    for request, _reply in exchanges[2:]:
        router.deliver(parse_message(request).unity_output.rl_output.side_channel)
        received.append(
            {
                key: [[value, method.value] for value, method in values]
                for key, values in stats.get_and_reset_stats().items()
            }
        )
    assert received == meta["stats"]
    assert custom.messages


def test_an_unknown_aggregation_is_refused():
    data = written(("string", "s"), ("float32", 1.0), ("int32", 4))
    with pytest.raises(UnitySideChannelException, match="'s': unknown aggregation method 4"):
        StatsSideChannel().on_message_received(IncomingMessage(data))


def test_float_properties_are_shared_by_both_sides():
    here, there = FloatPropertiesChannel(), FloatPropertiesChannel()
    here.set_property("gravity", -9.81)
    assert payloads(here) == ["0700000067726176697479c3f51cc1"]
    SideChannelRouter([there]).deliver(SideChannelRouter([here]).collect())
    assert there.list_properties() == ["gravity"]
    gravity = there.get_property("gravity")
    assert gravity is not None
    assert math.isclose(gravity, -9.81, rel_tol=1e-7)
    assert there.get_property("wind") is None
    there.get_property_dict_copy().clear()
    assert there.list_properties() == ["gravity"]


def test_a_property_that_cannot_be_sent_is_not_set_here_either():
    channel = FloatPropertiesChannel(OTHER_ID)
    assert channel.channel_id == OTHER_ID
    with pytest.raises(UnitySideChannelException):
        channel.set_property("far", 1e300)
    assert channel.get_property("far") is None
    assert channel.message_queue == []


def test_raw_bytes_pass_untouched():
    here, there = RawBytesChannel(ID), RawBytesChannel(ID)
    here.send_raw_data(b"\x00\x01\xfehello")
    here.send_raw_data(bytearray())
    SideChannelRouter([there]).deliver(SideChannelRouter([here]).collect())
    assert there.get_and_clear_received_messages() == [b"\x00\x01\xfehello", b""]
    assert there.get_and_clear_received_messages() == []


def test_analytics_are_sent_once_and_say_what_the_protocol_says(monkeypatch):
    (vector,) = (
        vector
        for vector in load_vectors("side_channels")
        if vector["name"] == "analytics_environment_initialized_default"
    )
    module = default_training_analytics_side_channel
    monkeypatch.setattr(module, "__version__", "1.1.0")
    monkeypatch.setattr(module.platform, "python_version", lambda: "3.10.12")
    router = SideChannelRouter([DefaultTrainingAnalyticsSideChannel()])
    assert router.collect().hex() == vector["enveloped_hex"]
    assert router.collect() == b""


def test_analytics_of_a_simulation_are_refused():
    with pytest.raises(
        UnityCommunicationException, match="only carries messages to the simulation"
    ):
        DefaultTrainingAnalyticsSideChannel().on_message_received(IncomingMessage(b""))
