"""Sources that a YAML file describes: its keys, and the paths, templates and conditions in them."""
