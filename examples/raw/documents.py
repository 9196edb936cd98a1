"""Documents: web pages, sentences of books, code, news and abstracts, in the columns of the published sets.

Each function writes one source below a folder. Rows take turns through the cases that the source's rules distinguish.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from raw.files import card, on_the_hub, parquet
from raw.words import NAMES, PLACES, SUBSTANCES, THINGS, equation, prose, sentence

_SITES = ["harbour.example", "market.example", "station.example", "library.example"]
_LANGUAGES = {"python": ("py", "Python"), "rust": ("rs", "Rust"), "c++": ("cpp", "C++")}
_LICENCES = [["MIT"], ["Apache-2.0"], ["MIT", "BSD-3-Clause"], []]


def c4(folder: Path, rng: random.Random, scale: int) -> None:
    """Compressed lines: pages of a train split in three files, and of a validation split."""
    card(folder, "allenai/c4", {"en": {"train": "en/c4-train.*.json.gz", "validation": "en/c4-validation.*.json.gz"}})
    for split, number, count in (("train", 0, 120), ("train", 1, 120), ("train", 2, 60), ("validation", 0, 20)):
        name = f"c4-{split}.{number:05}-of-{8 if split == 'validation' else 1024:05}.json.gz"
        _packed_lines(folder / "en" / name, (_page(rng, place) for place in range(count * scale)))


def _page(rng: random.Random, place: int) -> dict[str, Any]:
    site = rng.choice(_SITES)
    text = " " if place % 40 == 0 else _advertisement(rng, site) if place % 6 == 5 else prose(rng, rng.randint(3, 30))
    day = f"2019-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:00:00Z"
    return {"text": text, "timestamp": day, "url": f"https://{site}/{place}"}


def _advertisement(rng: random.Random, site: str) -> str:
    """Return what the web has beside texts: menus, prices and links."""
    lines = ["Home | Shop | Login | Contact us", f"*** {rng.choice(THINGS).upper()} SALE !!! ***"]
    for _ in range(rng.randint(4, 12)):
        price = rng.randint(1, 999)
        lines.append(f">> {price / 100:.2f} $ <<  http://{site}/{rng.choice(THINGS)}?id={rng.randint(1000, 99999)}")
        lines += rng.sample(["Buy now and save!", "Click here for more.", "Only today.", "Sign up, it is free!"], 2)
    return "\n".join([*lines, f"(c) 2019 {site} | Terms | Privacy"])


def bookcorpus(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet of the Hub's conversion: a sentence a row, in lower case, some of them empty."""

    def sentences(count: int) -> Iterator[dict[str, Any]]:
        for place in range(count):
            words = sentence(rng).lower().replace(",", " ,").replace(".", " .")
            yield {"text": "" if place % 200 == 7 else f"{words} "}

    for number in range(2):
        count = 1500 * scale
        parquet(folder / "plain_text" / "train" / f"{number:04}.parquet", sentences(count), count, group=500 * scale)


def the_stack(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet by language: code with where it is from, its licences, and when its first star was given."""
    kinds = {"size": pa.int64(), "max_stars_repo_licenses": pa.list_(pa.string()), "max_stars_count": pa.int64()}
    for language, (extension, named) in _LANGUAGES.items():
        count = 60 * scale
        rows = (_code(rng, place, extension, named) for place in range(count))
        parquet(folder / "data" / language / "train-00000-of-00001.parquet", rows, count, kinds)


def _code(rng: random.Random, place: int, extension: str, language: str) -> dict[str, Any]:
    lines = []
    for number in range(rng.randint(2, 20)):
        question, answer = equation(rng, 1000)
        mark = "#" if extension == "py" else "//"
        lines += [f"{mark} {question}", f"x{number} = {answer}{'' if extension == 'py' else ';'}", ""]
    content = "\n".join(lines) if place % 30 else "\n"
    name = f"{rng.choice(NAMES).lower()}/{rng.choice(THINGS)}"
    starred = f"20{rng.randint(12, 21)}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T12:00:00.000Z"
    return {
        "hexsha": f"{rng.getrandbits(160):040x}",
        "size": len(content.encode()),
        "ext": extension,
        "lang": language,
        "max_stars_repo_path": f"src/{place}.{extension}",
        "max_stars_repo_name": name,
        "max_stars_repo_licenses": rng.choice(_LICENCES),
        "max_stars_count": rng.randint(1, 500) if place % 3 else None,
        "max_stars_repo_stars_event_min_datetime": starred if place % 3 else None,
        "content": content,
    }


@on_the_hub("vblagoje/cc_news", {"train": 240}, config="plain_text", folder="plain_text")
def cc_news(rng: random.Random, place: int) -> dict[str, Any]:
    """Parquet: title and text; now and then no title, and no text."""
    site = rng.choice(_SITES)
    return {
        "title": [f"{rng.choice(NAMES)} at {rng.choice(PLACES)}", "", None][max(place % 20 - 17, 0)],
        "text": " " if place % 60 == 11 else prose(rng, rng.randint(2, 15)),
        "domain": site,
        "date": f"2018-0{rng.randint(1, 9)}-2{rng.randint(0, 8)} 08:30:00" if place % 12 else "",
        "description": sentence(rng),
        "url": f"https://{site}/news/{place}",
        "image_url": f"https://{site}/{place}.jpg",
    }


def arxiv(folder: Path, rng: random.Random, scale: int) -> None:
    """Compressed lines: papers with numbers of both kinds, their texts broken into lines as they were typed."""
    card(folder, "gfissore/arxiv-abstracts-2021", {"default": {"train": "arxiv-abstracts.jsonl.gz"}})
    _packed_lines(folder / "arxiv-abstracts.jsonl.gz", (_paper(rng, place) for place in range(300 * scale)))


def _paper(rng: random.Random, place: int) -> dict[str, Any]:
    month = f"{rng.randint(7, 20):02}{rng.randint(1, 12):02}"
    archive, year = rng.choice(["math", "hep-th", "cs.CL"]), rng.choice(["94", "99", "03"])
    old = f"{archive}/{year}{rng.randint(1, 12):02}{place % 1000:03}"
    return {
        "id": f"{month}.{place % 10_000:04}" if place % 3 else old,
        "submitter": rng.choice(NAMES),
        "authors": " and ".join(rng.sample(NAMES, 2)),
        "title": f"On {rng.choice(SUBSTANCES)}\n  and the {rng.choice(THINGS)} of {rng.choice(PLACES)}",
        "comments": None,
        "journal-ref": None,
        "doi": None,
        "report-no": None,
        "categories": [" ".join(rng.sample(["math.CO", "math.NT", "cs.CL", "hep-th"], 2))],
        "versions": ["v1"],
        "abstract": "\n" if place % 100 == 51 else "  " + prose(rng, 6).replace(", ", ",\n") + "\n",
    }


def _packed_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data, 6, mtime=0))
