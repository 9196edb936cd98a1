"""Reports for people: report.html and report.md of every stage."""
