"""fetch: the published files of data sets, at locked revisions."""
