"""Pictures of environments for Gymnasium's `render()`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import BaseEnv, as_floats
from mlagents_envs.envs.spaces import UnityGymException

RENDER_METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}


def check_render_mode(render_mode: str | None) -> str | None:
    """Return the mode.

    Raises:
        UnityGymException: There is no such mode.
    """
    if render_mode not in (None, *RENDER_METADATA["render_modes"]):
        raise UnityGymException(f"render_mode is {render_mode!r}; it must be 'rgb_array' or None")
    return render_mode


def picture(env: BaseEnv, image: NDArray[Any] | None) -> NDArray[np.uint8]:
    """Return what the environment draws of itself, or else an image observed, as (H, W, 3) bytes.

    Args:
        env: Draws itself if it has a method `render`.
        image: (channels, H, W). One or two channels become gray, those beyond three are cut.

    Raises:
        UnityGymException: The environment cannot draw, and there is no image.
    """
    render = getattr(env, "render", None)
    if render is not None:
        drawn: NDArray[np.uint8] = render()
        return drawn
    if image is None:
        raise UnityGymException(
            "nothing to render: the environment does not draw itself and observes no image"
        )
    channels = image[:3] if len(image) >= 3 else image[[0, 0, 0]]
    return np.round(as_floats(channels) * 255.0).astype(np.uint8).transpose(1, 2, 0)
