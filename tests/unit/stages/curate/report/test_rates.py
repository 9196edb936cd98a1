"""Removal rates for Kubeflow: shares of all rows, with names that do not follow the settings."""

from pairmill.stages.curate.report.rates import removal_rates, removed_by_reason


def test_rates_are_shares_of_the_rows_of_all_sources() -> None:
    sources = {
        "a": {"rows": 60, "kept": 40, "dropped": {"dup_near": 10, "heuristic:x": 5, "heuristic:y": 5}},
        "b": {"rows": 40, "kept": 35, "dropped": {"dup_near": 4, "held_out": 1}},
    }
    assert removal_rates(sources) == {"dup_near_fraction": 0.14, "held_out_fraction": 0.01, "heuristic_fraction": 0.1}
    assert list(removed_by_reason(sources).items()) == [
        ("dup_near", 14),
        ("heuristic:x", 5),
        ("heuristic:y", 5),
        ("held_out", 1),
    ]


def test_nothing_removed_or_no_row_gives_no_rate() -> None:
    assert removal_rates({}) == {}
    assert removal_rates({"a": {"rows": 0, "kept": 0, "dropped": {}}}) == {}
