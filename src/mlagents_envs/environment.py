"""`UnityEnvironment`: a `BaseEnv` at the other end of a `Communicator`."""

import logging
import math
import weakref
from collections.abc import Sequence

from mlagents_envs import __version__, handshake
from mlagents_envs.base_env import (
    ActionBuffer,
    ActionSpec,
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorMapping,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
    unknown_behavior,
)
from mlagents_envs.codec import Command, Input, Steps, encode_input
from mlagents_envs.communicator import Communicator
from mlagents_envs.exception import (
    UnityActionException as UnityActionException,  # programs import these two from here
)
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
)
from mlagents_envs.exception import UnityTimeOutException as UnityTimeOutException
from mlagents_envs.handshake import Capabilities, SimulationHello, TrainerHello
from mlagents_envs.http2 import DEFAULT_MAX_MESSAGE_BYTES
from mlagents_envs.images import ImageOptions
from mlagents_envs.launcher import (
    Player,
    SharedPlayer,
    find_executable,
    player_arguments,
    player_log_file,
)
from mlagents_envs.logging_util import get_logger
from mlagents_envs.output_decoder import OutputDecoder
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_envs.session import Session
from mlagents_envs.side_channel.side_channel import SideChannel, SideChannelRouter

logger = get_logger(__name__)

_NO_DECISIONS = DecisionSteps.empty(BehaviorSpec([], ActionSpec(0, ())))


class UnityEnvironment(BaseEnv):
    """A simulation in another process: a player that this starts, or the Unity Editor.

    Making one listens, starts the player and waits until it has connected. `close()`, or leaving
    a `with` block, ends the player; so does the end of the program.

        with UnityEnvironment("builds/3DBall") as env:
            env.reset()

    Args:
        file_name: The player's executable; None waits for the Editor to enter play mode.
        worker_id: Tells environments of one program apart; the port is `base_port + worker_id`.
        base_port: 5005 by default, 5004 for the Editor; 0 takes any free port.
        seed: Of the simulation's random numbers; 32 bits, signed.
        no_graphics: Start the player without window and graphics card.
        no_graphics_monitor: The same, except for worker 0.
        timeout_wait: Seconds to wait for the simulation: to connect, at each reset and step, and
            to exit when closed.
        additional_args: More arguments for the player.
        side_channels: Channels to talk to the simulation beside observations and actions.
        log_folder: Folder for the player's log, `Player-<worker_id>.log`; made if it is not there.
        num_areas: How many copies of its training area the simulation shall make, if it can.
        listen_address: Where to listen. Whoever reaches it can take the simulation's place.
        max_message_bytes: The largest message to accept.
        turn_channel_last_images: Hand out the images of Unity packages before 3.0, which are
            (height, width, channels), as (channels, height, width) like those of all others.
            False leaves them as they are.
        reorder_uncompressed_images: Read the numbers of uncompressed images from Unity packages
            since 3.0 in the order in which those write them, which is not the one they announce.
            False reads them as announced, channels mixed up, as policies trained so expect.
        keep_8_bit_images: Hand out images that come as 8 bit as uint8 from 0 to 255, a quarter of
            the memory; their spec's `dtype` says so. False makes them float32 from 0 to 1.
        communicator: An opened connection to use instead of listening at a port. It is closed
            with the environment.
        command: Starts the player in place of `file_name`: a program and its first arguments.
        connect: False returns as soon as the player is started. Then call `connect()`, or
            `poll()` until it returns True, before anything else.

    Raises:
        UnityEnvironmentException: There is no such executable, or it cannot be started; the
            player exited; the protocol versions differ; two side channels have one id; the log
            folder cannot be made; `num_areas` is below 1.
        UnityWorkerInUseException: The port is taken.
        UnityTimeOutException: The simulation did not connect in time.
        UnityCommunicatorStoppedException: The simulation ended the session.
        UnityCommunicationException: What connected does not speak the protocol.
        ValueError: The seed or the number of areas does not fit in 32 bits.
    """

    API_VERSION = handshake.API_VERSION
    DEFAULT_EDITOR_PORT = 5004
    BASE_ENVIRONMENT_PORT = 5005
    reports_are_checked = True

    def __init__(
        self,
        file_name: str | None = None,
        worker_id: int = 0,
        base_port: int | None = None,
        seed: int = 0,
        no_graphics: bool = False,
        no_graphics_monitor: bool = False,
        timeout_wait: float = 60,
        additional_args: Sequence[str] | None = None,
        side_channels: Sequence[SideChannel] | None = None,
        log_folder: str | None = None,
        num_areas: int = 1,
        *,
        listen_address: str = "127.0.0.1",
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        turn_channel_last_images: bool = True,
        reorder_uncompressed_images: bool = True,
        keep_8_bit_images: bool = False,
        communicator: Communicator | None = None,
        command: Sequence[str] | None = None,
        connect: bool = True,
    ) -> None:
        if file_name is not None:
            command = [str(find_executable(file_name))]
        if command is None and communicator is None and worker_id != 0:
            raise UnityEnvironmentException(
                f"worker_id is {worker_id}, but there is only one Unity Editor: give the "
                "file_name or command of a player, or leave worker_id 0"
            )
        if num_areas < 1:
            raise UnityEnvironmentException(f"num_areas must be at least 1, got {num_areas}")
        self._specs: dict[BehaviorName, BehaviorSpec] = {}
        self._steps: dict[BehaviorName, Steps] = {}
        self._actions = ActionBuffer(self._specs)
        self._was_reset = False
        self._side_channels = SideChannelRouter(side_channels or ())

        self._hello = handshake.encode_trainer_hello(
            TrainerHello(seed, self.API_VERSION, __version__, Capabilities.all(), num_areas)
        )
        default_port = self.DEFAULT_EDITOR_PORT if command is None else self.BASE_ENVIRONMENT_PORT
        first_port = default_port if base_port is None else base_port
        port = first_port + worker_id if first_port else 0
        if communicator is None:
            communicator = RpcCommunicator(
                worker_id,
                first_port,
                timeout_wait,
                listen_address=listen_address,
                max_message_bytes=max_message_bytes,
            )
            communicator.open()
            port = communicator.port
            if command is None:
                logger.info("Listening on port %d. Press Play in the Unity Editor to begin.", port)
        self._session = Session(communicator, timeout_s=timeout_wait)
        self._close = weakref.finalize(self, self._session.close)
        self._simulation: SimulationHello | None = None
        self._images = ImageOptions(
            turn_channel_last_images, reorder_uncompressed_images, keep_8_bit_images
        )
        try:
            if command is not None:
                log_file = player_log_file(log_folder, worker_id) if log_folder else None
                arguments = player_arguments(
                    port,
                    no_graphics=no_graphics or (no_graphics_monitor and worker_id != 0),
                    log_file=log_file,
                    additional=additional_args or (),
                )
                self._session.player = Player(
                    [*command, *arguments], show_output=logger.isEnabledFor(logging.DEBUG)
                )
            if connect:
                self.connect()
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Wait until the simulation has connected; needed only after `connect=False`.

        Raises:
            As the constructor.
        """
        while not self._session.is_agreed:
            self._shake_hands(self._session.receive())

    def _shake_hands(self, message: bytes) -> bool:
        """Answer the simulation's first message; return True with the second, and be connected."""
        if self._simulation is None:
            try:
                self._simulation = handshake.decode_simulation_hello(message)
            except UnityCommunicatorStoppedException as error:
                self._session.raise_explained(error)
            self._session.send(self._hello)
            return False
        try:
            handshake.decode_ready(message)
        except UnityCommunicatorStoppedException as error:
            self._session.raise_explained(error)
        handshake.check_version(self._simulation.communication_version)
        logger.info(
            "Connected to a simulation with package version %s and protocol version %s.",
            self._simulation.package_version,
            self._simulation.communication_version,
        )
        if not self._simulation.capabilities.baseRLCapabilities:
            logger.warning("The simulation says that it lacks the base of the protocol.")
        layout = handshake.image_layout(self._simulation.package_version)
        self._decoder = OutputDecoder(self._images.reading(layout))
        self._session.agree()
        return True

    @property
    def player(self) -> Player | SharedPlayer | None:
        """The player that was started; None where the simulation is the Editor, or elsewhere.

        One that somebody else started can be handed over before the simulation connects: from then
        on it is watched, and ends with this environment.
        """
        return self._session.player

    @player.setter
    def player(self, player: Player | SharedPlayer) -> None:
        self._session.player = player

    @property
    def academy_capabilities(self) -> Capabilities:
        """What the simulation can do beyond the first version of the protocol."""
        self._require_connection()
        assert self._simulation is not None
        return self._simulation.capabilities

    @property
    def side_channels(self) -> tuple[SideChannel, ...]:
        """The side channels it was made with."""
        return self._side_channels.channels

    @property
    def behavior_specs(self) -> BehaviorMapping:
        """Specifications by behavior name; empty before the first reset."""
        return BehaviorMapping(self._specs)

    def reset(self) -> None:
        """Begin all episodes anew; a step that was sent and not received is finished first.

        Raises:
            As `step_receive`.
        """
        if self._session.is_waiting:
            self.step_receive()
        self.reset_send()
        self.step_receive()

    def reset_send(self) -> None:
        """Start a reset and return at once; `step_receive` finishes it."""
        self._actions.clear()
        self._send(Command.RESET, {})

    def step(self) -> None:
        """Send the actions set, zeros for agents without, and wait for the next step.

        The first step before any reset is a reset.

        Raises:
            As `step_receive`.
        """
        self.step_send()
        self.step_receive()

    def step_send(self) -> None:
        """Send the actions set and return at once."""
        if not self._was_reset:
            self._send(Command.RESET, {})
            return
        actions = {
            name: self._actions.take(name, len(decisions))
            for name, (decisions, _) in self._steps.items()
            if len(decisions)
        }
        self._actions.clear()
        self._send(Command.STEP, actions)

    def step_receive(self) -> None:
        """Wait for what the simulation answers to `step_send`.

        Raises:
            UnityTimeOutException: It did not answer in time.
            UnityCommunicatorStoppedException: It ended the session.
            UnityEnvironmentException: Its process failed, no step was sent, or this is closed; or
                a behavior's name cannot be that of a folder; or it sends compressed images, and no
                library for them is installed.
            UnityCommunicationException: Its answer breaks the protocol.
            UnityObservationException: An observation is not what was announced.
            UnityNonFiniteException: An observation or a reward is NaN or infinite.
        """
        self._require_connection()
        message = self._session.receive()
        try:
            output = self._decoder.decode(message, self._specs)
        except UnityCommunicatorStoppedException as error:
            self._session.raise_explained(error)
        for name, spec in output.specs.items():
            if self._specs.setdefault(name, spec) != spec:
                raise UnityCommunicationException(
                    f"behavior {name!r} was announced again, as {spec}; before, it was "
                    f"{self._specs[name]}"
                )
        if not self._specs and not self._was_reset:
            logger.warning(
                "The simulation is connected, but has announced no behavior: no agent has asked "
                "for a decision. Agents need the Behavior Type Default and something that requests "
                "decisions, such as a Decision Requester. A behavior that appears later is taken "
                "in then."
            )
        self._was_reset = True
        self._steps = output.steps
        self._side_channels.deliver(output.side_channel)

    def fileno(self) -> int:
        """File descriptor that becomes readable when the answer to `step_send` is there."""
        return self._session.communicator.fileno()

    def filenos(self) -> tuple[int, ...]:
        """File descriptors of which one becomes readable when it is time to `poll`.

        They differ from one `poll` to the next until the simulation has connected.
        """
        return self._session.filenos()

    def poll(self, deadline_s: float = math.inf) -> bool:
        """Take in what has come, without waiting for more.

        Args:
            deadline_s: The moment on the clock of `time.monotonic` from which on a simulation
                that has not answered counts as hanging.

        Returns:
            Whether it is done: the simulation has connected, or `step_receive` will not wait.

        Raises:
            UnityTimeOutException: The deadline is over.
            As the constructor and `step_receive`.
        """
        while self._session.poll(deadline_s):
            if self._session.is_agreed:
                return True
            if self._shake_hands(self._session.receive()):
                return True
        return False

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return who asks for an action and who ended in the last step or reset.

        Raises:
            KeyError: The behavior is unknown.
        """
        try:
            return self._steps[behavior_name]
        except KeyError:
            raise KeyError(
                f"{unknown_behavior(behavior_name, self._steps)} One may be announced later, with "
                "its first agent."
            ) from None

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set the next actions of a behavior, one row per agent of its `DecisionSteps`.

        Raises:
            UnityActionException: The behavior is unknown or the shapes do not fit.
        """
        self._actions.set(behavior_name, action, self._decisions(behavior_name))

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the next action of one agent, one row; the others keep theirs, at first zeros.

        Raises:
            IndexError: The agent did not ask for a decision.
            UnityActionException: The behavior is unknown or the shapes do not fit.
        """
        self._actions.set_for_agent(behavior_name, agent_id, action, self._decisions(behavior_name))

    def _decisions(self, behavior_name: BehaviorName) -> DecisionSteps:
        steps = self._steps.get(behavior_name)
        return _NO_DECISIONS if steps is None else steps[0]

    def _require_connection(self) -> None:
        if not self._session.is_agreed:
            raise UnityEnvironmentException(
                "not connected yet: call connect() first, or poll() until it returns True"
            )

    def _send(self, command: Command, actions: dict[BehaviorName, ActionTuple]) -> None:
        self._require_connection()
        self._session.send(encode_input(Input(command, actions, self._side_channels.collect())))

    def close(self) -> None:
        """End the session and the player. Calling it again does nothing."""
        self._close()
