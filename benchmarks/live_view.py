"""What watching costs: CPU of the stepping thread, and of the page, with one browser.

    python benchmarks/live_view.py 3DBall Crawler

Worlds are stepped at random, which is the worst case: training spends most of its time elsewhere.
`copies` is the part of the stepping thread's CPU time that goes into moments for the page; `page`
is the CPU time of all other threads, in parts of a core; `frames` are those the page drew.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mlagents.viewing.page import Page
from mlagents.viewing.stage import Stage
from mlagents_envs.registry import default_registry

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("worlds", nargs="*", default=["3DBall", "Crawler", "SoccerTwos"])
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(f"{'world':20s} {'copies':>8s} {'page':>8s} {'frames/s':>9s} {'unwatched':>10s}")
    for world in options.worlds:
        measure(world, options.seconds)


def measure(world: str, seconds: float) -> None:
    """Print one line of the table."""
    from page_browser import open_page

    env = default_registry[world].make(seed=0)
    env.reset()
    stage = Stage()
    rng = np.random.default_rng(0)

    def step() -> Callable[[], None]:
        steps = {name: env.get_steps(name) for name in env.behavior_specs}
        actions = {
            name: spec.action_spec.random_action(len(steps[name][0]), rng)
            for name, spec in env.behavior_specs.items()
        }
        for name, action in actions.items():
            env.set_actions(name, action)
        return lambda: stage.offer(env, env.behavior_specs, steps, actions)

    def run() -> tuple[float, float, float]:
        """Return CPU of the stepping thread in `offer`, all of it, and of the process, in s."""
        offered = 0.0
        thread_s, process_s = time.thread_time(), time.process_time()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            offer = step()
            before_s = time.thread_time()
            offer()
            offered += time.thread_time() - before_s
            env.step()
        return offered, time.thread_time() - thread_s, time.process_time() - process_s

    unwatched, whole, _ = run()
    with Page(stage, port=0, title=world) as page:
        connection = open_page(page.url)
        frames = 0

        def read() -> None:
            nonlocal frames
            try:
                while connection.recv():
                    frames += 1
            except Exception:
                return

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(1.0)
        frames = 0
        offered, thread, process = run()
        shown = frames / seconds
        connection.close()
        reader.join()
    print(
        f"{world:20s} {offered / thread:8.2%} {(process - thread) / seconds:8.2%} {shown:9.1f} "
        f"{unwatched / whole:10.3%}"
    )


if __name__ == "__main__":
    main()
