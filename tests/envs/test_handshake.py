import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagents_envs.codec import encode_close
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
)
from mlagents_envs.handshake import (
    API_VERSION,
    PACKAGE_VERSION,
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
from mlagents_envs.images import ImageLayout
from shared_data import load_vectors

CAPABILITIES = st.builds(Capabilities, *[st.booleans()] * 7)
INT32 = st.integers(-(2**31), 2**31 - 1)


def vector(name: str) -> bytes:
    (found,) = [one for one in load_vectors("handshake") if one["name"] == name]
    return bytes.fromhex(found["hex"])


def test_the_simulation_introduces_itself_as_in_the_vector():
    hello = SimulationHello("1.5.0", "3.0.0", Capabilities.all())
    assert encode_simulation_hello(hello) == vector("handshake_1_request")
    assert decode_simulation_hello(vector("handshake_1_request")) == hello


def test_the_trainer_introduces_itself_as_in_the_vector():
    hello = TrainerHello(42, "1.5.0", "1.1.0", Capabilities.all(), num_areas=1)
    assert encode_trainer_hello(hello) == vector("handshake_1_reply")
    assert decode_trainer_hello(vector("handshake_1_reply")) == hello


def test_the_second_request_is_as_in_the_vector():
    assert encode_ready() == vector("handshake_2_request")
    decode_ready(vector("handshake_2_request"))


def test_both_sides_close_as_in_the_vectors():
    assert encode_close() == vector("close_reply") == vector("close_request")


@given(st.builds(SimulationHello, st.text(), st.text(), CAPABILITIES))
def test_simulation_hello_round_trip(hello):
    assert decode_simulation_hello(encode_simulation_hello(hello)) == hello


@given(st.builds(TrainerHello, INT32, st.text(), st.text(), CAPABILITIES, INT32))
def test_trainer_hello_round_trip(hello):
    assert decode_trainer_hello(encode_trainer_hello(hello)) == hello


def test_a_trainer_without_capabilities_still_sends_their_message():
    # Header, unity_input, rl_initialization_input, and in it field 4 of length 0.
    hello = TrainerHello(0, "", "", Capabilities(), num_areas=0)
    assert encode_trainer_hello(hello).hex() == "0a0308c801" + "1a04" + "1202" + "2200"


@pytest.mark.parametrize("seed", [2**31, -(2**31) - 1])
def test_a_seed_beyond_32_bits_is_refused(seed):
    with pytest.raises(ValueError):
        encode_trainer_hello(TrainerHello(seed, "1.5.0", "1", Capabilities()))


@pytest.mark.parametrize("decode", [decode_simulation_hello, decode_trainer_hello])
@pytest.mark.parametrize("message", [encode_ready(), b"", b"\xff", b"\x0a\x03\x08"])
def test_a_first_message_that_introduces_nobody_is_refused(decode, message):
    with pytest.raises(UnityCommunicationException):
        decode(message)


@pytest.mark.parametrize("decode", [decode_simulation_hello, decode_trainer_hello, decode_ready])
def test_closing_during_the_handshake_ends_the_session(decode):
    with pytest.raises(UnityCommunicatorStoppedException):
        decode(encode_close())


@pytest.mark.parametrize("version", ["1.5.0", "1.0", "1.2.0", "1.99.3", "1.6.0a1", "01.5"])
def test_the_same_major_version_is_served(version):
    check_version(version)


@pytest.mark.parametrize(
    "version",
    ["2.0.0", "0.15.0", "0.1", "", "1", "1.", "1.5.0.0", "1.5 ", "x", "1.5.0\n", "1.\u0665"],
)
def test_another_major_version_and_what_is_none_are_refused_with_both_named(version):
    with pytest.raises(UnityEnvironmentException) as refusal:
        check_version(version)
    assert repr(version) in str(refusal.value)
    assert API_VERSION in str(refusal.value)


def test_below_version_1_minor_versions_must_agree_too(monkeypatch):
    monkeypatch.setattr("mlagents_envs.handshake.API_VERSION", "0.3.1")
    check_version("0.3.9")
    for version in ("0.2.1", "1.3.1"):
        with pytest.raises(UnityEnvironmentException):
            check_version(version)


@pytest.mark.parametrize(
    ("version", "layout"),
    [
        ("1.6.0-preview", ImageLayout.CHANNEL_LAST),
        ("2.3.0-exp.3", ImageLayout.CHANNEL_LAST),
        ("0.9", ImageLayout.CHANNEL_LAST),
        ("3.0.0-exp.1", ImageLayout.NUMBERS_CHANNEL_LAST),
        ("4.0.0", ImageLayout.NUMBERS_CHANNEL_LAST),
        ("10.0.0", ImageLayout.NUMBERS_CHANNEL_LAST),
        (PACKAGE_VERSION, ImageLayout.CHANNEL_FIRST),
    ],
)
def test_the_version_of_the_package_tells_the_order_of_images(version, layout):
    assert image_layout(version) is layout


@pytest.mark.parametrize("version", ["", "2", "two", "v2.0", "\u0662.0", "9" * 5000 + ".0"])
def test_a_package_of_no_known_version_is_taken_for_a_current_one(version):
    assert image_layout(version) is ImageLayout.NUMBERS_CHANNEL_LAST


def test_a_simulation_of_this_project_is_channel_first_for_every_trainer():
    # Whoever reads the version alone, without the mark after the plus, must not turn its images.
    assert PACKAGE_VERSION.split(".")[0] >= "3"
