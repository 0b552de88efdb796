"""Random and mutated messages: nothing but this package's exceptions may come out."""

import random

import pytest

from fuzz_targets import DECODERS, random_message, sample_messages
from mlagents_envs.exception import UnityException

N_MESSAGES = 300_000


def fuzz(n_messages: int, seed: int) -> int:
    """Decode as many random messages; return how many of them were accepted."""
    rng = random.Random(seed)
    samples = sample_messages()
    accepted = 0
    for number in range(n_messages):
        message = random_message(rng, samples)
        decode = DECODERS[number % len(DECODERS)]
        try:
            decode(message)
            accepted += 1
        except UnityException as error:
            assert str(error)
        except BaseException:
            print(f"message {number}: {message.hex()}")
            raise
    return accepted


def test_a_few_random_messages_give_only_this_packages_exceptions():
    assert 0 < fuzz(5_000, seed=1) < 5_000


@pytest.mark.slow
@pytest.mark.nightly
def test_many_random_messages_give_only_this_packages_exceptions():
    assert 0 < fuzz(N_MESSAGES, seed=2) < N_MESSAGES


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("sample", range(8))
def test_every_message_cut_short_gives_only_this_packages_exceptions(decode, sample):
    message = sample_messages()[sample]
    for end in range(len(message)):
        try:
            decode(message[:end])
        except UnityException as error:
            assert str(error)
