import signal
import threading
import time

import pytest

from mlagents.trainers.run.interrupt import SIGNALS, Interrupt, Interrupted

pytestmark = pytest.mark.usefixtures("hangup_is_not_ignored")
needs_hangup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs POSIX signals")


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_lets_what_has_begun_be_finished(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = []
    with Interrupt() as interrupt, pytest.raises(Interrupted):
        for step in range(5):
            with interrupt.waiting():
                pass
            if step == 2:
                signal.raise_signal(number)
            steps.append(step)

    assert steps == [0, 1, 2]
    assert "interrupt again" in capfd.readouterr().err


def test_a_signal_breaks_off_what_waits() -> None:
    with Interrupt() as interrupt:
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        timer = threading.Timer(0.1, signal.pthread_kill, (main_thread, signal.SIGINT))
        timer.start()
        with pytest.raises(Interrupted), interrupt.waiting():
            time.sleep(30)
        timer.join()


def test_the_second_signal_ends_at_once() -> None:
    with Interrupt():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@needs_hangup
def test_a_hangup_is_never_the_second_signal() -> None:
    with Interrupt() as interrupt:
        for _ in range(3):  # a shell and its terminal both send it
            signal.raise_signal(signal.SIGHUP)
        with pytest.raises(Interrupted), interrupt.waiting():
            pass
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


@needs_hangup
def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            with interrupt.waiting():
                pass
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_was_there_before_comes_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupt():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_in_another_thread_it_leaves_signals_alone() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    seen = []

    def run() -> None:
        with Interrupt() as interrupt, interrupt.waiting():
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert seen == before
