"""A draft source as a person names it: a kind or a chain of kinds, and parameters, all checked.

Free of the C core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lookup_tools.drafting.params import MAX_LENGTH, SOURCE_PARAMS, Param, find_param, member_kinds
from lookup_tools.errors import ParameterError

_MOD_CHANCE = 16  # llama.cpp warns of shorter matches, too


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A draft source, or a chain `a,b` of them, and its parameters.

    Parameters go by their flags' names or, where only one member has it, by the short name;
    parameters left out have llama.cpp's defaults.

    Raises:
        ParameterError: an unknown source or parameter, or a value outside its range.
    """

    spec_type: str = "ngram-cache"
    params: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, values in zip(self.kinds, self.member_values(), strict=True):
            if kind == "ngram-suffix" and values["min_match"] > values["max_match"]:
                raise ParameterError(
                    f"min_match: found {values['min_match']}, expected at most max_match, "
                    f"which is {values['max_match']}"
                )

    @property
    def kinds(self) -> list[str]:
        return member_kinds(self.spec_type)

    @property
    def member_names(self) -> list[str]:
        """The members as they were given, traces with their files."""
        return [name.strip() for name in self.spec_type.split(",")]

    def given(self) -> list[tuple[int, Param, int]]:
        """The parameters given: member, parameter, value."""
        kinds = self.kinds
        found = [(*find_param(kinds, name), value) for name, value in self.params.items()]
        return [(at, param, param.check(value)) for at, param, value in found]

    def member_values(self) -> list[dict[str, int]]:
        """All parameters in force, one dict a member, by short name."""
        values = [
            {param.name: param.default for param in SOURCE_PARAMS[kind].values()}
            for kind in self.kinds
        ]
        for at, param, value in self.given():
            values[at][param.name] = value
        return values

    def values(self) -> dict[str, int]:
        """All parameters in force, by short name; of a chain, by flag."""
        members = self.member_values()
        if len(members) == 1:
            return members[0]
        return {
            SOURCE_PARAMS[kind][name].stem: value
            for kind, values in zip(self.kinds, members, strict=True)
            for name, value in values.items()
        }

    def notes(self, draft_max: int = MAX_LENGTH) -> list[str]:
        """What is worth a warning, drafts being cut to `draft_max`."""
        if "ngram-mod" not in self.kinds:
            return []
        values, notes = self.member_values()[self.kinds.index("ngram-mod")], []
        if values["n_match"] < _MOD_CHANCE:
            notes.append(
                f"ngram-mod with n_match {values['n_match']}: below {_MOD_CHANCE} its pool often "
                "holds the follower of another n-gram, drafts by chance"
            )
        if 4 * draft_max < values["n_max"]:
            notes.append(
                f"ngram-mod drafts up to {values['n_max']} tokens and is cut to {draft_max}: even "
                "a whole draft counts as a low round then, and five in a row empty its pool; "
                f"replay with --draft-max {values['n_max']}, as llama-server does"
            )
        return notes
