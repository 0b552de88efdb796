"""A message laid out like an earlier one is read as if it had been parsed."""

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents_envs import output_decoder
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.codec import Output, Steps, decode_output, encode_output
from mlagents_envs.exception import UnityException, UnityNonFiniteException
from mlagents_envs.output_decoder import OutputDecoder
from seeds import sizes
from shared_data import load_recording
from wire_samples import BEHAVIOR_NAMES, assert_outputs_equal, behavior_specs, steps_of

NAME = "Hybrid?team=0"
SPEC = BehaviorSpec(
    [ObservationSpec.vector(3, "a"), ObservationSpec.vector(1, "b")],
    ActionSpec.create_hybrid(1, (3, 2)),
)


def step_message(rng: np.random.Generator, *, n_agents: int = 4, rewarded: int = 2) -> bytes:
    """Write a step of agents of whom the last `rewarded` get rewards and have masks."""
    reward = np.zeros(n_agents, np.float32)
    reward[n_agents - rewarded :] = rng.uniform(0.1, 1.0, rewarded)
    masks = [np.zeros((n_agents, size), np.bool_) for size in (3, 2)]
    masks[0][n_agents - rewarded :] = np.eye(3, dtype=np.bool_)[rng.integers(0, 3, rewarded)]
    decisions = DecisionSteps(
        obs=[rng.normal(size=(n_agents, size)).astype(np.float32) for size in (3, 1)],
        reward=reward,
        agent_id=np.arange(n_agents, dtype=np.int32) * 100,
        action_mask=masks,
        group_id=np.full(n_agents, 3, np.int32),
        group_reward=-reward,
    )
    return encode_output(Output({}, {NAME: (decisions, TerminalSteps.empty(SPEC))}, b""), SPECS)


SPECS = {NAME: SPEC}


def outcome(decode, message: bytes, specs) -> Output | str:
    try:
        return decode(message, specs)
    except UnityException as error:
        return f"{type(error).__name__}: {error}"


def assert_same(decoder: OutputDecoder, message: bytes, specs) -> None:
    found = outcome(decoder.decode, message, specs)
    expected = outcome(decode_output, message, specs)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert isinstance(found, Output)
        assert_outputs_equal(found, expected)


def test_the_third_message_of_a_kind_is_no_longer_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, decoder = np.random.default_rng(0), OutputDecoder()
    for _ in range(2):
        decoder.decode(step_message(rng), SPECS)
    message = step_message(rng)
    expected = decode_output(message, SPECS)

    monkeypatch.setattr(output_decoder, "decode_output", lambda *_: pytest.fail("parsed again"))

    assert_outputs_equal(decoder.decode(message, SPECS), expected)


def test_kinds_of_messages_may_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, decoder = np.random.default_rng(0), OutputDecoder()
    kinds = [{"n_agents": 4}, {"n_agents": 7, "rewarded": 7}, {"n_agents": 5, "rewarded": 0}]
    for kind in kinds:
        for _ in range(2):
            decoder.decode(step_message(rng, **kind), SPECS)
    messages = [step_message(rng, **kind) for kind in kinds]
    expected = [decode_output(message, SPECS) for message in messages]

    monkeypatch.setattr(output_decoder, "decode_output", lambda *_: pytest.fail("parsed again"))

    for message, output in zip(messages, expected, strict=True):
        assert_outputs_equal(decoder.decode(message, SPECS), output)


@st.composite
def courses(draw: st.DrawFn) -> tuple[dict[str, BehaviorSpec], list[bytes]]:
    """Draw messages of one session, of which many are laid out alike."""
    specs = draw(st.dictionaries(BEHAVIOR_NAMES, behavior_specs(), min_size=1, max_size=2))
    drawn: list[dict[str, Steps]] = [
        {name: draw(steps_of(spec)) for name, spec in specs.items()} for _ in range(3)
    ]
    messages = []
    for steps in draw(st.lists(st.sampled_from(drawn), min_size=3, max_size=8)):
        for decisions, _ in steps.values():
            factor = np.float32(draw(st.sampled_from([0.5, -1.0, 1.0])))
            decisions.obs = [batch * factor for batch in decisions.obs]
            decisions.reward = decisions.reward * factor
        messages.append(encode_output(Output({}, steps, b""), specs))
    return specs, messages


@given(courses())
def test_whatever_comes_is_read_as_the_codec_reads_it(
    course: tuple[dict[str, BehaviorSpec], list[bytes]],
) -> None:
    specs, messages = course
    decoder = OutputDecoder()
    for message in messages:
        assert_same(decoder, message, specs)


@pytest.mark.parametrize(
    "name", ["4.0.0-3dball-long", "4.0.0-basic", "1.6.0-discrete", "4.0.0-suite"]
)
def test_recordings_are_read_as_the_codec_reads_them(name: str) -> None:
    _, exchanges, _ = load_recording(name)
    decoder, specs = OutputDecoder(), {}
    for request, _ in exchanges[2:-1]:
        assert_same(decoder, request, specs)
        specs |= decode_output(request, specs).specs


@sizes("n_messages", 1000, 5000)
def test_mutated_messages_are_refused_and_read_as_by_the_codec(n_messages: int) -> None:
    rng, choose, decoder = np.random.default_rng(0), random.Random(0), OutputDecoder()
    for _ in range(3):
        decoder.decode(step_message(rng), SPECS)
    for _ in range(n_messages):
        message = bytearray(step_message(rng))
        for _ in range(choose.choice([1, 1, 2, 5])):
            message[choose.randrange(len(message))] = choose.randrange(256)
        assert_same(decoder, bytes(message), SPECS)
        assert_same(decoder, step_message(rng), SPECS)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named(number: float) -> None:
    rng, decoder = np.random.default_rng(0), OutputDecoder()
    for _ in range(3):
        message = step_message(rng)
        decoder.decode(message, SPECS)
    first = decode_output(message, SPECS).steps[NAME][0].obs[0][2].tobytes()

    with pytest.raises(UnityNonFiniteException, match=r"'Hybrid\?team=0'.*'a'.*agent 200"):
        decoder.decode(message.replace(first, np.full(3, number, "<f4").tobytes()), SPECS)


def test_arrays_belong_to_whoever_gets_them() -> None:
    rng, decoder = np.random.default_rng(0), OutputDecoder()
    messages = [step_message(rng) for _ in range(5)]
    for message in messages:
        decisions, _ = decoder.decode(message, SPECS).steps[NAME]
        for array in (*decisions.obs, decisions.reward, decisions.agent_id, decisions.group_id):
            array[...] = 9
    assert_same(decoder, messages[-1], SPECS)


def test_a_behavior_that_appears_is_known_from_then_on() -> None:
    rng, decoder = np.random.default_rng(0), OutputDecoder()
    for _ in range(3):
        decoder.decode(step_message(rng), SPECS)
    steps = {
        name: decode_output(step_message(rng), SPECS).steps[NAME] for name in (NAME, "New?team=1")
    }
    announcing = encode_output(Output({"New?team=1": SPEC}, steps, b""), SPECS)
    decoder.decode(announcing, SPECS)
    both = SPECS | {"New?team=1": SPEC}
    for _ in range(4):
        assert_same(decoder, step_message(rng), both)


def test_large_observations_are_copied_once_from_the_message() -> None:
    spec = BehaviorSpec([ObservationSpec.vector(4096, "a")], ActionSpec.create_continuous(1))
    rng, decoder, n_agents = np.random.default_rng(0), OutputDecoder(), 16
    n_bytes = n_agents * 4096 * 4
    for _ in range(3):
        obs = rng.random((n_agents, 4096), np.float32)
        decisions = DecisionSteps.of([obs], rng.random(n_agents), range(n_agents))
        steps = {NAME: (decisions, TerminalSteps.empty(spec))}
        message = encode_output(Output({}, steps, b""), {NAME: spec})
        decoder.decode(message, {NAME: spec})
    (layout,) = decoder._layouts.values()
    tracemalloc.start()
    try:
        read = layout.batches[NAME].obs[0].read(message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(np.frombuffer(read, "<f4").reshape(obs.shape), obs)
    assert n_bytes <= peak < 1.1 * n_bytes
