"""What a finished stage promises: the data of its manifest, as one dataclass a stage.

``finish`` returns ``to_data`` of one; reports and later stages read it with ``from_manifest``. Values are JSON-like.
Fields without a default make a result of a stage; the manifest of an older version may lack the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Rows: TypeAlias = Sequence[Mapping[str, Any]]
ByName: TypeAlias = Mapping[str, Any]
