"""A process that a test starts lives in the network of that test, whatever network the forking process began in."""

from __future__ import annotations

import contextlib
import os
import sys

import pytest

from tests.networks import loopback_only, network_of_this_thread
from tests.warm import WarmProcess


def say_network() -> None:
    sys.stdout.write(str(os.stat(network_of_this_thread()).st_ino))


@pytest.mark.parametrize("place", [contextlib.nullcontext, loopback_only])
def test_a_process_lives_in_the_network_of_its_test(place: type[contextlib.nullcontext[None]]) -> None:
    with place(), WarmProcess(function=say_network) as process:
        assert process.wait() == 0, process.errors
        assert int(process.output) == os.stat(network_of_this_thread()).st_ino
