import pyarrow as pa

from pairmill.rowstage.histograms import Histogram, join, of_json, to_json


def of(values: list[float | None]) -> Histogram:
    histogram = Histogram()
    histogram.add(pa.array(values))
    return histogram


def test_shares_have_fifty_bins() -> None:
    shown = of([0.0, 0.01, 0.5, 1.0, None]).shown([None, 0.2])
    assert (len(shown["counts"]), shown["edges"][:2], shown["edges"][-1]) == (50, [0.0, 0.02], 1.0)
    assert [(at, count) for at, count in enumerate(shown["counts"]) if count] == [(0, 2), (25, 1), (49, 1)]
    assert shown["bounds"] == [None, 0.2]


def test_each_value_is_between_the_edges_of_its_bin() -> None:
    for value in (-300.0, -1.0, 0.0, 1.0, 3.0, 1000.0, 123456.0):
        shown = of([value, 0.0]).shown([None, None])
        at = [at for at, count in enumerate(shown["counts"]) if count]
        inside = [(shown["edges"][one], shown["edges"][one + 1]) for one in at]
        assert any(low <= value < high or low < value <= high for low, high in inside), (value, inside)


def test_histograms_of_slices_add_up_to_that_of_the_whole() -> None:
    values: list[float | None] = [0.1, 5.0, -2.0, None, 0.7, 1e9, 1e-9]
    total = {"x": of(values[:3])}
    join(total, of_json(to_json({"x": of(values[3:])})))
    assert total["x"] == of(values)
    assert total["x"].nulls == 1
