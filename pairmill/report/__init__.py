"""Reports for people: report.html and report.md of every stage."""


def format_number(value: float) -> str:
    """Return a number with its thousands grouped, and of a fraction as many digits as people read."""
    if isinstance(value, int) or value.is_integer():
        return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.1f}"
