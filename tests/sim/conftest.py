"""A fixture for tests of what both the native library and NumPy compute."""

import pytest

from mlagents_native.library import NativeError, Part, the_library


@pytest.fixture(params=["NumPy", "library"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test twice: computed by NumPy, and by the native library if there is one."""
    found = the_library()
    if request.param == "NumPy":
        monkeypatch.setattr(Part, "load", lambda part: None)
    elif isinstance(found, NativeError):
        pytest.skip(str(found))
    return str(request.param)
