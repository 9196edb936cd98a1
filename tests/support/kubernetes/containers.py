"""Real containers of the images that `make images ENGINE=podman` leaves."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.helpers import REPOSITORY

USER = 65532
VERSION = next(
    line.split('"')[1]
    for line in (REPOSITORY / "rust/Cargo.toml").read_text().splitlines()
    if line.startswith("version")
)
SAMPLER, PIPELINE = (f"localhost/pairmill-{name}:{VERSION}" for name in ("sampler", "pipeline"))
# As Kubernetes' `restricted` runs it, and less: podman alone would mount a writable /tmp below a read-only root.
CONFINED = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    f"--user={USER}:{USER}",
    "--network=none",
)


def podman(*arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run podman; stdout and stderr as text."""
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert not check or not done.returncode, f"podman {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}"
    return done


def run(
    image: str, *arguments: str, options: tuple[str, ...] = (), check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run an image's own entry point, or with ``--entrypoint=…`` among the options another one, confined."""
    return podman("run", "--rm", *CONFINED, *options, image, *arguments, check=check)


def inspect(image: str) -> dict[str, Any]:
    """What podman knows of an image."""
    (found,) = json.loads(podman("image", "inspect", image).stdout)
    return dict(found)


def writable(folder: Path) -> Path:
    """A folder that the images' user may write; its parents are opened for passing through."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, USER, USER)
    for parent in folder.parents:
        if parent.stat().st_mode & 0o011 != 0o011:
            parent.chmod(parent.stat().st_mode | 0o011)
    return folder
