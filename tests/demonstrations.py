"""Demonstrations for tests: random ones as hypothesis strategies, and the parts of a file."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from mlagents_envs.base_env import (
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.demonstration_file import DemonstrationRecords
from mlagents_envs.messages import DemonstrationMetaProto, varint
from wire_samples import FLOAT32, INT32, NAMES, behavior_specs

HEAD_BYTES = 33

_CHANNEL_FIRST = (
    DimensionProperty.NONE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
)


@st.composite
def image_specs(draw: st.DrawFn) -> ObservationSpec:
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)))
    dtype = np.dtype(draw(st.sampled_from([np.float32, np.uint8])))
    return ObservationSpec(shape, _CHANNEL_FIRST, ObservationType.DEFAULT, draw(NAMES), dtype)


@st.composite
def demonstrated_behaviors(draw: st.DrawFn) -> BehaviorSpec:
    """Draw a behavior of vectors and matrices, perhaps with an image."""
    spec = draw(behavior_specs())
    return BehaviorSpec(
        [*spec.observation_specs, *draw(st.lists(image_specs(), max_size=1))], spec.action_spec
    )


@st.composite
def records_of(draw: st.DrawFn, spec: BehaviorSpec, n_records: int) -> DemonstrationRecords:
    done = draw(npst.arrays(np.bool_, n_records))
    branches = spec.action_spec.discrete_branches
    masks = None
    if branches:
        masks = [draw(npst.arrays(np.bool_, (n_records, n))) & ~done[:, None] for n in branches]
    choices = [
        draw(npst.arrays(np.int32, n_records, elements=st.integers(0, n - 1))) for n in branches
    ]
    return DemonstrationRecords(
        obs=[draw(_observations(o, n_records)) for o in spec.observation_specs],
        action=ActionTuple(
            draw(_floats((n_records, spec.action_spec.continuous_size))),
            np.array(choices, np.int32).reshape(len(branches), n_records).T,
        ),
        action_mask=masks,
        reward=draw(_floats(n_records)),
        done=done,
        interrupted=draw(npst.arrays(np.bool_, n_records)) & done,
        agent_id=draw(_integers(n_records)),
        group_id=draw(_integers(n_records)),
        group_reward=draw(_floats(n_records)),
    )


def _observations(spec: ObservationSpec, n: int) -> st.SearchStrategy[Any]:
    elements = st.integers(0, 255) if spec.dtype == np.uint8 else FLOAT32
    return npst.arrays(spec.dtype, (n, *spec.shape), elements=elements)


def _floats(shape: int | tuple[int, ...]) -> st.SearchStrategy[Any]:
    return npst.arrays(np.float32, shape, elements=FLOAT32)


def _integers(n: int) -> st.SearchStrategy[Any]:
    return npst.arrays(np.int32, n, elements=INT32)


def arrays_of(records: DemonstrationRecords) -> list[Any]:
    """Return all arrays of some records, always in the same order."""
    action = records.action
    rest = records._replace(obs=[], action=None, action_mask=None)
    columns = [column for column in rest if isinstance(column, np.ndarray)]
    return [
        *records.obs,
        action.continuous,
        action.discrete,
        *(records.action_mask or []),
        *columns,
    ]


def assert_records_equal(found: DemonstrationRecords, expected: DemonstrationRecords) -> None:
    assert (found.action_mask is None) == (expected.action_mask is None)
    for one, other in zip(arrays_of(found), arrays_of(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def messages_of(data: bytes, n_records: int) -> list[bytes]:
    """Take a file apart: metadata, brain parameters, and some of its records."""
    messages, end = [data[1 : 1 + data[0]]], HEAD_BYTES
    for _ in range(1 + n_records):
        start, size = _content(data, end)
        end = start + size
        messages.append(data[start:end])
    return messages


def file_of(messages: list[bytes]) -> bytes:
    """Put a file together."""
    head, *rest = [varint(len(message)) + message for message in messages]
    return head.ljust(HEAD_BYTES, b"\0") + b"".join(rest)


def first_records(data: bytes, n_records: int) -> bytes:
    """Cut a file down to some of its records."""
    metadata, *rest = messages_of(data, n_records)
    head = DemonstrationMetaProto.FromString(metadata)
    head.number_steps = n_records
    return file_of([head.SerializeToString(), *rest])


def _content(data: bytes, at: int) -> tuple[int, int]:
    """Return where a message with its length before it starts, and its length."""
    size = shift = 0
    while data[at] >= 0x80:
        size |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return at + 1, size | data[at] << shift
