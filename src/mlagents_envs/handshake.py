"""The first messages of a session, which agree on protocol version and capabilities.

    simulation                                trainer
    SimulationHello  ───────────────────────►
                     ◄───────────────────────  TrainerHello
    ready            ───────────────────────►
                     ◄───────────────────────  the first reset (see `codec`)

`docs/protocol.md` describes the fields of these messages.
"""

import re
from typing import Any, NamedTuple

from mlagents_envs import __version__
from mlagents_envs.exception import UnityCommunicationException, UnityEnvironmentException
from mlagents_envs.images import ImageLayout
from mlagents_envs.messages import STATUS_OK, UnityMessageProto, parse_message

API_VERSION = "1.5.0"
"""Version of the protocol that this package speaks."""

_OUR_MARK = "+mlagents-next"

PACKAGE_VERSION = f"4.0.0{_OUR_MARK}.{__version__}"
"""Version that simulations of this project send in place of the version of the Unity package.

From the number before the plus sign, trainers derive the order of an image's axes, (C, H, W).
Unity's package 4.0.0 writes uncompressed images in another order than it announces, and no other
field of the protocol shows this. The suffix after the plus sign, which comparisons of versions
ignore, says that this simulation writes them as announced.
"""


class Capabilities(NamedTuple):
    """Optional features of the protocol that one side supports, named as in the protocol."""

    baseRLCapabilities: bool = False
    """Protocol version 1.0."""
    concatenatedPngObservations: bool = False
    """Images of more than three channels as concatenated PNG files."""
    compressedChannelMapping: bool = False
    """Mapping from the channels of these files to the channels of the observation."""
    hybridActions: bool = False
    """Continuous and discrete actions in one behavior."""
    trainingAnalytics: bool = False
    """Side channel for training analytics."""
    variableLengthObservation: bool = False
    """Observations with a varying number of entities."""
    multiAgentGroups: bool = False
    """Groups of agents with a shared reward."""

    @staticmethod
    def all() -> "Capabilities":
        """Return the capabilities of this package, which are all."""
        return Capabilities(*[True] * len(Capabilities._fields))


class SimulationHello(NamedTuple):
    """First message of the simulation.

    Attributes:
        communication_version: Protocol version of the simulation.
        package_version: Version of the Unity package, or `PACKAGE_VERSION`.
        capabilities: Capabilities of the simulation.
    """

    communication_version: str
    package_version: str
    capabilities: Capabilities


class TrainerHello(NamedTuple):
    """First message of the trainer.

    Attributes:
        seed: Seed of the simulation's random numbers, a signed 32-bit integer.
        communication_version: Protocol version of the trainer.
        package_version: Version of this package.
        capabilities: Capabilities of the trainer.
        num_areas: Number of copies of the training area, for simulations that can create them.
    """

    seed: int
    communication_version: str
    package_version: str
    capabilities: Capabilities
    num_areas: int = 1


def encode_simulation_hello(hello: SimulationHello) -> bytes:
    """Encode the first message of the simulation."""
    message = UnityMessageProto(header={"status": STATUS_OK})
    offered = message.unity_output.rl_initialization_output
    offered.name = "AcademySingleton"  # the name that Unity's package sends
    offered.communication_version = hello.communication_version
    offered.package_version = hello.package_version
    offered.capabilities.SetInParent()
    _set_capabilities(offered.capabilities, hello.capabilities)
    return _serialized(message)


def decode_simulation_hello(message: bytes) -> SimulationHello:
    """Decode the first message of the simulation.

    Raises:
        UnityCommunicationException: The bytes are another message, or not a message.
        UnityCommunicatorStoppedException: The simulation ended the session.
    """
    output = parse_message(message).unity_output
    if not output.HasField("rl_initialization_output"):
        raise UnityCommunicationException(
            "the simulation's first message is not a handshake: it has no rl_initialization_output"
        )
    offered = output.rl_initialization_output
    return SimulationHello(
        communication_version=offered.communication_version,
        package_version=offered.package_version,
        capabilities=_capabilities(offered.capabilities),
    )


def encode_trainer_hello(hello: TrainerHello) -> bytes:
    """Encode the trainer's answer to a `SimulationHello`.

    Raises:
        ValueError: The seed or the number of areas does not fit in 32 bits.
    """
    for name, number in (("seed", hello.seed), ("num_areas", hello.num_areas)):
        if not -(2**31) <= number < 2**31:
            raise ValueError(
                f"{name} is {number}: expected a 32-bit integer, from -2**31 to 2**31 - 1"
            )
    message = UnityMessageProto(header={"status": STATUS_OK})
    wanted = message.unity_input.rl_initialization_input
    wanted.seed = hello.seed
    wanted.communication_version = hello.communication_version
    wanted.package_version = hello.package_version
    wanted.capabilities.SetInParent()  # Unity's package fails if the field is absent
    _set_capabilities(wanted.capabilities, hello.capabilities)
    wanted.num_areas = hello.num_areas
    return _serialized(message)


def decode_trainer_hello(message: bytes) -> TrainerHello:
    """Decode the trainer's answer to a `SimulationHello`.

    Raises:
        UnityCommunicationException: The bytes are another message, or not a message.
        UnityCommunicatorStoppedException: The trainer refused the session.
    """
    wanted_by = parse_message(message).unity_input
    if not wanted_by.HasField("rl_initialization_input"):
        raise UnityCommunicationException(
            "the trainer's first message is not a handshake: it has no rl_initialization_input"
        )
    wanted = wanted_by.rl_initialization_input
    return TrainerHello(
        seed=wanted.seed,
        communication_version=wanted.communication_version,
        package_version=wanted.package_version,
        capabilities=_capabilities(wanted.capabilities),
        num_areas=wanted.num_areas,
    )


def encode_ready() -> bytes:
    """Encode the second message of the simulation, which says that it waits for the first reset."""
    return _serialized(UnityMessageProto(header={"status": STATUS_OK}))


def decode_ready(message: bytes) -> None:
    """Check the second message of the simulation; its content, if any, is ignored.

    Raises:
        UnityCommunicationException: The bytes are not a message.
        UnityCommunicatorStoppedException: The simulation ended the session.
    """
    parse_message(message)


def check_version(communication_version: str) -> None:
    """Check that a simulation's protocol version is compatible with this package.

    Major versions must be equal; below 1.0, minor versions too.

    Raises:
        UnityEnvironmentException: The versions are not compatible, or `communication_version` is
            not a version.
    """
    if _compatible_part(communication_version) != _compatible_part(API_VERSION):
        raise UnityEnvironmentException(
            f"protocol versions differ: the simulation speaks {communication_version!r}, this "
            f"package {API_VERSION!r}. Build the simulation with a version of the Unity package "
            f"that speaks protocol version {API_VERSION.split('.')[0]}.x."
        )


def image_layout(package_version: str) -> ImageLayout:
    """Return the layout in which a simulation of this package version announces and writes images.

    An invalid version counts as the current one.
    """
    if _OUR_MARK in package_version:
        return ImageLayout.CHANNEL_FIRST
    major = re.match(r"(\d{1,9})\.", package_version, re.ASCII)
    if major and int(major[1]) < 3:
        return ImageLayout.CHANNEL_LAST
    return ImageLayout.NUMBERS_CHANNEL_LAST


def _compatible_part(version: str) -> str | None:
    """Return the part of a version that must agree, or None for an invalid version.

    Versions have the form `1.5`, `1.5.0` or `1.5.0a2`.
    """
    match = re.fullmatch(r"0*(\d+)\.0*(\d+)(\.\d+)?([ab]\d+)?", version, re.ASCII)
    if match is None:
        return None
    major, minor = match[1], match[2]
    return f"0.{minor}" if major == "0" else major


def _capabilities(message: Any) -> Capabilities:
    return Capabilities(*[getattr(message, name) for name in Capabilities._fields])


def _set_capabilities(message: Any, capabilities: Capabilities) -> None:
    for name, able in capabilities._asdict().items():
        setattr(message, name, able)


def _serialized(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded
