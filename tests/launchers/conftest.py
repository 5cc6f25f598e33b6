"""One machine with a service and launchers, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.launchers.launch_site import LaunchSite, launch_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaunchSite]:
    """Return a machine whose runs are those that the module makes."""
    with launch_site(tmp_path_factory.mktemp("site")) as machine:
        yield machine
