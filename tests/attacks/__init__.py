"""Hostile files: one builder for each rule of docs/format.md.

A builder yields variants, each a whole file that is good but for the one rule it breaks; checksums
are recomputed, so that no other rule catches it first. `RULES` maps a rule's name to its builder.
"""

from attacks import annexes, constmaps, gguf, legacy, sidecars, tokens
from attacks.rules import RULES, Variant

__all__ = ["RULES", "Variant", "annexes", "constmaps", "gguf", "legacy", "sidecars", "tokens"]
