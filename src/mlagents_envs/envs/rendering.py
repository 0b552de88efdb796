"""Pictures of environments, for Gymnasium's `render()`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import BaseEnv, as_8_bit
from mlagents_envs.envs.spaces import UnityGymException

RENDER_METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}


def check_render_mode(render_mode: str | None) -> str | None:
    """Check a render mode, and return it.

    Raises:
        UnityGymException: The mode is unknown.
    """
    if render_mode not in (None, *RENDER_METADATA["render_modes"]):
        raise UnityGymException(f"render_mode is {render_mode!r}; expected 'rgb_array' or None")
    return render_mode


def picture(env: BaseEnv, image: NDArray[Any] | None) -> NDArray[np.uint8]:
    """Return the environment's picture, or else an observed image, as (H, W, 3) uint8.

    Args:
        env: Environment; its method `render` is used if it has one.
        image: Observed image, (channels, H, W). One or two channels become gray; channels after
            the third are dropped.

    Raises:
        UnityGymException: The environment cannot render, and there is no image.
    """
    render = getattr(env, "render", None)
    if render is not None:
        drawn: NDArray[np.uint8] = render()
        return drawn
    if image is None:
        raise UnityGymException(
            "nothing to render: the environment has neither a method render nor an observed image"
        )
    channels = image[:3] if len(image) >= 3 else image[[0, 0, 0]]
    return as_8_bit(channels).transpose(1, 2, 0)
