"""Lets clients of botocore share what they read of S3's API, a megabyte of JSON, from the import of this on.

It takes half of what a process costs that talks to S3, and a nursery's forks have it read.
"""

from functools import cache, partial

from botocore.loaders import JSONFileLoader, create_loader

_read = cache(partial(JSONFileLoader.load_file, JSONFileLoader()))
JSONFileLoader.load_file = lambda _, path: _read(path)

_loader = create_loader()
for _name in ("service-2", "endpoint-rule-set-1"):
    _loader.load_service_model("s3", _name)
for _name in ("_retry", "endpoints", "partitions", "sdk-default-configuration"):
    _loader.load_data(_name)
