"""The exceptions that this package raises.

UnityException
├── UnityEnvironmentException          a simulation that cannot be started, used or kept
├── UnityTimeOutException              no message from the simulation within the deadline
├── UnityWorkerInUseException          the port is used by another program
├── UnityCommunicatorStoppedException  the simulation ended the session
├── UnityCommunicationException        bytes or messages that break the protocol
├── UnityObservationException          an observation that is not what its spec announced
│   └── UnityNonFiniteException        a NaN or an infinity; also a `RuntimeError`
├── UnityActionException               actions that do not fit the behavior
├── UnitySideChannelException          a side channel used against its rules
├── UnityDemonstrationException        a demonstration file that cannot be read or written
└── UnityPolicyException               a policy that cannot serve the behavior
"""


class UnityException(Exception):
    """Base of every error raised by `mlagents_envs`."""


class UnityEnvironmentException(UnityException):
    """A simulation could not be started, used or kept: launch, version, exit, use after close."""


class UnityTimeOutException(UnityException):
    """No message came from the simulation within the deadline."""


class UnityCommunicatorStoppedException(UnityException):
    """The simulation ended the session, for example because the Editor left play mode."""


class UnityCommunicationException(UnityException):
    """Bytes or messages that break the protocol; the text names the reason."""


class UnityObservationException(UnityException):
    """An observation is not what its specification announced."""


class UnityNonFiniteException(UnityObservationException, RuntimeError):
    """An observation or a reward is NaN or infinite."""


class UnityActionException(UnityException):
    """Actions do not fit the behavior they were set for, or the behavior is unknown."""


class UnitySideChannelException(UnityException):
    """A side channel was used against its rules."""


class UnityDemonstrationException(UnityException):
    """A demonstration file cannot be read or written; the text names the reason."""


class UnityPolicyException(UnityException):
    """A policy cannot serve the behavior it was asked to serve."""


class UnityWorkerInUseException(UnityException):
    """The port a worker would listen on is taken.

    Args:
        worker_id: Number of the worker; its port is base port plus worker id.
        detail: Further information, for example the port and the process that holds it.
    """

    MESSAGE_TEMPLATE = (
        "worker {} cannot listen: its port is taken. Close the environment that holds it, "
        "or choose another worker_id or base_port (0 picks a free port)."
    )

    def __init__(self, worker_id: int, detail: str = "") -> None:
        message = self.MESSAGE_TEMPLATE.format(worker_id)
        super().__init__(f"{message} {detail}" if detail else message)
        self.worker_id = worker_id
        self.detail = detail
