"""How often a comparison of two plans is right: no change is rarely called one, and a tenth of wrong answers is seen.

By default there is one repetition of 0 % and of 10 % of answers shuffled. ``PAIRMILL_COMPARISONS=100``, as ``make
test-long`` says it, has 100 of 0 %, 40 of 10 %, and ten of 2, 5 and 25 %. ``PAIRMILL_COMPARISONS_RECORD`` names a file
of their differences: repetitions that are in it already are not made again.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from pairmill import log
from pairmill.cpu import available_cores
from pairmill.stages.compare.statistics import Paired

TIMES = int(os.environ.get("PAIRMILL_COMPARISONS", "1"))
REPEATED = {0.0: TIMES, 0.1: -(-TIMES * 2 // 5), 0.02: TIMES // 10, 0.05: TIMES // 10, 0.25: TIMES // 10}


def repetition(folder: str, number: int, shares: tuple[float, ...]) -> tuple[int, dict[float, list[float]]]:
    import torch

    from tests.support.nets.shuffled_answers import Bench

    torch.set_num_threads(1)
    log.logger().setLevel(logging.ERROR)
    return number, Bench(Path(folder) / str(number)).differences(number, shares)


def repeated(folder: str, left: Mapping[int, tuple[float, ...]]) -> Iterator[tuple[int, dict[float, list[float]]]]:
    """Yield the repetitions; a process of its own, which imports torch, is made where there are several."""
    if len(left) == 1:
        level = log.logger().level
        try:
            yield from (repetition(folder, number, shares) for number, shares in left.items())
        finally:
            log.logger().setLevel(level)
        return
    with ProcessPoolExecutor(available_cores(), mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(repetition, folder, number, shares) for number, shares in left.items()]
        yield from (future.result() for future in as_completed(asked))


def test_a_change_is_seen_and_none_is_not(tmp_path: Path) -> None:
    record = Path(os.environ.get("PAIRMILL_COMPARISONS_RECORD", tmp_path / "differences.jsonl"))
    record.touch()
    found: dict[float, dict[int, list[float]]] = {share: {} for share in REPEATED}
    for line in map(json.loads, record.read_text().splitlines()):
        found[line["share"]][line["number"]] = line["differences"]
    left = {
        number: tuple(share for share, times in REPEATED.items() if number < times and number not in found[share])
        for number in range(TIMES)
    }
    with record.open("a") as file:
        for number, made in repeated(str(tmp_path), {number: shares for number, shares in left.items() if shares}):
            for share, differences in made.items():
                found[share][number] = differences
                file.write(json.dumps({"share": share, "number": number, "differences": differences}) + "\n")
            file.flush()
    words = {
        share: [Paired.from_differences(some[number]).word(lower_is_better=True) for number in range(REPEATED[share])]
        for share, some in found.items()
    }
    for share, said in sorted(words.items()):
        counted = ", ".join(f"{said.count(word)} {word}" for word in ("better", "worse", "not distinguishable"))
        print(f"{share:.0%} shuffled, {len(said)} times: {counted}")
    assert len(words[0.0]) == TIMES
    assert sum(word != "not distinguishable" for word in words[0.0]) <= TIMES // 20, "no change is called one"
    assert words[0.1].count("worse") >= 0.9 * len(words[0.1]), "a tenth of wrong answers is not seen"
    assert words[0.25].count("worse") == len(words[0.25])
