"""Exceptions of this package.

UnityException
├── UnityEnvironmentException          a simulation that cannot be started or used, or that ended
├── UnityTimeOutException              no message from the simulation before the deadline
├── UnityWorkerInUseException          the port is used by another program
├── UnityCommunicatorStoppedException  the simulation ended the session
├── UnityCommunicationException        bytes or messages that break the protocol
├── UnityObservationException          an observation that does not match its specification
│   └── UnityNonFiniteException        a NaN or infinite number; also a `RuntimeError`
├── UnityActionException               actions that do not fit the behavior
├── UnitySideChannelException          incorrect use of a side channel
├── UnityDemonstrationException        a demonstration file that cannot be read or written
└── UnityPolicyException               a policy that does not fit the behavior
"""


class UnityException(Exception):
    """Base class of all errors that `mlagents_envs` raises."""


class UnityEnvironmentException(UnityException):
    """A simulation failed to start, exited, has another version, or was used after `close`."""


class UnityTimeOutException(UnityException):
    """No message from the simulation arrived before the deadline."""


class UnityCommunicatorStoppedException(UnityException):
    """The simulation ended the session, for example because the Editor left play mode."""


class UnityCommunicationException(UnityException):
    """Bytes or a message broke the protocol; the error message gives the reason."""


class UnityObservationException(UnityException):
    """An observation does not match its specification."""


class UnityNonFiniteException(UnityObservationException, RuntimeError):
    """An observation or a reward is NaN or infinite."""


class UnityActionException(UnityException):
    """Actions do not fit the behavior they were set for, or the behavior is unknown."""


class UnitySideChannelException(UnityException):
    """A side channel was used incorrectly."""


class UnityDemonstrationException(UnityException):
    """A demonstration file cannot be read or written; the error message gives the reason."""


class UnityPolicyException(UnityException):
    """A policy does not fit the behavior that it should control."""


class UnityWorkerInUseException(UnityException):
    """The port on which a worker would listen is in use.

    Args:
        worker_id: Number of the worker; its port is `base_port` + `worker_id`.
        detail: Additional information, for example the port and the process that uses it.
    """

    MESSAGE_TEMPLATE = (
        "worker {} cannot listen: its port is in use. Close the environment that uses it, "
        "or choose another worker_id or base_port (0 picks a free port)."
    )

    def __init__(self, worker_id: int, detail: str = "") -> None:
        message = self.MESSAGE_TEMPLATE.format(worker_id)
        super().__init__(f"{message} {detail}" if detail else message)
        self.worker_id = worker_id
        self.detail = detail
