"""The MPI launcher for tests: found once per process, tried with two ranks.

A test that needs MPI calls `mpirun_prefix`, directly or through the fixture ``mpirun``. Only this
module decides that MPI is missing. Such a test is then skipped, or fails if PCIRCLE_REQUIRE_MPI is
set, as under tox, whose environments install an MPI library. A test that skips because the machine
lacks anything else (rsync, root, FUSE) skips in either case.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

# Variables that a launcher sets; the tests may themselves run under a launcher.
LAUNCHER_VARIABLES = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "SLURM_", "HYDRA_", "I_MPI_", "MPI_")
# Ends a trial that hangs; on a loaded machine a start takes some seconds.
TRIAL_S = 240.0


@cache
def find_mpirun() -> tuple[tuple[str, ...], str]:
    """Return the launcher with its options, or the reason why none works with this mpi4py."""
    program = shutil.which("mpirun", path=Path(sys.executable).parent) or shutil.which("mpirun")
    if program is None:
        return (), "no mpirun, neither beside the interpreter nor on PATH"
    if importlib.util.find_spec("mpi4py") is None:
        return (), "mpi4py is not installed"
    version = subprocess.run([program, "--version"], check=False, capture_output=True).stdout
    # Open MPI refuses more ranks than cores, and root, unless these options are given.
    openmpi = re.search(rb"Open MPI|OpenRTE|PRRTE", version)
    options = ["--oversubscribe", "--allow-run-as-root"] if openmpi else []
    # Only the exit code matters: the launcher may interleave the output of ranks.
    trial = "from mpi4py import MPI; raise SystemExit(MPI.COMM_WORLD.size != 2)"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    done = subprocess.run(
        [program, *options, "-np", "2", sys.executable, "-c", trial],
        check=False,
        capture_output=True,
        timeout=TRIAL_S,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        return (), f"{program} starts no two ranks that see each other: {done.stderr[-300:]!r}"
    return (program, *options), ""


def mpirun_prefix() -> tuple[str, ...]:
    """Return the launcher with its options; without one, skip the test, or fail it under tox."""
    prefix, reason = find_mpirun()
    if prefix:
        return prefix
    if os.environ.get("PCIRCLE_REQUIRE_MPI"):
        pytest.fail(f"PCIRCLE_REQUIRE_MPI is set, and MPI is missing: {reason}", pytrace=False)
    pytest.skip(reason)
