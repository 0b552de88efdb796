"""Random and mutated messages: nothing but this package's exceptions may come out."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from mlagents_envs.codec import (
    Command,
    Input,
    Output,
    decode_input,
    decode_output,
    encode_close,
    encode_input,
    encode_output,
)
from mlagents_envs.exception import UnityException
from mlagents_envs.handshake import (
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
)
from mlagents_envs.messages import repack
from samples_of_steps import steps  # noqa
