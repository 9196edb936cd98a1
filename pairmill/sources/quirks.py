"""The defects of the reference, by name.

``profile=data_io`` writes the reference's files byte for byte, so it reproduces all of them. The default profile
reproduces none. Each name is in one line of docs/differences.md, and a test holds the two together.
"""

from dataclasses import dataclass, fields

from pairmill.engine.options import Profile


@dataclass(frozen=True, kw_only=True)
class Quirks:
    """Which defects of the reference are reproduced."""

    # Rules that hold for every source.
    refuse_any_malformed: bool = False
    accept_no_record: bool = False
    write_nulls: bool = False
    write_empty_texts: bool = False
    all_splits: bool = False
    overwrite_outputs: bool = False
    null_type_columns: bool = False
    # One or a few sources.
    keep_unclosed_thoughts: bool = False
    keep_space_after_thoughts: bool = False
    hints_by_character: bool = False
    problem_mark_at_start_only: bool = False
    ambiguous_labels: bool = False
    null_as_text: bool = False
    pair_empty_lines: bool = False
    box_of_next_braces: bool = False
    proof_within_words: bool = False
    proof_spelled_exactly: bool = False
    negative_choices: bool = False
    letters_beyond_choices: bool = False
    omit_unit: bool = False
    write_empty_answers: bool = False
    omit_hint: bool = False
    empty_conditions: bool = False
    strip_every_full_stop: bool = False
    rows_lost_by_pandas: bool = False


QUIRKS: dict[Profile, Quirks] = {
    "pairmill": Quirks(),
    "data_io": Quirks(**{field.name: True for field in fields(Quirks)}),
}
"""What each profile reproduces."""
