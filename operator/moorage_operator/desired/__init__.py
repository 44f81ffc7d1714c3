"""From the spec to the objects, pure: same input, same YAML, whatever the operator's version.

Every function returns plain dicts as the API server takes them for server-side apply, the full intent of the
operator and nothing else. ``children`` is the whole; the other modules hold one concern each.
"""

from moorage_operator.desired.whole import children

__all__ = ["children"]
