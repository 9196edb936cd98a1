"""``pairmill publish``: a finished result on the Hub or in a bucket, with a card of what is in it (docs/publish.md)."""
