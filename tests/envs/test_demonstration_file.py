import functools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shared_data
from demonstrations import (
    HEAD_BYTES,
    arrays_of,
    assert_records_equal,
    demonstrated_behaviors,
    file_of,
    first_records,
    records_of,
)
from mlagents_envs import demonstration_file
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    ObservationSpec,
)
from mlagents_envs.demonstration_file import (
    ActionPlacement,
    DemonstrationMetadata,
    DemonstrationRecords,
    DemonstrationWriter,
    decode_demonstration,
    read_demonstration,
    write_demonstration,
)
from mlagents_envs.exception import (
    UnityActionException,
    UnityDemonstrationException,
    UnityException,
    UnityNonFiniteException,
)
from mlagents_envs.images import ImageLayout
from mlagents_envs.messages import (
    AgentInfoActionPairProto,
    BrainParametersProto,
    varint,
)

BEHAVIOR = "Spec?team=0"
DISCRETE = BehaviorSpec([ObservationSpec.vector(1, "number")], ActionSpec.create_discrete((3,)))


@functools.cache
def vector():
    path = shared_data.require(shared_data.VECTORS / "demo.json")
    return json.loads(path.read_text())


def recorded(name):
    return shared_data.require(shared_data.ROOT / "demonstrations" / f"{name}.demo")


def columns(n=1, *, action=None, **changes):
    """Make n records of a behavior that sees a number and has one branch."""
    zeros, nobody = np.zeros(n, np.float32), np.zeros(n, np.bool_)
    return DemonstrationRecords(
        obs=[np.zeros((n, 1), np.float32)],
        action=action or ActionTuple(discrete=np.zeros((n, 1))),
        action_mask=[np.zeros((n, 3), np.bool_)],
        reward=zeros,
        done=nobody,
        interrupted=nobody,
        agent_id=np.zeros(n, np.int32),
        group_id=np.zeros(n, np.int32),
        group_reward=zeros,
    )._replace(**changes)


def written(tmp_path, records, *, spec=DISCRETE, name="Demo"):
    path = tmp_path / "written.demo"
    write_demonstration(path, BEHAVIOR, spec, records, name=name)
    return path


def file_with(brain_parameters, *pairs, number_steps=None):
    """Make a file from messages as they are."""
    count = len(pairs) if number_steps is None else number_steps
    head = b"\x08\x01\x18" + varint(count)
    return file_of([head, *(one.SerializeToString() for one in (brain_parameters, *pairs))])


def legacy_file(sizes, kind, *actions):
    """Make a file with the fields from before there were hybrid actions."""
    numbers = b"\0\0\x80\x3f"  # 1.0
    return file_with(
        BrainParametersProto(
            brain_name=BEHAVIOR,
            vector_action_size_deprecated=sizes,
            vector_action_space_type_deprecated=kind,
        ),
        *(
            AgentInfoActionPairProto(
                agent_info={"observations": [{"shape": b"\x01", "float_data": {"data": numbers}}]},
                action_info={"vector_actions_deprecated": np.array(action, "<f4").tobytes()},
            )
            for action in actions
        ),
    )


# The hand-made file.


HAND_MADE_ACTIONS = [[0.0, 0.0], [1.0, -1.0], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("file", "placement", "actions"),
    [
        ("file_hex_without_trailer", ActionPlacement.SAME_RECORD, HAND_MADE_ACTIONS),
        # Unity's recorder writes zeros first, and each action in the record after it was taken.
        ("file_hex", ActionPlacement.NEXT_RECORD, [*HAND_MADE_ACTIONS[1:], [0.5, 0.5]]),
    ],
)
def test_the_hand_made_file_is_read(file, placement, actions):
    demonstration = decode_demonstration(bytes.fromhex(vector()[file]))
    assert demonstration.action_placement is placement
    assert demonstration.metadata == DemonstrationMetadata("SpecDemo", 3, 2, 0.75)
    assert demonstration.behavior_name == BEHAVIOR
    assert demonstration.spec == BehaviorSpec(
        [ObservationSpec.vector(2, "VectorSensor_size2")], ActionSpec.create_continuous(2)
    )
    expected = DemonstrationRecords(
        obs=[np.array([[0.0, 0.0], [0.5, 0.25], [1.0, 0.75]], np.float32)],
        action=ActionTuple(np.array(actions)),
        action_mask=None,
        reward=np.array([0.0, 0.5, 1.0], np.float32),
        done=np.array([False, False, True]),
        interrupted=np.zeros(3, np.bool_),
        agent_id=np.full(3, 4, np.int32),
        group_id=np.zeros(3, np.int32),
        group_reward=np.zeros(3, np.float32),
    )
    assert_records_equal(demonstration.records, expected)


def test_the_hand_made_file_is_written_byte_for_byte(tmp_path):
    demonstration = decode_demonstration(
        bytes.fromhex(vector()["file_hex"]), action_placement=ActionPlacement.SAME_RECORD
    )
    path = written(
        tmp_path, demonstration.records, spec=demonstration.spec, name=demonstration.metadata.name
    )
    assert path.read_bytes().hex() == vector()["file_hex_without_trailer"]


# Real files. The toolkit counts the end of a recording as the end of an episode.


@pytest.mark.parametrize(
    ("name", "steps", "episodes", "n_done"),
    [
        ("Expert3DBall", 549, 1, 0),
        ("ExpertBasic", 73, 11, 10),
        ("ExpertPushBlock", 2558, 96, 95),
        ("testdcvis", 38, 1, 0),
        ("testhybridvis", 25, 1, 0),
    ],
)
def test_recordings_hold_what_their_heads_say(name, steps, episodes, n_done):
    demonstration = read_demonstration(recorded(name))
    metadata, records = demonstration.metadata, demonstration.records
    assert (metadata.number_steps, metadata.number_episodes) == (steps, episodes)
    assert {len(array) for array in arrays_of(records)} == {steps}
    assert records.done.sum() == n_done
    assert not records.interrupted.any()
    assert len(set(records.agent_id.tolist())) == 1
    mean_reward = records.reward.sum(dtype=np.float64) / episodes
    np.testing.assert_allclose(metadata.mean_reward, mean_reward, rtol=1e-3)
    for spec, batch in zip(demonstration.spec.observation_specs, records.obs, strict=True):
        assert batch.shape == (steps, *spec.shape)


def test_the_expert_of_basic_walks_to_the_large_goal():
    records = read_demonstration(recorded("ExpertBasic")).records
    assert np.array_equal(records.obs[0].sum(axis=1), np.ones(73))  # one-hot
    assert set(records.action.discrete[:-1, 0].tolist()) == {2}  # to the right
    rewards = set(np.round(records.reward[records.done], 2).tolist())
    assert rewards == {np.float32(0.99)}


def test_an_action_is_the_one_taken_at_its_observation():
    # In 3DBall an action of 1 turns the cube by 2 degrees about z and x, and five times before the
    # next decision; the first two numbers are z and x of its quaternion, half the angle.
    records = read_demonstration(recorded("Expert3DBall")).records
    turned = np.diff(records.obs[0][:, :2], axis=0)
    expected = records.action.continuous[:-1].clip(-1, 1) * np.radians(2.0) / 2 * 5
    np.testing.assert_allclose(turned, expected, atol=0.02)
    assert np.corrcoef(turned[:, 0], expected[:, 0])[0, 1] > 0.99


@pytest.mark.parametrize("name", ["ExpertFood", "ExpertPyramid"])
def test_the_speed_of_the_agent_answers_to_the_action_before(name):
    # These agents observe their speed, which the forward and turning actions change. Of all records
    # near a step, its own action must leave the least of the change unexplained.
    demonstration = read_demonstration(recorded(name))
    assert demonstration.action_placement is ActionPlacement.NEXT_RECORD
    records = demonstration.records
    speed = records.obs[-1][:, 1:] if name == "ExpertPyramid" else records.obs[-1][:, :2]
    turn = {"ExpertFood": 1, "ExpertPyramid": 0}[name]
    rows = np.array([row for e in records.episodes() for row in e[2:-3]])

    def unexplained(late):
        choices = np.eye(5)[records.action.discrete[rows + late, turn]]
        known = np.column_stack([speed[rows], choices])
        weights, *_ = np.linalg.lstsq(known, speed[rows + 1], rcond=None)
        return np.square(speed[rows + 1] - known @ weights).sum()

    assert min(range(-2, 3), key=unexplained) == 0


def test_no_action_of_grid_world_was_forbidden():
    # Masks keep its agent within the grid; a mask belongs to the observation beside it.
    for placement, n_forbidden in (None, 0), (ActionPlacement.SAME_RECORD, 2):
        records = read_demonstration(
            recorded("ExpertGridWorld"), action_placement=placement
        ).records
        rows = np.concatenate([episode[:-1] for episode in records.episodes()])
        forbidden = records.action_mask[0][rows, records.action.discrete[rows, 0]]
        assert forbidden.sum() == n_forbidden


def test_actions_move_back_among_the_records_of_their_agent(tmp_path):
    # Agents 1 and 2 by turns, then 1 alone; agent 3 has one record.
    n, ids = 6, [1, 2, 1, 2, 3, 1]
    actions = ActionTuple(discrete=np.array([[0], [1], [2], [0], [1], [1]]))
    records = columns(n, action=actions, agent_id=np.array(ids, np.int32))
    data = written(tmp_path, records).read_bytes()
    unitys = decode_demonstration(data + data[1 : 1 + data[0]])
    assert unitys.action_placement is ActionPlacement.NEXT_RECORD
    # Rows 0 and 2 have those of 2 and 5, row 1 that of 3; the last of each agent stays.
    assert unitys.records.action.discrete[:, 0].tolist() == [2, 0, 1, 0, 1, 1]
    assert_records_equal(unitys.records._replace(action=actions), records)
    for data_of, placement in ((data, ActionPlacement.NEXT_RECORD), (data, None)):
        chosen = decode_demonstration(data_of, action_placement=placement).records
        expected = unitys.records if placement else records
        assert_records_equal(chosen, expected)


def test_episodes_are_told_by_agent_and_end():
    # Agent 7: rows 0 2 | 4 5; agent 8: rows 1 3, without an end; agent 9: its end alone.
    records = columns(
        7,
        agent_id=np.array([7, 8, 7, 8, 7, 7, 9], np.int32),
        done=np.array([0, 0, 1, 0, 0, 1, 1], np.bool_),
    )
    assert [rows.tolist() for rows in records.episodes()] == [[0, 2], [1, 3], [4, 5], [6]]
    assert columns(0).episodes() == []


def test_images_are_channel_first_whatever_the_file_says():
    old = read_demonstration(recorded("testdcvis"))
    new = read_demonstration(recorded("testhybridvis"))
    for demonstration in (old, new):
        assert demonstration.spec.observation_specs[0].shape == (3, 84, 84)
        images = demonstration.records.obs[0]
        assert images.dtype == np.float32
        assert 0.0 <= images.min() < images.max() <= 1.0
        # Neighboring pixels of a picture are alike, its channels are not.
        across_pixels = np.abs(np.diff(images, axis=3)).mean()
        assert across_pixels < np.abs(np.diff(images, axis=1)).mean()
    assert old.spec.action_spec == ActionSpec.create_discrete((3, 3, 3, 2))
    assert new.spec.action_spec == ActionSpec.create_hybrid(3, (2,))


def test_images_may_stay_bytes():
    floats = read_demonstration(recorded("testhybridvis"))
    kept = read_demonstration(recorded("testhybridvis"), keep_8_bit_images=True)
    assert kept.spec.observation_specs[0].dtype == kept.records.obs[0].dtype == np.uint8
    np.testing.assert_allclose(kept.records.obs[0] / 255.0, floats.records.obs[0], atol=1e-7)


@pytest.mark.parametrize("name", ["ExpertBasic", "testdcvis", "testhybridvis"])
def test_what_was_recorded_can_be_written_and_read_again(name, tmp_path):
    demonstration = read_demonstration(recorded(name), keep_8_bit_images=True)
    path = written(tmp_path, demonstration.records, spec=demonstration.spec)
    again = read_demonstration(
        path, keep_8_bit_images=True, image_layout=ImageLayout.NUMBERS_CHANNEL_LAST
    )
    assert again.spec == demonstration.spec
    assert_records_equal(again.records, demonstration.records)


# Old files.


def test_actions_in_the_old_field_are_continuous_or_discrete_as_the_spec_says():
    continuous = decode_demonstration(legacy_file([2], 1, [0.5, -1.5], []))
    assert continuous.spec.action_spec == ActionSpec.create_continuous(2)
    assert continuous.records.action.continuous.tolist() == [[0.5, -1.5], [0.0, 0.0]]
    discrete = decode_demonstration(legacy_file([3, 200], 0, [2, 199], []))
    assert discrete.spec.action_spec == ActionSpec.create_discrete((3, 200))
    assert discrete.records.action.discrete.tolist() == [[2, 199], [0, 0]]


@pytest.mark.parametrize("action", [[0.5], [np.nan], [np.inf], [1e20], [3.0], [-1.0]])
def test_choices_in_the_old_field_must_exist(action):
    with pytest.raises(UnityDemonstrationException, match="discrete action"):
        decode_demonstration(legacy_file([3], 0, action))


def test_version_0_is_read_and_version_2_is_not():
    data = legacy_file([1], 1, [0.5])
    assert data[1:3] == b"\x08\x01"
    old = decode_demonstration(data[:2] + b"\x00" + data[3:])
    assert old.metadata.api_version == 0
    with pytest.raises(UnityDemonstrationException, match=r"version of the format is 2, expected"):
        decode_demonstration(data[:2] + b"\x02" + data[3:])


@pytest.mark.parametrize(
    ("flags", "layout"),
    [
        (b"", ImageLayout.CHANNEL_LAST),  # packages before 1.8
        (b"\x02\x02\x01", ImageLayout.CHANNEL_LAST),  # from 1.8 up to 2.3
        (b"\x01\x02\x02", ImageLayout.NUMBERS_CHANNEL_LAST),  # since 3.0
    ],
)
def test_uncompressed_images_are_read_in_the_order_in_which_unity_writes_them(flags, layout):
    # All write height, then width, then channels: of 2 x 1 pixels with 3 channels.
    numbers = np.array([[[1, 2, 3]], [[4, 5, 6]]], "<f4")
    shape = b"\x02\x01\x03" if layout is ImageLayout.CHANNEL_LAST else b"\x03\x02\x01"
    image = {
        "shape": shape,
        "dimension_properties": flags,
        "float_data": {"data": numbers.tobytes()},
    }
    brain_parameters = BrainParametersProto(
        brain_name=BEHAVIOR, action_spec={"num_continuous_actions": 1}
    )
    pair = AgentInfoActionPairProto(agent_info={"observations": [image]})
    data = file_with(brain_parameters, pair)
    demonstration = decode_demonstration(data)
    assert demonstration.spec.observation_specs[0].shape == (3, 2, 1)
    expected = [[[[1], [4]], [[2], [5]], [[3], [6]]]]
    assert demonstration.records.obs[0].tolist() == expected
    chosen = decode_demonstration(data, image_layout=layout)
    assert_records_equal(chosen.records, demonstration.records)


# There and back.


@given(data=st.data(), spec=demonstrated_behaviors(), sizes=st.lists(st.integers(0, 4), max_size=3))
def test_what_is_written_is_read(data, spec, sizes):
    parts = [data.draw(records_of(spec, size)) for size in sizes]
    if not sum(sizes):
        parts.append(data.draw(records_of(spec, 1)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.demo"
        with DemonstrationWriter(path, BEHAVIOR, spec) as writer:
            for part in parts:
                writer.append(part)
        found = read_demonstration(path, keep_8_bit_images=True)
    assert found.behavior_name == BEHAVIOR
    assert found.spec == spec
    assert found.metadata.number_steps == len(found.records.done) == sum(len(p.done) for p in parts)
    assert found.metadata.number_episodes == sum(p.done.sum() for p in parts) + 1
    found_arrays, parts_arrays = arrays_of(found.records), [arrays_of(part) for part in parts]
    for found_array, *part_arrays in zip(found_arrays, *parts_arrays, strict=True):
        np.testing.assert_array_equal(found_array, np.concatenate(part_arrays))


def test_many_records_are_read_in_batches(monkeypatch, tmp_path):
    spec = BehaviorSpec([ObservationSpec.vector(2, "")], ActionSpec(1, (2,)))
    rng = np.random.default_rng(0)
    n = 23
    records = DemonstrationRecords(
        obs=[rng.random((n, 2), np.float32)],
        action=ActionTuple(rng.random((n, 1)), rng.integers(0, 2, (n, 1))),
        action_mask=[np.zeros((n, 2), np.bool_)],
        reward=rng.random(n, np.float32),
        done=rng.random(n) < 0.3,
        interrupted=np.zeros(n, np.bool_),
        agent_id=np.arange(n, dtype=np.int32),
        group_id=np.zeros(n, np.int32),
        group_reward=np.zeros(n, np.float32),
    )
    path = written(tmp_path, records, spec=spec)
    for limit, value in (("_BATCH_RECORDS", 5), ("_BATCH_NUMBERS", 6), ("_BATCH_NUMBERS", 1)):
        monkeypatch.setattr(demonstration_file, limit, value)
        assert_records_equal(read_demonstration(path).records, records)


# The head of a file.


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("Expert", "Expert"),
        ("my demo-2", "my demo-2"),
        ("a_b/c.d\n", "abcd"),
        ("Übung №5", "bung 5"),
        ("a name much longer than the head", "a name much long"),
        ("", ""),
    ],
)
def test_names_keep_what_the_format_allows(name, kept, tmp_path):
    assert read_demonstration(written(tmp_path, columns(), name=name)).metadata.name == kept


def test_the_name_of_the_file_is_its_own_by_default(tmp_path):
    path = tmp_path / "My_Expert.demo"
    write_demonstration(path, BEHAVIOR, DISCRETE, columns())
    assert read_demonstration(path).metadata.name == "MyExpert"


@pytest.mark.parametrize(
    ("n_steps", "n_done", "letters"),
    [
        (1, 0, 16),
        # 32 bytes are 11 beside name and counts: 21 for these, so 16 letters leave 5.
        (2**14, 2**7, 16),  # 3 + 2 bytes
        (2**14, 2**14 - 1, 15),  # 3 + 3
        (2**21, 2**14, 14),  # 4 + 3
        (2**28, 2**28, 11),  # 5 + 5
    ],
)
def test_a_long_recording_shortens_its_name_rather_than_overwrite_what_follows(
    n_steps, n_done, letters, tmp_path
):
    path = tmp_path / f"{'n' * 20}.demo"
    with DemonstrationWriter(path, BEHAVIOR, DISCRETE) as writer:
        writer.append(columns(reward=np.array([1.0], np.float32)))
        # As if so much had been written.
        writer._number_steps, writer._number_ended = n_steps, n_done
        assert writer.metadata.name == "n" * letters
    data = path.read_bytes()
    assert data[0] < HEAD_BYTES
    assert first_records(data, 1)[HEAD_BYTES:] == data[HEAD_BYTES:]
    assert decode_demonstration(first_records(data, 1)).metadata.name == "n" * letters


# Writing.


def test_the_file_appears_whole_and_replaces_the_one_before(tmp_path):
    path = written(tmp_path, columns(2))
    writer = DemonstrationWriter(path, BEHAVIOR, DISCRETE)
    writer.append(columns(3))
    assert len(read_demonstration(path).records.done) == 2
    writer.close()
    writer.close()
    assert len(read_demonstration(path).records.done) == 3
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UnityDemonstrationException, match="closed"):
        writer.append(columns())


def test_without_records_there_is_no_file(tmp_path):
    with DemonstrationWriter(tmp_path / "none.demo", BEHAVIOR, DISCRETE) as writer:
        writer.append(columns(0))
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_before_an_error_is_kept(tmp_path):
    path = tmp_path / "some.demo"
    with pytest.raises(KeyboardInterrupt), DemonstrationWriter(path, BEHAVIOR, DISCRETE) as writer:
        writer.append(columns(4))
        raise KeyboardInterrupt
    assert len(read_demonstration(path).records.done) == 4


def test_a_full_disk_costs_the_records_that_found_no_room_alone(tmp_path):
    resource = pytest.importorskip("resource", reason="the system cannot limit file sizes")
    path = tmp_path / "some.demo"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = DemonstrationWriter(path, BEHAVIOR, DISCRETE)
    writer.append(columns(2))
    (temporary,) = tmp_path.iterdir()
    # Room for ten bytes of the next record: it is cut in two before the disk is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (temporary.stat().st_size + 10, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/some\.demo'"):
            writer.append(columns(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.append(columns(1, reward=np.ones(1, np.float32)))
    writer.close()
    assert read_demonstration(path).records.reward.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"action": ActionTuple(discrete=np.zeros((1, 2)))}, UnityActionException),
        ({"obs": [np.full((1, 1), np.nan, np.float32)]}, UnityNonFiniteException),
        ({"reward": np.array([np.inf], np.float32)}, UnityNonFiniteException),
    ],
)
def test_what_could_not_be_read_again_is_not_written(changes, error, tmp_path):
    with DemonstrationWriter(tmp_path / "some.demo", BEHAVIOR, DISCRETE) as writer:
        writer.append(columns())
        with pytest.raises(error, match=BEHAVIOR[:4]):
            writer.append(columns(**changes))
    assert len(read_demonstration(writer.path).records.done) == 1


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (
            "obs",
            "record 2 of 3, counted from 0: agent 7 has nan at index 0 of its observation 'number'",
        ),
        (
            "action",
            "record 2 of 3, counted from 0: agent 7 has nan at index 1 of its continuous action",
        ),
        ("reward", "agent 7 has nan at index 0 of its reward"),
        ("group_reward", "agent 7 has nan at index 0 of its group reward"),
    ],
)
def test_what_is_not_finite_is_named(column, text, tmp_path):
    spec = BehaviorSpec(DISCRETE.observation_specs, ActionSpec.create_continuous(2))
    bad = np.zeros((3, 2), np.float32)
    bad[2, 1] = np.nan
    change = {
        "obs": [bad[:, 1:]],
        "action": ActionTuple(continuous=bad),
        "reward": bad[:, 1],
        "group_reward": bad[:, 1],
    }[column]
    records = columns(3, action=ActionTuple(continuous=np.zeros((3, 2))))._replace(
        action_mask=None, agent_id=np.array([5, 6, 7], np.int32)
    )
    with pytest.raises(UnityNonFiniteException, match=text):
        written(tmp_path, records._replace(**{column: change}), spec=spec)


def test_only_files_that_trainers_find_are_written(tmp_path):
    with pytest.raises(UnityDemonstrationException, match=r"must end in \.demo"):
        DemonstrationWriter(tmp_path / "some.txt", BEHAVIOR, DISCRETE)
    with pytest.raises(FileNotFoundError, match=r"no folder/some\.demo"):
        DemonstrationWriter(tmp_path / "no folder" / "some.demo", BEHAVIOR, DISCRETE)


# Bad files.


def test_what_comes_after_the_last_record_is_ignored(tmp_path):
    data = written(tmp_path, columns(2)).read_bytes()
    for garbage in (b"\0", b"\xff" * 100, data):
        assert len(decode_demonstration(data + garbage).records.done) == 2


def test_a_file_cut_short_anywhere_is_refused(tmp_path):
    path = written(tmp_path, columns(2))
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(UnityDemonstrationException, match="the file ends within") as caught:
            read_demonstration(path)
        assert str(path) in str(caught.value)


def test_a_recording_that_was_not_closed_says_so():
    parameters = BrainParametersProto(brain_name=BEHAVIOR)
    with pytest.raises(UnityDemonstrationException, match=r"no records.*not closed"):
        decode_demonstration(file_with(parameters, AgentInfoActionPairProto(), number_steps=0))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "within the metadata"),
        (b"\xff" * 50, "length of the metadata"),
        (b"\x05hello" + bytes(40), "5 bytes of the metadata at byte 1"),
        (bytes(33) + b"\x03abc", "brain parameters"),
    ],
)
def test_what_is_no_demonstration_is_refused(data, reason):
    with pytest.raises(UnityDemonstrationException, match=reason):
        decode_demonstration(data)


def test_a_missing_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_demonstration(tmp_path / "none.demo")


def test_more_numbers_than_could_be_meant_are_refused(monkeypatch, tmp_path):
    path = written(tmp_path, columns(10))
    # A number and three choices each.
    monkeypatch.setattr(demonstration_file, "_BATCH_NUMBERS", 4)
    monkeypatch.setattr(demonstration_file, "_MAX_NUMBERS", 40)
    assert len(read_demonstration(path).records.done) == 10
    monkeypatch.setattr(demonstration_file, "_MAX_NUMBERS", 39)
    with pytest.raises(UnityDemonstrationException, match="10 records of 4 numbers"):
        read_demonstration(path)


def test_actions_that_do_not_exist_are_refused():
    brain_parameters = BrainParametersProto(
        brain_name=BEHAVIOR,
        action_spec={
            "num_continuous_actions": 1,
            "num_discrete_actions": 1,
            "discrete_branch_sizes": [3],
        },
    )
    nan = np.array([np.nan], "<f4").tobytes()
    for action, reason in (
        ({"discrete_actions": b"\x03"}, "branches have .*3"),
        ({"continuous_actions": nan}, "NaN"),
        ({"continuous_actions": bytes(8)}, "1 continuous"),
    ):
        pair = AgentInfoActionPairProto(
            agent_info={
                "observations": [{"shape": b"\x01", "float_data": {"data": bytes(4)}}],
            },
            action_info=action,
        )
        with pytest.raises(UnityException, match=reason):
            decode_demonstration(file_with(brain_parameters, pair))
