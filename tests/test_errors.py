import pytest

from bayes_attn.errors import InvalidInput, require, require_integer, require_positive


def test_the_message_names_owner_parameter_rule_and_value() -> None:
    with pytest.raises(InvalidInput) as caught:
        require_positive("IidLogits", "scale", -1.0)
    assert str(caught.value) == "IidLogits: `scale` must be a positive finite number, got -1.0."
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", [2, 3.0, "3", True, None])
def test_integers(value: object) -> None:
    require_integer("owner", "count", 3, least=3)
    with pytest.raises(InvalidInput, match="must be an integer of at least 3"):
        require_integer("owner", "count", value, least=3)


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf"), "1", None, True])
def test_positive_numbers(value: object) -> None:
    require_positive("owner", "scale", 1)
    with pytest.raises(InvalidInput, match="must be a positive finite number"):
        require_positive("owner", "scale", value)


def test_a_kept_rule_is_silent() -> None:
    require(True, "owner", "x", "must hold", 1)
