"""tokenize with a tokenizer that stands in a model of the Hub: from the command line to the arrays."""

import json
import subprocess
import time
from pathlib import Path

from tests.support import tools
from tests.support.helpers import PATIENCE
from tests.support.servers.downloads import Hub
from tests.support.tokenizers.families import made
from tests.support.tools import World


def tokenize(hub: Hub, home: Path, world: World, tokenizer: str, root: Path) -> tools.Done:
    """tokenize as a process that talks to this Hub."""
    start = time.monotonic()
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|box_end|>")
    tokens = ",".join(f"{tag}={name}" for tag, name in zip(("direct", "cot", "noisy", "synth"), names, strict=True))
    done = subprocess.run(
        tools.command("tokenize", rows=world.cleaned, tokenizer=tokenizer, root=root, workers=1, conditions=tokens),
        cwd=tools.REPOSITORY,
        env={**tools.environment(), **hub.environment(home)},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )
    return tools.Done(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def test_a_model_of_the_hub_is_tokenized_with_and_then_needs_no_hub(world: World, tmp_path: Path) -> None:
    file = made("qwen").encode()
    root = tmp_path / "root"
    with Hub() as hub:
        commit = hub.add("o/n", {"tokenizer.json": file}, kind="model")
        home = tmp_path / "home"
        first = tokenize(hub, home, world, "o/n", root)
        found = tools.folder(first)
        assert first.said(f"tokenizer: main of o/n is commit {commit}; to keep it, set tokenizer=o/n@{commit}")
        assert first.said(
            "by the native encoder (the split of Qwen 2 and 3, NFC, added tokens found in texts: 5; equal"
        )
        assert (root / "tokenizer/hub/o--n" / commit / "tokenizer.json").read_bytes() == file
        assert (found / "tokenizer.json").read_bytes() == file
        assert json.loads((found / "tokenizer_info.json").read_text())["tokenizer_path"] == "tokenizer.json"
        hub.requests.clear()
        pinned = tokenize(hub, home, world, f"o/n@{commit}", root)
        assert tools.folder(pinned) == found
        assert not hub.requests
        failed = tools.ended(tokenize(hub, home, world, "o/n@v9", root), 3)
        assert "the revision does not exist" in failed.message
