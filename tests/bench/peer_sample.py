"""The reference's sampler in numpy, after its description: the peer of components.sample.

    python peer_sample.py TOKENIZED RULES OUTPUT EPOCHS

One stream for all draws; all tokens are copied; every array is int64. The report is left out, to its advantage.
"""

import json
import sys
from pathlib import Path

import numpy as np
import yaml

INDEX = ("inst_start", "inst_len", "resp_start", "resp_len")
CONTEXT, LEAST = 4097, 2


def main() -> None:
    tokenized, rules_path, output = map(Path, sys.argv[1:4])
    epochs = int(sys.argv[4])
    rules = yaml.safe_load(rules_path.read_text())
    info = json.loads((tokenized / "tokenizer_info.json").read_text())
    names = sorted(path.name for path in tokenized.iterdir() if path.is_dir())
    tasks = []
    for name in names:
        rule = next((rule for rule in rules if name.startswith(rule["prefix"])), {})
        tasks.append((rule, {part: np.load(tokenized / name / f"{part}.npy") for part in INDEX}))

    lengths = [int(index["inst_len"].sum() + index["resp_len"].sum()) for _, index in tasks]
    vocab = info.get("vocab_size")
    dtype = np.int32 if vocab is None or vocab >= 65536 else np.uint16 if vocab >= 256 else np.uint8
    output.mkdir(parents=True)
    out = np.lib.format.open_memmap(output / "tokens.npy", "w+", dtype, (sum(lengths),))
    bases = np.cumsum([0, *lengths])
    for name, base, length in zip(names, bases, lengths, strict=False):
        out[base : base + length] = np.load(tokenized / name / "tokens.npy")
    out.flush()

    kept = []
    for _, index in tasks:
        allowed = CONTEXT - np.minimum(index["inst_len"], CONTEXT)
        keep = (index["resp_len"] >= LEAST) & (allowed >= 1)
        index["resp_len"] = np.minimum(index["resp_len"], allowed)
        kept.append({part: values[keep] for part, values in index.items()})

    generator = np.random.Generator(np.random.Philox(0))
    count = sum(len(index["inst_len"]) for index in kept)
    buffers = {part: np.empty(count, np.int64) for part in INDEX}
    orders = [np.empty(0, np.int64)] * len(tasks)
    cursors = [0] * len(tasks)
    coverage = [np.zeros(len(index["inst_len"]), np.int64) for index in kept]
    used = 0
    for epoch in range(epochs):
        place = 0
        for number, ((rule, _), index) in enumerate(zip(tasks, kept, strict=True)):
            rows = len(index["inst_len"])
            want = min(rule.get("max_per_file") or rows, rows) * rule.get("repeat", 1)
            taken = 0
            while taken < want:
                if cursors[number] == len(orders[number]):
                    orders[number], cursors[number] = generator.permutation(rows), 0
                take = min(rows - cursors[number], want - taken)
                chosen = orders[number][cursors[number] : cursors[number] + take]
                into = slice(place, place + take)
                buffers["inst_start"][into] = index["inst_start"][chosen] + np.uint64(bases[number])
                buffers["inst_len"][into] = index["inst_len"][chosen]
                buffers["resp_start"][into] = index["resp_start"][chosen] + np.uint64(bases[number])
                buffers["resp_len"][into] = index["resp_len"][chosen]
                coverage[number][chosen] += 1
                cursors[number] += take
                place += take
                taken += take
        used += int(buffers["inst_len"][:place].sum() + buffers["resp_len"][:place].sum())
        order = generator.permutation(place)
        (output / f"epoch_{epoch}").mkdir()
        for part, values in buffers.items():
            np.save(output / f"epoch_{epoch}" / f"{part}.npy", values[:place][order])
    metadata = {
        "tokenizer_info": info,
        "vocab_size": None,
        "max_seq_len": CONTEXT,
        "total_length": round(used / epochs),
    }
    (output / "metadata.json").write_text(json.dumps(metadata, separators=(",", ":"), ensure_ascii=False))


main()
