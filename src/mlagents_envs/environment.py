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
from mlagents_envs.communicator import Communicator, Received
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
    """A simulation in another process: a player that this class starts, or the Unity Editor.

    The constructor opens a port, starts the player and waits until it has connected. `close()`,
    the end of a `with` block or the end of the program ends the player.

        with UnityEnvironment("builds/3DBall") as env:
            env.reset()

    Args:
        file_name: Path of the player's executable; None waits for the Editor to enter play mode.
        worker_id: Number of this environment in the program; the port is `base_port + worker_id`.
        base_port: Port of worker 0; by default 5005, or 5004 for the Editor. 0 picks a free port.
        seed: Seed of the simulation's random numbers, a signed 32-bit number.
        no_graphics: Whether to start the player without a window and a graphics card.
        no_graphics_monitor: Whether to apply `no_graphics` to every worker except worker 0.
        timeout_wait: Longest wait for the simulation in seconds: to connect, at each reset and
            step, and to exit when closed.
        additional_args: More arguments for the player.
        side_channels: Channels for data other than observations and actions.
        log_folder: Folder for the player's log, `Player-<worker_id>.log`. It is created if it does
            not exist.
        num_areas: Number of copies of the training area, if the simulation supports it.
        listen_address: Address to listen on. Any program that can reach it can connect as the
            simulation.
        max_message_bytes: Size of the largest message to accept.
        turn_channel_last_images: Whether to return the images of Unity packages before 3.0, which
            are (height, width, channels), as (channels, height, width) like all other images.
            False returns them unchanged.
        reorder_uncompressed_images: Whether to read uncompressed images of Unity packages since
            3.0 in the order in which they are written, which differs from the announced order.
            False reads them as announced, with mixed channels; use it for policies that were
            trained on such images.
        keep_8_bit_images: Whether to return 8-bit images as uint8 from 0 to 255, which takes a
            quarter of the memory; the `dtype` of the observation spec shows it. False returns
            float32 from 0 to 1.
        communicator: Open connection to use instead of a port. It is closed with the environment.
        command: Program and first arguments that start the player, in place of `file_name`.
        connect: Whether to wait until the simulation has connected. After False, call `connect()`,
            or `poll()` until it returns True, before anything else.

    Raises:
        UnityEnvironmentException: The executable does not exist or cannot be started; the player
            exited; the protocol versions differ; two side channels have the same id; the log
            folder cannot be created; `num_areas` is below 1.
        UnityWorkerInUseException: The port is in use.
        UnityTimeOutException: The simulation did not connect in time.
        UnityCommunicatorStoppedException: The simulation ended the session.
        UnityCommunicationException: The program that connected does not speak the protocol.
        ValueError: The seed or the number of areas does not fit in 32 bits.
    """

    API_VERSION = handshake.API_VERSION
    DEFAULT_EDITOR_PORT = 5004
    BASE_ENVIRONMENT_PORT = 5005
    reports_are_checked = True

    _was_reset = False
    _was_finished = False  # whether `poll` has finished the last step or reset

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
        is_editor = command is None and communicator is None
        _check_numbers(worker_id, num_areas, is_editor=is_editor)
        self._specs: dict[BehaviorName, BehaviorSpec] = {}
        self._steps: dict[BehaviorName, Steps] = {}
        self._actions = ActionBuffer(self._specs)
        self._side_channels = SideChannelRouter(side_channels or ())
        self._simulation: SimulationHello | None = None
        self._images = ImageOptions(
            turn_channel_last_images, reorder_uncompressed_images, keep_8_bit_images
        )
        self._hello = handshake.encode_trainer_hello(
            TrainerHello(seed, self.API_VERSION, __version__, Capabilities.all(), num_areas)
        )
        if base_port is None:
            base_port = self.DEFAULT_EDITOR_PORT if command is None else self.BASE_ENVIRONMENT_PORT
        port = base_port + worker_id if base_port else 0
        if communicator is None:
            communicator = opened = _listen(
                worker_id, base_port, timeout_wait, listen_address, max_message_bytes
            )
            port = opened.port
        self._session = Session(communicator, timeout_s=timeout_wait)
        self._close = weakref.finalize(self, self._session.close)
        try:
            if command is not None:
                no_graphics = no_graphics or (no_graphics_monitor and worker_id != 0)
                log_file = player_log_file(log_folder, worker_id) if log_folder else None
                self._start_player(command, port, no_graphics, log_file, additional_args or ())
            elif is_editor:
                logger.info("Listening on port %d. Press Play in the Unity Editor to begin.", port)
            if connect:
                self.connect()
        except BaseException:
            self.close()
            raise

    def _start_player(
        self,
        command: Sequence[str],
        port: int,
        no_graphics: bool,
        log_file: str | None,
        additional: Sequence[str],
    ) -> None:
        arguments = player_arguments(
            port, no_graphics=no_graphics, log_file=log_file, additional=additional
        )
        is_debugged = logger.isEnabledFor(logging.DEBUG)
        self._session.player = Player([*command, *arguments], show_output=is_debugged)

    def connect(self) -> None:
        """Wait until the simulation has connected; needed only after `connect=False`.

        Raises:
            The errors of the constructor.
        """
        while not self._session.is_agreed:
            self._shake_hands(self._session.receive())

    def _shake_hands(self, received: Received) -> bool:
        """Process a message of the handshake; return True after the second, which completes it."""
        message = bytes(received)
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
            logger.warning(
                "The simulation does not report the capability baseRLCapabilities, which every "
                "version of the protocol includes."
            )
        layout = handshake.image_layout(self._simulation.package_version)
        self._decoder = OutputDecoder(self._images.reading(layout))
        self._session.agree()
        return True

    @property
    def player(self) -> Player | None:
        """Player that was started; None if the simulation is the Editor or runs elsewhere.

        A player that was started by other code can be set before the simulation connects. From
        then on the environment watches it, and ends it when the environment is closed.
        """
        return self._session.player

    @player.setter
    def player(self, player: Player) -> None:
        self._session.player = player

    @property
    def academy_capabilities(self) -> Capabilities:
        """Features of the simulation beyond the first version of the protocol."""
        self._require_connection()
        assert self._simulation is not None
        return self._simulation.capabilities

    @property
    def side_channels(self) -> tuple[SideChannel, ...]:
        """Side channels that were passed to the constructor."""
        return self._side_channels.channels

    @property
    def behavior_specs(self) -> BehaviorMapping:
        """Specifications by behavior name; empty before the first reset."""
        return BehaviorMapping(self._specs)

    def reset(self) -> None:
        """Begin a new episode for every agent; a step that was sent is finished first.

        Raises:
            The errors of `step_receive`.
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
        """Send the actions that were set, zeros for other agents, and wait for the next step.

        If there was no reset before, the first step is a reset.

        Raises:
            The errors of `step_receive`.
        """
        self.step_send()
        self.step_receive()

    def step_send(self) -> None:
        """Send the actions that were set and return at once; `step_receive` finishes the step."""
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
        """Wait for the simulation's answer to `step_send` or `reset_send`.

        Raises:
            UnityTimeOutException: The simulation did not answer in time.
            UnityCommunicatorStoppedException: The simulation ended the session.
            UnityEnvironmentException: The player failed, no step was sent, or the environment is
                closed; a behavior's name cannot be used as a folder name; the simulation sends
                compressed images, and no library for them is installed.
            UnityCommunicationException: The answer breaks the protocol.
            UnityObservationException: An observation differs from its announced specification.
            UnityNonFiniteException: An observation or a reward is NaN or infinite.
        """
        self._require_connection()
        if self._was_finished:
            self._was_finished = False
        else:
            self._finish(self._session.receive())

    def _finish(self, message: Received) -> None:
        """Process the simulation's answer, which ends a step or reset."""
        try:
            output = self._decoder.decode(message, self._specs)
        except UnityCommunicatorStoppedException as error:
            self._session.raise_explained(error)
        for name, spec in output.specs.items():
            if self._specs.setdefault(name, spec) != spec:
                raise UnityCommunicationException(
                    f"behavior {name!r} was announced again with another specification: {spec}; "
                    f"the first was {self._specs[name]}"
                )
        if not self._specs and not self._was_reset:
            logger.warning(
                "The simulation is connected, but has announced no behavior, because no agent has "
                "requested a decision. Agents need the Behavior Type Default and a component that "
                "requests decisions, such as a Decision Requester. Behaviors that appear later "
                "are added."
            )
        self._was_reset = True
        self._steps = output.steps
        self._side_channels.deliver(output.side_channel)

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the answer to `step_send` arrives."""
        return self._session.communicator.fileno()

    def filenos(self) -> tuple[int, ...]:
        """Return file descriptors, one of which becomes readable when it is time to `poll`.

        Until the simulation has connected, they may change with every `poll`.
        """
        return self._session.filenos()

    def poll(self, deadline_s: float = math.inf) -> bool:
        """Process the messages that have arrived, without waiting for more.

        If the answer to `step_send` or `reset_send` is among them, the step is finished, and
        `step_receive` need not be called.

        Args:
            deadline_s: Time, on the clock of `time.monotonic`, after which a simulation that has
                not answered counts as hanging.

        Returns:
            Whether the simulation has connected, or the step is finished.

        Raises:
            UnityTimeOutException: The deadline has passed.
            The errors of the constructor and of `step_receive`.
        """
        if self._was_finished:
            return True
        while (message := self._session.poll(deadline_s)) is not None:
            if not self._session.is_agreed:
                if self._shake_hands(message):
                    return True
                continue
            self._finish(message)
            self._was_finished = True
            return True
        return False

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return the decision steps and terminal steps of the last step or reset.

        Raises:
            KeyError: The behavior is unknown.
        """
        try:
            return self._steps[behavior_name]
        except KeyError:
            raise KeyError(
                f"{unknown_behavior(behavior_name, self._steps)} Behaviors may be announced later, "
                "with their first agent."
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
        """Set the next action of one agent, one row; other agents keep theirs, zeros by default.

        Raises:
            IndexError: The agent did not request a decision.
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
        self._was_finished = False
        self._session.send(encode_input(Input(command, actions, self._side_channels.collect())))

    def close(self) -> None:
        """End the session and the player. Calling it again does nothing."""
        self._close()


def _listen(
    worker_id: int, base_port: int, timeout_wait: float, address: str, max_message_bytes: int
) -> RpcCommunicator:
    """Return an open communicator; the arguments are those of the environment."""
    communicator = RpcCommunicator(
        worker_id,
        base_port,
        timeout_wait,
        listen_address=address,
        max_message_bytes=max_message_bytes,
    )
    communicator.open()
    return communicator


def _check_numbers(worker_id: int, num_areas: int, *, is_editor: bool) -> None:
    """Check the constructor's numbers.

    Raises:
        UnityEnvironmentException: `worker_id` is not 0 for the Editor, or `num_areas` is below 1.
    """
    if is_editor and worker_id != 0:
        raise UnityEnvironmentException(
            f"worker_id is {worker_id}, but the Unity Editor requires worker_id 0. To use another "
            "worker_id, pass the file_name or command of a player."
        )
    if num_areas < 1:
        raise UnityEnvironmentException(f"num_areas must be at least 1, got {num_areas}")
