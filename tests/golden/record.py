"""What the example data must give, to the byte: ``make golden`` records it, ``test_golden.py`` compares.

An optimization must leave ``demo.json`` as it is. A wanted change of bytes comes with a new one and a raised version of
the stage.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import tools

TOP = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "demo.json"
# The manifest repeats the digests; docs and tables in reports may change without a change of data.
LEFT_OUT = {"_MANIFEST.json", "_STARTED.json", "report.html", "report.md"}


def digests(profile: str, folder: Path) -> dict[str, str]:
    """sha256 of every data file that the pipeline makes of the example data, by stage and path."""
    raw, root, out = folder / "raw", folder / "root", folder / "sampled"
    subprocess.run([sys.executable, "examples/make_raw.py", str(raw)], cwd=TOP, check=True)
    rules = folder / "rules.yaml"  # the published repeats overflow the reference's buffers
    rules.write_text("- prefix: dmmath__\n  max_per_file: 150\n- prefix: gsm8k_train.jsonl\n  repeat: 2\n")
    places = {"raw": raw, "root": root, "output_path": out, "prefix_config_path": rules}
    tools.ended(tools.stage("run", **places, vocab_size=512, epochs=2, profile=profile))
    found: dict[str, str] = {}
    made = {"raw": raw, "sampled": out}
    for stage in ("clean", "tokenizer", "tokenize"):
        (made[stage],) = (path for path in (root / stage).iterdir() if path.name != "shards")
    for name, place in sorted(made.items()):
        for path in sorted(place.rglob("*")):
            # tokenizer_info.json repeats the path it was given with profile=data_io, and metadata.json repeats that.
            if path.is_file() and path.name not in LEFT_OUT and not (profile == "data_io" and path.suffix == ".json"):
                found[f"{name}/{path.relative_to(place)}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def clean_digests(profile: str, folder: Path) -> dict[str, str]:
    """sha256 of all that the clean stage makes of the example data of every source, and of each one's raw data."""
    raw, root = folder / "every", folder / "cleaned"
    subprocess.run([sys.executable, "examples/make_raw.py", str(raw), "sources=all"], cwd=TOP, check=True)
    tools.ended(tools.stage("clean", raw=raw, root=root, profile=profile))
    (made,) = (path for path in (root / "clean").iterdir() if path.name != "shards")
    found = {}
    for source in sorted(raw.iterdir()):
        whole = hashlib.sha256()
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            whole.update(f"{path.relative_to(raw)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        found[f"every/raw/{source.name}"] = whole.hexdigest()
    for path in sorted(made.rglob("*")):
        if path.is_file() and path.name not in LEFT_OUT:
            found[f"every/clean/{path.relative_to(made)}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def record() -> dict[str, dict[str, str]]:
    """Digests by profile."""
    found = {}
    for profile in ("pairmill", "data_io"):
        with tempfile.TemporaryDirectory() as folder:
            found[profile] = digests(profile, Path(folder)) | clean_digests(profile, Path(folder))
    return found


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=1, sort_keys=True) + "\n")
