"""How this package refuses bad input: one exception and one sentence.

Every refusal says who refuses, which parameter, the rule and the value that broke it, and it happens on the host
before anything is traced.
"""

from typing import Any


class InvalidInput(ValueError):
    """An argument broke a stated rule. The message is one line that names the parameter, the rule and the value."""


def require(condition: bool, owner: str, parameter: str, rule: str, value: Any) -> None:
    """Raise `InvalidInput` unless `condition` holds.

    The message reads "IidLogits: `standard_deviation` must be positive, got -1.0."
    """
    if not condition:
        raise InvalidInput(f"{owner}: `{parameter}` {rule}, got {value!r}.")


def require_integer(owner: str, parameter: str, value: Any, least: int) -> None:
    """Refuse anything but an integer of at least `least`."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    require(is_integer and value >= least, owner, parameter, f"must be an integer of at least {least}", value)


def require_positive(owner: str, parameter: str, value: Any) -> None:
    """Refuse anything but a finite number above zero."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    require(is_number and 0 < value < float("inf"), owner, parameter, "must be a positive finite number", value)
