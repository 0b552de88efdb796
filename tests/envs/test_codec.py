from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from mlagents_envs import messages
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
    encode_close,
    encode_input,
    encode_output,
)
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityNonFiniteException,
    UnityObservationException,
)
from mlagents_envs.images import ImageLayout, ImageOptions, ImageReading
from mlagents_envs.messages import UnityMessageProto, field, pack_int32
from png_by_hand import rgb_png
from shared_data import load_vectors
from wire_samples import FLOAT32, assert_inputs_equal, assert_outputs_equal, inputs, outputs


@pytest.fixture(scope="module")
def pillow() -> None:
    pytest.importorskip("PIL")


NAME = "Spec?team=0"
SPEC = BehaviorSpec(
    [ObservationSpec.vector(3, "VectorSensor_size3")], ActionSpec.create_hybrid(2, (3, 2))
)
NO_AGENT = (DecisionSteps.empty(SPEC), TerminalSteps.empty(SPEC))


def vector(name: str) -> dict[str, Any]:
    (found,) = [one for one in load_vectors("step_exchange") if one["name"] == name]
    return {**found, "message": bytes.fromhex(found["hex"])}


def derived(steps: dict[str, Any]) -> tuple[DecisionSteps, TerminalSteps]:
    """Make the steps that a vector says its message means."""

    def common(kind: str) -> dict[str, Any]:
        given = steps[kind]
        return {
            "obs": [np.array(obs, np.float32).reshape(-1, 3) for obs in given["obs"]],
            "reward": np.array(given["reward"], np.float32),
            "agent_id": np.array(given["agent_id"], np.int32),
            "group_id": np.array(given["group_id"], np.int32),
            "group_reward": np.array(given["group_reward"], np.float32),
        }

    masks = steps["decision"]["action_mask"]
    return (
        DecisionSteps(
            **common("decision"),
            action_mask=None if masks is None else [np.array(mask) for mask in masks],
        ),
        TerminalSteps(
            **common("terminal"),
            interrupted=np.array(steps["terminal"]["interrupted"], np.bool_),
        ),
    )


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_output_vector_decodes_to_its_steps(number):
    output = vector(f"step_{number}_output")
    announced = {NAME: SPEC} if number == 1 else {}
    expected = Output(announced, {NAME: derived(output["derived_steps"][NAME])}, b"")
    before = {} if number == 1 else {NAME: SPEC}
    assert_outputs_equal(decode_output(output["message"], before), expected)


@pytest.mark.parametrize("number", [1, 3, 4])
def test_steps_encode_to_the_bytes_of_the_output_vector(number):
    output = vector(f"step_{number}_output")
    announced = {NAME: SPEC} if number == 1 else {}
    steps = derived(output["derived_steps"][NAME])
    assert encode_output(Output(announced, {NAME: steps}, b""), {NAME: SPEC}) == output["message"]


def test_the_second_output_vector_is_met_but_for_a_mask_that_allows_everything():
    output = vector("step_2_output")
    steps = derived(output["derived_steps"][NAME])
    encoded = encode_output(Output({}, {NAME: steps}, b""), {NAME: SPEC})
    parsed = UnityMessageProto.FromString(output["message"])
    agent = parsed.unity_output.rl_output.agentInfos[NAME].value[1]
    assert agent.action_mask == bytes(5)
    agent.ClearField("action_mask")
    assert encoded == parsed.SerializeToString()


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        (
            "step_1_input",
            {NAME: ActionTuple(np.array([[0.5, -1], [0.25, 2]]), np.array([[2, 1], [0, 0]]))},
        ),
        ("step_2_input", {NAME: SPEC.action_spec.empty_action(2)}),
        ("step_3_input", {}),
    ],
)
def test_an_input_vector_is_met_byte_for_byte_in_both_directions(name, actions):
    message = vector(name)["message"]
    expected = Input(Command.STEP, actions, b"")
    assert encode_input(expected) == message
    assert_inputs_equal(decode_input(message, {NAME: SPEC}), expected)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("handshake_2_reply", Command.RESET),
        ("quit_command_reply", Command.QUIT),
        ("bare_reset_reply", Command.RESET),
    ],
)
def test_a_command_vector_is_met_byte_for_byte_in_both_directions(name, command):
    (found,) = [one for one in load_vectors("handshake") if one["name"] == name]
    rl_input = found["decoded"]["unity_input"]["rl_input"]
    side_channel = bytes.fromhex(rl_input.get("side_channel_hex", ""))
    expected = Input(command, {}, side_channel)
    assert encode_input(expected).hex() == found["hex"]
    assert_inputs_equal(decode_input(bytes.fromhex(found["hex"]), {}), expected)


def test_closing_is_as_in_the_vector_and_ends_the_session_in_both_directions():
    assert encode_close() == vector("step_4_input")["message"]
    for decode in (decode_output, decode_input):
        with pytest.raises(UnityCommunicatorStoppedException, match="status 400"):
            decode(encode_close(), {})


# Round trips.


@given(outputs())
def test_outputs_round_trip(sample):
    output, before = sample
    assert_outputs_equal(decode_output(encode_output(output, before), before), output)


@given(inputs())
def test_inputs_round_trip(sample):
    answer, specs = sample
    assert_inputs_equal(decode_input(encode_input(answer), specs), answer)


@given(outputs(max_behaviors=1))
def test_outputs_are_written_as_protobuf_writes_them(sample):
    encoded = encode_output(*sample)
    assert UnityMessageProto.FromString(encoded).SerializeToString() == encoded
    assert messages.repack(encoded) == encoded


@given(inputs(max_behaviors=1))
def test_inputs_are_written_as_protobuf_writes_them(sample):
    encoded = encode_input(sample[0])
    assert UnityMessageProto.FromString(encoded).SerializeToString() == encoded
    assert messages.repack(encoded) == encoded


def _unpacked_message_class() -> Any:
    """Make `UnityMessageProto` with its repeated numbers written one by one."""
    definitions = descriptor_pb2.FileDescriptorSet()
    definitions.CopyFrom(messages._definitions)
    parents = [message for file in definitions.file for message in file.message_type]
    for message in [*parents, *(nested for parent in parents for nested in parent.nested_type)]:
        for one in message.field:
            element_type = messages.PACKED_FIELDS.get(f"{message.name}.{one.name}")
            if element_type is not None:
                one.label, one.type = one.LABEL_REPEATED, element_type
            if one.label == one.LABEL_REPEATED and one.type in (
                one.TYPE_FLOAT,
                one.TYPE_INT32,
                one.TYPE_BOOL,
            ):
                one.options.packed = False
    return messages._message_class(messages._load(definitions), "UnityMessageProto")


UNPACKED = _unpacked_message_class()


@given(outputs())
def test_outputs_of_a_peer_that_does_not_pack_are_read_alike(sample):
    output, before = sample
    unpacked = UNPACKED.FromString(encode_output(output, before)).SerializeToString()
    assert_outputs_equal(decode_output(unpacked, before), output)


@given(inputs())
def test_inputs_of_a_peer_that_does_not_pack_are_read_alike(sample):
    answer, specs = sample
    unpacked = UNPACKED.FromString(encode_input(answer)).SerializeToString()
    assert_inputs_equal(decode_input(unpacked, specs), answer)


def test_only_a_mask_that_is_not_packed_is_read_too():
    # Agent 1 with field 11 as two single varints, 58 01 and 58 00.
    entry = field(1, b"B") + field(2, field(1, b"\x50\x01" + b"\x58\x01" + b"\x58\x00"))
    message = field(1, b"\x08\xc8\x01") + field(2, field(1, field(2, entry)))
    spec = BehaviorSpec([], ActionSpec.create_discrete((2,)))
    decisions, _ = decode_output(message, {"B": spec}).steps["B"]
    assert decisions.action_mask[0].tolist() == [[True, False]]


# Images.


def images_spec(*shapes: tuple[int, ...], dtype: Any = np.uint8) -> BehaviorSpec:
    flags = (DimensionProperty.NONE, *[DimensionProperty.TRANSLATIONAL_EQUIVARIANCE] * 2)
    observations = [
        ObservationSpec(shape, flags, ObservationType.DEFAULT, f"eye {index}", np.dtype(dtype))
        for index, shape in enumerate(shapes)
    ]
    return BehaviorSpec(observations, ActionSpec.create_continuous(1))


def image_steps(spec: BehaviorSpec, asking: Any, ended: Any) -> Any:
    """Make steps of agents that see these images, one list of them per observation."""

    def common(batches: Any) -> dict[str, Any]:
        n = len(batches[0])
        return {
            "obs": [
                np.array(batch, observation.dtype).reshape(n, *observation.shape)
                for batch, observation in zip(batches, spec.observation_specs, strict=True)
            ],
            "reward": [0.0] * n,
            "agent_id": range(n),
        }

    return DecisionSteps.of(**common(asking)), TerminalSteps.of(**common(ended), interrupted=False)


KEEP_8_BIT = ImageReading(keep_8_bit=True)


@st.composite
def image_outputs(draw: st.DrawFn) -> Output:
    sides = st.integers(1, 5)
    shapes = draw(st.lists(st.tuples(sides, sides, sides), min_size=1, max_size=2))
    spec = images_spec(*shapes)
    n_asking, n_ended = draw(st.sampled_from([(1, 0), (3, 0), (0, 2), (2, 2)]))
    batches = [
        [draw(npst.arrays(np.uint8, (n, *shape))) for shape in shapes] for n in (n_asking, n_ended)
    ]
    return Output({"B": spec}, {"B": image_steps(spec, *batches)}, b"")


@given(image_outputs())
def test_images_of_8_bit_round_trip(pillow, output):
    encoded = encode_output(output, {})
    assert_outputs_equal(decode_output(encoded, {}, KEEP_8_BIT), output)
    assert UnityMessageProto.FromString(encoded).SerializeToString() == encoded
    unpacked = UNPACKED.FromString(encoded).SerializeToString()
    assert_outputs_equal(decode_output(unpacked, {}, KEEP_8_BIT), output)


@given(image_outputs())
def test_images_of_8_bit_are_read_as_floats_from_0_to_1(pillow, output):
    found = decode_output(encode_output(output, {}), {})
    for steps, expected in zip(found.steps["B"], output.steps["B"], strict=True):
        for one, other in zip(steps.obs, expected.obs, strict=True):
            assert one.dtype == np.float32
            np.testing.assert_array_equal(one, other.astype(np.float32) / np.float32(255))
    assert {one.dtype for one in found.specs["B"].observation_specs} == {np.dtype(np.float32)}


@given(
    npst.arrays(np.float32, npst.array_shapes(min_dims=4, max_dims=4, max_side=4), elements=FLOAT32)
)
def test_images_of_floats_round_trip_and_are_not_compressed(batch):
    spec = images_spec(batch.shape[1:], dtype=np.float32)
    output = Output({"B": spec}, {"B": image_steps(spec, [batch], [batch[:0]])}, b"")
    assert_outputs_equal(decode_output(encode_output(output, {}), {}), output)


@pytest.mark.parametrize("images", [KEEP_8_BIT, ImageReading()])
def test_agents_gone_leave_images_of_the_type_that_was_announced(pillow, images):
    spec = images_spec((1, 1, 2))
    everyone = image_steps(spec, [[[3, 4]]], [[]])
    first = decode_output(encode_output(Output({"B": spec}, {"B": everyone}, b""), {}), {}, images)
    nobody = (DecisionSteps.empty(spec), TerminalSteps.empty(spec))
    message = encode_output(Output({}, {"B": nobody}, b""), {"B": spec})
    later = decode_output(message, first.specs, images)
    for steps in (*first.steps["B"], *later.steps["B"]):
        assert steps.obs[0].dtype == first.specs["B"].observation_specs[0].dtype
        assert steps.obs[0].shape[1:] == (1, 1, 2)


def test_images_without_pixels_are_sent_as_no_numbers():
    spec = images_spec((3, 0, 2))
    steps = image_steps(spec, [np.zeros((2, 3, 0, 2))], [np.zeros((0, 3, 0, 2))])
    found = decode_output(encode_output(Output({"B": spec}, {"B": steps}, b""), {}), {})
    assert found.steps["B"][0].obs[0].shape == (2, 3, 0, 2)


def observation_vectors() -> list[Any]:
    """Return the names alone: the data may be absent."""
    return [
        *("png_rgb_2x2", "png_grayscale_2x2", "png_five_channels_no_mapping"),
        *("png_stacked_grayscale_mapping", "png_stacked_4ch_mapping"),
        *("png_mapping_count_error", "png_mapping_gap_error", "png_shape_error"),
        *("float_visual_2x2x2", "buffer_3x2", "vector_goal_signal", "vector_minimal_pre_1_5"),
    ]


@pytest.mark.parametrize("name", observation_vectors())
def test_an_observation_vector_decodes_to_its_array(pillow, name):
    vectors = {one["name"]: one for one in load_vectors("observations")}
    assert [*vectors] == observation_vectors()
    given = vectors[name]
    seen = messages.ObservationProto.FromString(bytes.fromhex(given["hex"]))
    message = output_message(agent(observations=[seen]), announcement=FITTING)
    if "expected_error" in given:
        assert given["expected_error"]["kind"] == "UnityObservationException"
        with pytest.raises(UnityObservationException, match=seen.name):
            decode_output(message, {})
        return
    output = decode_output(message, {})
    (spec,) = output.specs["B"].observation_specs
    (found,) = output.steps["B"][0].obs
    assert spec.shape == found.shape[1:] == tuple(given["expected_shape"])
    np.testing.assert_allclose(found.ravel(), given["expected_flat_row_major"], atol=1e-7)
    meant = given["decoded"]
    assert spec.name == meant.get("name", "")
    assert [*spec.dimension_property] == meant.get("dimension_properties", [0] * len(spec.shape))
    assert spec.observation_type.name == meant.get("observation_type", "DEFAULT")


# An image of 2 channels, 1 row and 3 columns; the numbers of channel c and column x are 10 c + x.
CHW, HWC = (0, 1, 2, 10, 11, 12), (0, 10, 1, 11, 2, 12)
LAST, NUMBERS_LAST = ImageLayout.CHANNEL_LAST, ImageLayout.NUMBERS_CHANNEL_LAST
WIDE = rgb_png(np.array([[[0, 10, 99], [1, 11, 99], [2, 12, 99]]], np.uint8))


@pytest.mark.parametrize(
    ("images", "announced", "numbers", "shape", "expected"),
    [
        (ImageReading(), (2, 1, 3), CHW, (2, 1, 3), CHW),
        (ImageReading(NUMBERS_LAST), (2, 1, 3), HWC, (2, 1, 3), CHW),
        (ImageReading(LAST), (1, 3, 2), HWC, (2, 1, 3), CHW),
        (ImageOptions(turn_channel_last=False).reading(LAST), (1, 3, 2), HWC, (1, 3, 2), HWC),
    ],
)
def test_axes_are_put_in_order(pillow, images, announced, numbers, shape, expected):
    flags = {2: b"\x01", 1: b"\x02", 3: b"\x02"}  # by size: channels have no neighbors
    frame = {
        "shape": pack_int32(announced),
        "dimension_properties": b"".join(flags[size] for size in announced),
    }
    plain = observation(*numbers) | frame
    compressed = {"compressed_data": WIDE, "compression_type": 1} | frame
    mixed = [agent(observations=[one, compressed]) for one in (plain, compressed, plain)]
    for keep_8_bit, scale in ((False, 255), (True, 1)):
        # What is announced by numbers stays float32 in either case.
        message = output_message(*mixed, announcement=FITTING)
        output = decode_output(message, {}, images._replace(keep_8_bit=keep_8_bit))
        for spec in output.specs["B"].observation_specs:
            assert spec.shape == shape
            assert [*spec.dimension_property] == [flags[size][0] for size in shape]
        first, second = output.steps["B"][0].obs
        assert first.dtype == np.float32
        assert first.flags.c_contiguous
        np.testing.assert_array_equal(first[[0, 2]].reshape(2, -1), [expected] * 2)
        np.testing.assert_allclose(first[1].ravel(), np.array(expected) / 255, rtol=1e-6)
        assert second.dtype == (np.uint8 if keep_8_bit else np.float32)
        np.testing.assert_allclose(second.reshape(3, -1), [np.array(expected) / scale] * 3, 1e-6)


@pytest.mark.parametrize(
    ("seen", "error", "reason"),
    [
        ({"compressed_data": WIDE[:-1]}, UnityCommunicationException, "cut short"),
        ({"compressed_data": b""}, UnityCommunicationException, "not a PNG file"),
        (
            {"compression_type": 2},
            UnityCommunicationException,
            r"compression type 1 \(PNG\), got 2",
        ),
        ({"compressed_channel_mapping": b"\0\2\1"}, UnityObservationException, "each from 0 to 1"),
        ({"compressed_channel_mapping": b"\x80"}, UnityCommunicationException, "cut short"),
    ],
)
def test_an_image_that_cannot_be_read_is_refused_with_its_name_and_agent(
    pillow, seen, error, reason
):
    sound = {"shape": b"\2\1\3", "compressed_data": WIDE, "compression_type": 1}
    message = output_message(
        agent(id=3, observations=[sound]), agent(id=5, observations=[sound | seen])
    )
    spec = images_spec((2, 1, 3), dtype=np.float32)
    with pytest.raises(error, match=reason) as refusal:
        decode_output(message, {"B": spec})
    for part in ("'B'", "observation 0", "'eye 0'", "agent 5"):
        assert part in str(refusal.value)


def test_numbers_for_an_image_announced_as_8_bit_are_refused():
    message = output_message(agent(id=5, observations=[observation(*CHW, shape=(2, 1, 3))]))
    with pytest.raises(UnityObservationException, match=r"agent 5 .* keep_8_bit_images=False"):
        decode_output(message, {"B": images_spec((2, 1, 3))}, KEEP_8_BIT)


@pytest.mark.parametrize(
    ("shape", "n_agents", "n_files"), [((1, 2**14, 2**13), 3, 1), ((1, 2**14, 2**13), 1, 3)]
)
def test_more_images_than_memory_are_refused_before_any_is_decoded(shape, n_agents, n_files):
    seen = {
        "shape": pack_int32(shape),
        "compressed_data": WIDE * n_files,
        "compression_type": 1,
    }
    message = output_message(*[agent(observations=[seen])] * n_agents)
    with pytest.raises(UnityCommunicationException, match=f"too many numbers .* {n_agents} images"):
        decode_output(message, {"B": images_spec(shape, dtype=np.float32)})


# What simulations may send.


def agent(**fields: Any) -> dict[str, Any]:
    return fields


def observation(*numbers: float, shape: tuple[int, ...] | None = None, **fields: Any) -> Any:
    return {
        "shape": pack_int32(shape or (len(numbers),)),
        "float_data": {"data": np.array(numbers, np.float32).tobytes()},
        **fields,
    }


def output_message(*agents: Any, announcement: Any = None, name: str = "B") -> bytes:
    message = UnityMessageProto(header={"status": 200})
    message.unity_output.rl_output.agentInfos[name].value.extend(
        [messages.AgentInfoProto(**one) for one in agents]
    )
    if announcement is not None:
        initialization = message.unity_output.rl_initialization_output
        initialization.brain_parameters.add(brain_name=name, **announcement)
    return message.SerializeToString()


ONE_NUMBER = BehaviorSpec([ObservationSpec.vector(1, "eye")], ActionSpec.create_continuous(1))
TWO_BRANCHES = BehaviorSpec([], ActionSpec.create_discrete((3, 2)))


def test_a_known_behavior_that_is_absent_has_empty_steps():
    output = decode_output(output_message(name="Other"), {NAME: SPEC})
    assert_outputs_equal(output, Output({}, {NAME: NO_AGENT}, b""))


def test_agents_of_a_behavior_never_announced_are_ignored():
    message = output_message(agent(observations=[observation(1.0)]))
    assert decode_output(message, {}) == Output({}, {}, b"")


def test_an_announcement_without_agents_is_ignored():
    announcement = {"action_spec": {"num_continuous_actions": 1}}
    assert decode_output(output_message(announcement=announcement), {}) == Output({}, {}, b"")


def test_an_output_without_contents_is_one_without_agents():
    message = UnityMessageProto(header={"status": 200}).SerializeToString()
    assert_outputs_equal(decode_output(message, {NAME: SPEC}), Output({}, {NAME: NO_AGENT}, b""))


def test_a_behavior_may_appear_later_beside_known_ones():
    message = output_message(
        agent(observations=[observation(1.0, name="eye")]),
        announcement={"action_spec": {"num_continuous_actions": 1}},
    )
    output = decode_output(message, {NAME: SPEC})
    eye = ObservationSpec((1,), (DimensionProperty.UNSPECIFIED,), ObservationType.DEFAULT, "eye")
    assert output.specs == {"B": BehaviorSpec([eye], ActionSpec.create_continuous(1))}
    assert len(output.steps["B"][0]) == 1
    assert output.steps.keys() == {"B", NAME}


def test_an_agent_may_end_and_ask_again_in_one_message():
    message = output_message(
        agent(id=4, done=True, reward=1.0, observations=[observation(1.0)]),
        agent(id=4, reward=0.5, observations=[observation(2.0)]),
        agent(id=2, done=True, max_step_reached=True, observations=[observation(3.0)]),
    )
    decisions, terminals = decode_output(message, {"B": ONE_NUMBER}).steps["B"]
    assert decisions.agent_id.tolist() == [4]
    assert decisions.obs[0].tolist() == [[2.0]]
    assert decisions.reward.tolist() == [0.5]
    assert terminals.agent_id.tolist() == [4, 2]
    assert terminals.obs[0].tolist() == [[1.0], [3.0]]
    assert terminals.interrupted.tolist() == [False, True]
    assert terminals.reward.tolist() == [1.0, 0.0]


def test_masks_that_are_absent_or_of_the_wrong_length_forbid_nothing():
    message = output_message(
        agent(action_mask=b"\x00\x01\x01\x00\x01"), agent(), agent(action_mask=b"\x01\x01")
    )
    masks = decode_output(message, {"B": TWO_BRANCHES}).steps["B"][0].action_mask
    assert masks[0].tolist() == [[False, True, True], [False] * 3, [False] * 3]
    assert masks[1].tolist() == [[False, True], [False] * 2, [False] * 2]


def test_the_mask_of_an_agent_that_ended_does_not_count():
    message = output_message(agent(done=True, action_mask=b"\x01\x01\x01\x01\x01"), agent(id=1))
    masks = decode_output(message, {"B": TWO_BRANCHES}).steps["B"][0].action_mask
    assert masks[0].tolist() == [[False] * 3]


def test_there_is_no_mask_without_branches_or_without_asking_agents():
    message = output_message(agent(done=True))
    assert decode_output(message, {"B": TWO_BRANCHES}).steps["B"][0].action_mask is None
    message = output_message(agent(observations=[observation(1.0)]))
    assert decode_output(message, {"B": ONE_NUMBER}).steps["B"][0].action_mask is None


def test_observations_of_rank_two_keep_their_rows():
    announcement = {"action_spec": {"num_continuous_actions": 1}}
    seen = observation(1, 2, 3, 4, 5, 6, shape=(2, 3), dimension_properties=b"\x04\x01")
    output = decode_output(
        output_message(agent(observations=[seen]), announcement=announcement), {}
    )
    assert output.specs["B"].observation_specs[0].dimension_property == (
        DimensionProperty.VARIABLE_SIZE,
        DimensionProperty.NONE,
    )
    assert output.steps["B"][0].obs[0].tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_decoded_arrays_can_be_written_to_and_are_not_shared():
    message = output_message(agent(observations=[observation(1.0)]))
    first = decode_output(message, {"B": ONE_NUMBER}).steps["B"][0]
    first.obs[0][:] = 7.0
    second = decode_output(message, {"B": ONE_NUMBER}).steps["B"][0]
    assert second.obs[0].tolist() == [[1.0]]


def test_a_shape_in_an_unusual_spelling_is_read_alike():
    # 81 00 is the number 1 in two bytes.
    seen = observation(1.0) | {"shape": b"\x81\x00"}
    output = decode_output(output_message(agent(observations=[seen])), {"B": ONE_NUMBER})
    assert output.steps["B"][0].obs[0].tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("announcement", "expected"),
    [
        (
            {"vector_action_size_deprecated": [2], "vector_action_space_type_deprecated": 1},
            ActionSpec.create_continuous(2),
        ),
        ({"vector_action_size_deprecated": [3, 2]}, ActionSpec.create_discrete((3, 2))),
        ({}, ActionSpec(0, ())),
        (
            {
                "action_spec": {"num_discrete_actions": 1, "discrete_branch_sizes": [4]},
                "vector_action_size_deprecated": [9],
            },
            ActionSpec.create_discrete((4,)),
        ),
    ],
)
def test_action_specs_of_old_and_new_simulations(announcement, expected):
    output = decode_output(output_message(agent(), announcement=announcement), {})
    assert output.specs["B"].action_spec == expected


def test_choices_that_need_more_than_a_byte_are_sent():
    action = ActionTuple(np.array([[1.5], [-2.0]]), np.array([[200], [-1]]))
    spec = BehaviorSpec([], ActionSpec.create_hybrid(1, (300,)))
    answer = Input(Command.STEP, {"B": action}, b"")
    assert_inputs_equal(decode_input(encode_input(answer), {"B": spec}), answer)


def input_message(*actions: dict[str, bytes], name: str = "B") -> bytes:
    message = UnityMessageProto(header={"status": 200})
    message.unity_input.rl_input.agent_actions[name].value.extend(
        [messages.AgentActionProto(**one) for one in actions]
    )
    return message.SerializeToString()


def test_actions_that_are_absent_are_zero():
    message = input_message(
        {"continuous_actions": b"\x00\x00\x80\x3f"}, {"discrete_actions": b"\x01"}
    )
    spec = BehaviorSpec([], ActionSpec.create_hybrid(1, (2,)))
    action = decode_input(message, {"B": spec}).actions["B"]
    assert action.continuous.tolist() == [[1.0], [0.0]]
    assert action.discrete.tolist() == [[0], [1]]


# What nobody may send.

FITTING = {"action_spec": {"num_continuous_actions": 1}}


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (observation(1.0, shape=(-1,)), r"announces the shape \(-1,\)"),
        (observation(1.0) | {"shape": b""}, r"announces the shape \(\)"),
        (observation(1.0, shape=(1, 1, 1, 1)), "expected 1 to 3 sizes"),
        (observation(1.0, shape=(2**31 - 1,)), "at most 268435456 numbers"),
        (observation(shape=(0, 2**31 - 1, 2**31 - 1)), "at most 268435456 numbers"),
        (observation(1.0) | {"shape": b"\x81"}, "cut short"),
        (observation(1.0, dimension_properties=b"\x01\x01"), "for the shape"),
        (observation(1.0, dimension_properties=b"\x08"), "0 to 7"),
        (observation(1.0, observation_type=2), "unknown observation type: 2"),
        (observation(1.0, 2.0, shape=(3,)), "expected 12 bytes"),
        (observation(1.0) | {"float_data": {"data": b"\x00" * 7}}, "expected 4 bytes .* got 7"),
        (observation(1.0) | {"float_data": {}}, "expected 4 bytes .* got 0"),
    ],
)
def test_an_observation_that_cannot_be_announced_is_refused(seen, reason):
    message = output_message(agent(observations=[seen]), announcement=FITTING)
    with pytest.raises(UnityCommunicationException, match=reason) as refusal:
        decode_output(message, {})
    if "cut short" not in reason:
        assert "'B'" in str(refusal.value)


@pytest.mark.parametrize(
    ("announcement", "reason"),
    [
        ({"action_spec": {"num_continuous_actions": -1}}, "-1 continuous"),
        ({"action_spec": {"num_continuous_actions": 2**31 - 1}}, "at most 65536"),
        (
            {"action_spec": {"num_discrete_actions": 2, "discrete_branch_sizes": [3]}},
            "the sizes of 1",
        ),
        ({"action_spec": {"num_discrete_actions": 1, "discrete_branch_sizes": [0]}}, "at least 1"),
        ({"action_spec": {"num_discrete_actions": 1, "discrete_branch_sizes": [-3]}}, "at least 1"),
        (
            {"action_spec": {"num_discrete_actions": 1, "discrete_branch_sizes": [2**31 - 1]}},
            "at most 65536",
        ),
        ({"vector_action_space_type_deprecated": 2}, "unknown kind of actions: .* got 2"),
        ({"vector_action_size_deprecated": [-1]}, "at least 1"),
    ],
)
def test_actions_that_cannot_be_announced_are_refused(announcement, reason):
    message = output_message(agent(), announcement=announcement)
    with pytest.raises(UnityCommunicationException, match=reason):
        decode_output(message, {})


@pytest.mark.parametrize(
    ("observations", "reason"),
    [
        ([observation(1.0, 2.0)], r"expected the shape \(1,\), got \(2,\)"),
        ([observation(1.0, shape=(1, 1))], r"got \(1, 1\)"),
        ([], "sends 0 observations; expected the 1"),
        ([observation(1.0)] * 2, "sends 2 observations"),
        (
            [{"shape": b"\x01", "compressed_data": b"\x89PNG", "compression_type": 1}],
            r"the shape \(1,\), got a compressed image",
        ),
    ],
)
def test_an_observation_unlike_its_spec_is_refused_with_its_name_and_agent(observations, reason):
    message = output_message(
        agent(id=3, observations=[observation(0.0)]), agent(id=5, observations=observations)
    )
    with pytest.raises(UnityObservationException, match=reason) as refusal:
        decode_output(message, {"B": ONE_NUMBER})
    for part in ("'B'", "eye", "agent 5"):
        assert part in str(refusal.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_is_refused_with_its_name_and_agent(bad):
    message = output_message(
        agent(id=3, observations=[observation(1.0)]), agent(id=5, observations=[observation(bad)])
    )
    with pytest.raises(UnityNonFiniteException) as refusal:
        decode_output(message, {"B": ONE_NUMBER})
    for part in ("'B'", "observation 0", "'eye'", f"agent 5 observes {bad}"):
        assert part in str(refusal.value)


def test_of_many_numbers_the_first_that_is_not_finite_is_named_and_the_rest_counted():
    numbers = np.zeros(100_000, np.float32)
    numbers[[70, 99_999]] = np.inf, np.nan
    spec = BehaviorSpec([ObservationSpec.vector(100_000, "eye")], ActionSpec.create_continuous(1))
    message = output_message(agent(id=5, observations=[observation(*numbers)]))
    with pytest.raises(UnityNonFiniteException, match="inf at index 70 of 100000") as refusal:
        decode_output(message, {"B": spec})
    assert "2 of its numbers" in str(refusal.value)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("kind", ["reward", "group_reward"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_refused_with_its_agent(kind, bad):
    spec = BehaviorSpec([], ActionSpec.create_continuous(1))
    message = output_message(agent(id=3), agent(id=5, **{kind: bad}))
    with pytest.raises(UnityNonFiniteException, match="'B': agent 5"):
        decode_output(message, {"B": spec})


def test_large_numbers_whose_sum_is_not_finite_are_accepted():
    # A mean over the batch would overflow.
    largest = float(np.finfo(np.float32).max)
    message = output_message(*[agent(reward=largest, observations=[observation(largest)])] * 3)
    decisions, _ = decode_output(message, {"B": ONE_NUMBER}).steps["B"]
    assert decisions.reward.tolist() == [largest] * 3


def test_more_masks_than_memory_are_refused():
    spec = BehaviorSpec([], ActionSpec.create_discrete((2**16,)))
    with pytest.raises(UnityCommunicationException, match="too many"):
        decode_output(output_message(*[agent()] * 4097), {"B": spec})


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({"continuous_actions": b"\x00" * 8, "discrete_actions": b"\x01"}, "expected 1 continuous"),
        ({"continuous_actions": b"\x00" * 3, "discrete_actions": b"\x01"}, "expected 1 continuous"),
        ({"continuous_actions": b"\x00" * 4, "discrete_actions": b"\x01\x01"}, "1 discrete"),
        ({"continuous_actions": b"\x00" * 4, "discrete_actions": b"\x80"}, "cut short"),
    ],
)
def test_actions_that_do_not_fit_their_behavior_are_refused(action, reason):
    spec = BehaviorSpec([], ActionSpec.create_hybrid(1, (2,)))
    with pytest.raises(UnityCommunicationException, match=reason):
        decode_input(input_message(action), {"B": spec})


def test_actions_for_an_unknown_behavior_are_refused():
    with pytest.raises(UnityCommunicationException, match="'B', which was not announced"):
        decode_input(input_message({}), {NAME: SPEC})


def test_an_unknown_command_is_refused():
    message = UnityMessageProto(header={"status": 200}, unity_input={"rl_input": {"command": 3}})
    with pytest.raises(UnityCommunicationException, match="unknown command 3"):
        decode_input(message.SerializeToString(), {})


def test_an_answer_without_input_is_refused():
    message = UnityMessageProto(header={"status": 200}, unity_input={})
    with pytest.raises(UnityCommunicationException, match="no rl_input"):
        decode_input(message.SerializeToString(), {})
