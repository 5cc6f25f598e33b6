"""A training job that imports the client pays for httpx only when it asks."""

import subprocess
import sys

import ckptguard.client


def test_the_package_brings_no_http_before_a_name_is_used() -> None:
    code = "import ckptguard.client, sys; assert not {'httpx', 'stamina', 'ssl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there() -> None:
    assert all(getattr(ckptguard.client, name) for name in ckptguard.client.__all__)
