"""Word lists, and texts made of them. The same generator gives the same texts."""

from __future__ import annotations

import math
import random

# fmt: off
NAMES = [
    "Ada", "Bo", "Chidi", "Dana", "Emre", "Farah", "Goran", "Hana", "Ines", "Jonas", "Kofi", "Lena", "Mateo",
    "Nadia", "Oskar", "Priya", "Quinn", "Rosa", "Sven", "Tao",
]
THINGS = [
    "apples", "bolts", "candles", "daisies", "envelopes", "feathers", "gears", "hats", "jars", "kites", "lamps",
    "marbles", "needles", "oranges",
]
PLACES = [
    "the harbour", "a village fair", "the workshop", "the old library", "a night market", "the station",
    "her uncle's farm",
]
SUBSTANCES = [
    "argon", "benzene", "copper", "ethanol", "graphite", "helium", "methane", "neon", "nitrogen", "sodium",
    "sulfur", "water",
]
# fmt: on
_SENTENCES = [
    "{who} counts {number} {thing} at {place}, and the count can only grow.",
    "At {number} K a sample of {substance} expands, so its density falls.",
    "Wait, {who} said {number}; that is the number of {thing} before anything was sold.",
    "If every box holds {number} {thing}, then $\\frac{{{number}}}{{2}}$ of them fill half a box.",
    "The heat that {substance} takes up depends on its mass, not on {place}.",
    "Suppose instead that {place} sells {thing} at {number} cents a dozen.",
    "Let me check this once more with {number} in place of the unknown.",
]
_RARE_SENTENCES = [
    "{who} writes: “no more than {number} {thing} a day”.",
    "Both paths → {place} are equally long, about {number} m.",
    "The naïve estimate for {substance} is off by a factor of {number}.",
]
_RARE = 0.03
"""So that about half of the long texts hold a character that is not Latin."""


def sentence(rng: random.Random) -> str:
    """Return one made-up sentence."""
    return rng.choice(_RARE_SENTENCES if rng.random() < _RARE else _SENTENCES).format(
        who=rng.choice(NAMES),
        thing=rng.choice(THINGS),
        place=rng.choice(PLACES),
        substance=rng.choice(SUBSTANCES),
        number=rng.randint(2, 999),
    )


def prose(rng: random.Random, sentences: int) -> str:
    """Return this many sentences, in paragraphs of five."""
    result = [sentence(rng) for _ in range(sentences)]
    return "\n\n".join(" ".join(result[start : start + 5]) for start in range(0, sentences, 5))


def problem(rng: random.Random) -> tuple[str, str, str]:
    """Return a mathematical problem: question, worked solution, answer."""
    if rng.random() < 0.5:
        question, text = word_problem(rng)
        worked, _, answer = text.partition("\n#### ")
        return question, worked, answer
    question, answer = rng.choice((equation, divisor, sum_problem))(rng, 10**6)
    return question, f"{sentence(rng)}\nStep by step this comes to {answer}.", answer


def word_problem(rng: random.Random) -> tuple[str, str]:
    """Return a question, and an answer that ends in ``#### <number>``."""
    who, other = rng.sample(NAMES, 2)
    thing, place = rng.choice(THINGS), rng.choice(PLACES)
    start, more, share = rng.randint(5, 90), rng.randint(2, 40), rng.randint(2, 9)
    total = start + more
    given = total // share
    question = (
        f"{who} brings {start} {thing} to {place} and finds {more} more. Then {who} gives one {thing[:-1]} out of "
        f"every {share} to {other}. How many {thing} are left?"
    )
    answer = (
        f"{who} has {start}+{more}=<<{start}+{more}={total}>>{total} {thing}.\n"
        f"{other} gets {total}//{share}=<<{total}//{share}={given}>>{given} of them.\n"
        f"So {total}-{given}=<<{total}-{given}={total - given}>>{total - given} {thing} are left.\n#### {total - given}"
    )
    return question, answer


def sum_problem(rng: random.Random, most: int) -> tuple[str, str]:
    """Return a sum of two numbers up to ``most``."""
    left, right = rng.randint(-most, most), rng.randint(0, most)
    return f"What is {left} + {right}?", str(left + right)


def equation(rng: random.Random, most: int) -> tuple[str, str]:
    """Return a linear equation."""
    factor, root, shift = rng.randint(2, 99), rng.randint(-most, most), rng.randint(0, most)
    name = rng.choice("abcdknrtwxyz")
    return f"Solve {factor}*{name} + {shift} = {factor * root + shift} for {name}.", str(root)


def divisor(rng: random.Random, most: int) -> tuple[str, str]:
    """Return the greatest common divisor of two numbers."""
    common = rng.randint(1, 99)
    left, right = common * rng.randint(1, most), common * rng.randint(1, most)
    return f"Calculate the greatest common divisor of {left} and {right}.", str(math.gcd(left, right))


def choices(rng: random.Random, count: int) -> list[str]:
    """Short answers to choose from."""
    return [f"{rng.randint(2, 99)} {thing} at {rng.choice(PLACES)}" for thing in rng.sample(THINGS, count)]
