"""The cubes of 3DBall, from what is seen of them."""

import numpy as np
from numpy.typing import NDArray


def tilted_cubes(z: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the (4, n) quaternions of cubes that begin an episode, of which z and x are seen.

    A turn by 2a about x, then by 2b about z, has the quaternion
    (sin a cos b, -sin a sin b, cos a sin b, cos a cos b); the first and third are known.
    """
    z, x = z.astype(np.float64), x.astype(np.float64)
    p = 1 + x**2 - z**2
    sin_a = np.copysign(np.sqrt((p - np.sqrt(p**2 - 4 * x**2)) / 2), x)
    sin_b = z / np.sqrt(1 - sin_a**2)
    cos_b = np.sqrt(1 - sin_b**2)
    return np.array([x, -sin_a * sin_b, z, np.sqrt(1 - sin_a**2) * cos_b])
