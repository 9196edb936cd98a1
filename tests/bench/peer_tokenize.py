"""Row files to token arrays with the tokenizers wheel: ``peer_tokenize.py <rows> <tokenizer.json> <out>``.

What a person writes who wants the arrays of docs/format.md section 4 and has the wheel: a row group at a time, its fast
batches, numpy. Prints the seconds without start-up.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from tokenizers import Tokenizer

TAGS = {
    "direct": "<|object_ref_start|>",
    "cot": "<|object_ref_end|>",
    "noisy": "<|quad_start|>",
    "synth": "<|quad_end|>",
}


def main(rows: str, tokenizer: str, out: str) -> None:
    """Tokenize each file into a folder of its own."""
    start = time.perf_counter()
    made = Tokenizer.from_file(tokenizer)
    made.encode_special_tokens = True
    tags = {tag: made.token_to_id(token) for tag, token in TAGS.items()}
    boq, eoq, eoa = (made.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>", "<|box_end|>"))
    ready = time.perf_counter()
    for path in sorted(Path(rows).glob("*.parquet")):
        tokens: list[np.ndarray] = []
        lengths: list[tuple[int, int]] = []
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["condition", "instruction", "response"])
            condition, instruction, response = (column.to_pylist() for column in table.columns)
            questions = made.encode_batch_fast(instruction, add_special_tokens=False)
            answers = made.encode_batch_fast(response, add_special_tokens=False)
            for tag, question, answer in zip(condition, questions, answers, strict=True):
                head = [boq, *(tags[one] for one in tag.split(",")), *question.ids, eoq]
                tail = [*answer.ids, eoa]
                tokens += [np.array(head, np.uint32), np.array(tail, np.uint32)]
                lengths.append((len(head), len(tail)))
        sizes = np.array(lengths, np.uint64).reshape(-1, 2)
        ends = np.cumsum(sizes.sum(axis=1), dtype=np.uint64)
        folder = Path(out) / path.name
        folder.mkdir(parents=True)
        np.save(folder / "tokens.npy", np.concatenate(tokens))
        np.save(folder / "inst_start.npy", ends - sizes.sum(axis=1, dtype=np.uint64))
        np.save(folder / "inst_len.npy", sizes[:, 0])
        np.save(folder / "resp_start.npy", ends - sizes[:, 1])
        np.save(folder / "resp_len.npy", sizes[:, 1])
    print(json.dumps({"loading": ready - start, "work": time.perf_counter() - ready}))


if __name__ == "__main__":
    main(*sys.argv[1:])
