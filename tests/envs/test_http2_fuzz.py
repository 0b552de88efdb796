"""Random and mutated bytes into both roles: events or one exception, and bounded memory."""

import random

import pytest

from fuzz_targets import feed, http2
from mlagents_envs.http2 import Ended, Message, ProtocolError
from seeds import sizes


@pytest.mark.slow
@sizes("n_inputs", 20_000, 100_000)
@pytest.mark.parametrize("role", ["server", "client"])
def test_any_input_gives_events_or_one_exception(role, n_inputs):
    rng = random.Random(f"http2 {role}")
    target = http2(role)
    counts = {Message: 0, Ended: 0, ProtocolError: 0}
    for _ in range(n_inputs):
        data = target.generate(rng)
        for each in feed(role, data, rng.randrange(len(data) + 1)):
            counts[type(each)] += 1
    # The inputs reach all of it: whole messages, ends and errors, each many times.
    assert min(counts.values()) > n_inputs // 100, counts
