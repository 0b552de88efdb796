"""Protocol version and capabilities: offered, wanted, agreed.

    simulation                                trainer
    SimulationHello  ───────────────────────►
                     ◄───────────────────────  TrainerHello
    ready            ───────────────────────►
                     ◄───────────────────────  the first reset (see `codec`)

Source: wire protocol, sections 2.4 to 2.6.
"""

import re
from typing import Any, NamedTuple

from mlagents_envs import __version__
from mlagents_envs.exception import UnityCommunicationException, UnityEnvironmentException
from mlagents_envs.images import ImageLayout
from mlagents_envs.messages import STATUS_OK, UnityMessageProto, parse_message

API_VERSION = "1.5.0"
"""The version of the protocol that this package speaks."""

_OUR_MARK = "+mlagents-next"

PACKAGE_VERSION = f"4.0.0{_OUR_MARK}.{__version__}"
"""What a simulation of this project says in place of the version of the Unity package.

Trainers tell the order of an image's axes by it, and the number in front answers as it should: (C,
H, W). Unity's own package 4.0.0 writes uncompressed images in another order than it announces and
nothing else in the protocol would show the difference, so what follows the plus, which no order of
versions looks at, says that this simulation writes them as announced.
"""


class Capabilities(NamedTuple):
    """What one side of the wire can do beyond the first version; named as in the protocol."""

    baseRLCapabilities: bool = False
    """The protocol of version 1.0."""
    concatenatedPngObservations: bool = False
    """Images of more than three channels as several PNG files in a row."""
    compressedChannelMapping: bool = False
    """A mapping from the channels of those files to those of the observation."""
    hybridActions: bool = False
    """Continuous and discrete actions in one behavior."""
    trainingAnalytics: bool = False
    """The side channel of training analytics."""
    variableLengthObservation: bool = False
    """Observations of a varying number of entities."""
    multiAgentGroups: bool = False
    """Groups of agents with a shared reward."""

    @staticmethod
    def all() -> "Capabilities":
        """Make the capabilities of this package: every one."""
        return Capabilities(*[True] * len(Capabilities._fields))


class SimulationHello(NamedTuple):
    """The simulation's first message.

    Attributes:
        communication_version: The protocol version it speaks.
        package_version: The version of the Unity package, or of what stands in for it.
        capabilities: What it can do.
    """

    communication_version: str
    package_version: str
    capabilities: Capabilities


class TrainerHello(NamedTuple):
    """The trainer's first message.

    Attributes:
        seed: Seeds the simulation's random numbers; 32 bits, signed.
        communication_version: The protocol version it speaks.
        package_version: The version of this package.
        capabilities: What it can do.
        num_areas: How many copies of its training area a simulation shall make, if it can.
    """

    seed: int
    communication_version: str
    package_version: str
    capabilities: Capabilities
    num_areas: int = 1


def encode_simulation_hello(hello: SimulationHello) -> bytes:
    """Write the simulation's first message."""
    message = UnityMessageProto(header={"status": STATUS_OK})
    offered = message.unity_output.rl_initialization_output
    offered.name = "AcademySingleton"  # what Unity's package says
    offered.communication_version = hello.communication_version
    offered.package_version = hello.package_version
    offered.capabilities.SetInParent()
    _set_capabilities(offered.capabilities, hello.capabilities)
    return _serialized(message)


def decode_simulation_hello(message: bytes) -> SimulationHello:
    """Read the simulation's first message.

    Raises:
        UnityCommunicationException: It is another message, or none.
        UnityCommunicatorStoppedException: The simulation ended the session.
    """
    output = parse_message(message).unity_output
    if not output.HasField("rl_initialization_output"):
        raise UnityCommunicationException(
            "the simulation's first message does not introduce it (no rl_initialization_output)"
        )
    offered = output.rl_initialization_output
    return SimulationHello(
        communication_version=offered.communication_version,
        package_version=offered.package_version,
        capabilities=_capabilities(offered.capabilities),
    )


def encode_trainer_hello(hello: TrainerHello) -> bytes:
    """Write the trainer's answer to a `SimulationHello`.

    Raises:
        ValueError: The seed or the number of areas does not fit in 32 bits.
    """
    for name, number in (("seed", hello.seed), ("num_areas", hello.num_areas)):
        if not -(2**31) <= number < 2**31:
            raise ValueError(
                f"{name} is {number}: it must fit in 32 bits, from -2**31 to 2**31 - 1"
            )
    message = UnityMessageProto(header={"status": STATUS_OK})
    wanted = message.unity_input.rl_initialization_input
    wanted.seed = hello.seed
    wanted.communication_version = hello.communication_version
    wanted.package_version = hello.package_version
    wanted.capabilities.SetInParent()  # Unity's package fails where it is absent
    _set_capabilities(wanted.capabilities, hello.capabilities)
    wanted.num_areas = hello.num_areas
    return _serialized(message)


def decode_trainer_hello(message: bytes) -> TrainerHello:
    """Read the trainer's answer to a `SimulationHello`.

    Raises:
        UnityCommunicationException: It is another message, or none.
        UnityCommunicatorStoppedException: The trainer refused the session.
    """
    wanted_by = parse_message(message).unity_input
    if not wanted_by.HasField("rl_initialization_input"):
        raise UnityCommunicationException(
            "the trainer's first message does not introduce it (no rl_initialization_input)"
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
    """Write the simulation's second message: it waits for the first reset."""
    return _serialized(UnityMessageProto(header={"status": STATUS_OK}))


def decode_ready(message: bytes) -> None:
    """Check the simulation's second message; its contents, if any, are ignored.

    Raises:
        UnityCommunicationException: The bytes are not a message.
        UnityCommunicatorStoppedException: The simulation ended the session.
    """
    parse_message(message)


def check_version(communication_version: str) -> None:
    """Raise unless a simulation of this protocol version can be served.

    Major versions must be equal; below 1.0 minor ones too.

    Raises:
        UnityEnvironmentException: They differ, or `communication_version` is not a version.
    """
    if _compatible_part(communication_version) != _compatible_part(API_VERSION):
        raise UnityEnvironmentException(
            f"protocol versions differ: the simulation speaks {communication_version!r}, this "
            f"package {API_VERSION!r}. Build the simulation with a version of the Unity package "
            f"that speaks {API_VERSION.split('.')[0]}.x."
        )


def image_layout(package_version: str) -> ImageLayout:
    """Return how a simulation of this package version announces and writes images.

    One that says nothing sensible is taken for a current one (wire protocol, sections 0 and 3.4.2).
    """
    if _OUR_MARK in package_version:
        return ImageLayout.CHANNEL_FIRST
    major = re.match(r"(\d{1,9})\.", package_version, re.ASCII)
    if major and int(major[1]) < 3:
        return ImageLayout.CHANNEL_LAST
    return ImageLayout.NUMBERS_CHANNEL_LAST


def _compatible_part(version: str) -> str | None:
    """Return the part of `1.5`, `1.5.0` or `1.5.0a2` in which peers must agree, None for others."""
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
