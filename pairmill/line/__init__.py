"""The line: which stage feeds which, and what runs it on this machine. Nothing here needs kfp."""
