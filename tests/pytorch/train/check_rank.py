"""A rank that is checked three times: ``<file> <settings> <good folder> <other folder> <port> …``.

The file gets what each check said. To the last one rank 1 does not come.
"""

import json
import os
import sys
from pathlib import Path

from pairmill.errors import PairmillError
from pairmill.stages.train.check import CheckConfig, check


def main(to: str, settings: str, good: str, other: str, *ports: str) -> None:
    """Check the good folder, the other one, and the good one alone."""
    texts: list[str] = []
    for folder, port in zip((good, other, good), ports, strict=True):
        os.environ["MASTER_PORT"] = port
        if len(texts) == 2 and os.environ["RANK"] == "1":
            break
        limit = 1.0 if len(texts) == 2 else 60.0
        try:
            texts.append(
                check(CheckConfig(sampled=[folder], set=settings.split(), device="cpu", measure=0, limit_s=limit))
            )
        except PairmillError as error:
            texts.append(str(error))
    Path(to).write_text(json.dumps(texts))


if __name__ == "__main__":
    main(*sys.argv[1:])
