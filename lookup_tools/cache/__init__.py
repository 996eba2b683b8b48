"""Open caches: one view type, whatever the file's format."""

from lookup_tools.cache.base import FOLLOWER, Cache
from lookup_tools.cache.constmap import ConstmapCache
from lookup_tools.cache.legacy import LegacyCache
from lookup_tools.cache.opening import open_cache

__all__ = ["FOLLOWER", "Cache", "ConstmapCache", "LegacyCache", "open_cache"]
