"""Base of all settings models: immutable, strict about keys, with readable error messages.

A settings model reports every invalid key as one problem. Each problem has a location, which is the
path of the key within the model, and a message with the allowed and the given value.
"""

import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from mlagents_envs.suggestions import did_you_mean

T = TypeVar("T")
Key = str | int


def quoted(value: object) -> str:
    """Return a value in YAML notation, shortened if it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return reprlib.repr(value)


def one_of(allowed: Collection[str]) -> str:
    """Return the allowed names as a phrase: `'a', 'b' or 'c'`."""
    *first, last = map(repr, allowed)
    return f"{', '.join(first)} or {last}" if first else last


def problem(*path: Key, says: str, value: object = None) -> InitErrorDetails:
    """Return a description of one invalid setting.

    Args:
        path: Path of the key within the model; empty for the model as a whole.
        says: Message with the error and the allowed values.
        value: Given value.
    """
    # The text of a custom error is a template. Without a context, it is used unchanged.
    return {"type": PydanticCustomError("setting", says), "loc": path, "input": value}


def refuse(problems: list[InitErrorDetails]) -> None:
    """Raise a `ValidationError` with `problems`, unless the list is empty."""
    if problems:
        raise ValidationError.from_exception_data("settings", problems)


def located(error: ValidationError, *path: Key) -> list[InitErrorDetails]:
    """Return the problems of `error`, with `path` prepended to their locations."""
    return [
        problem(*path, *found["loc"], says=found["msg"], value=found["input"])
        for found in error.errors(include_url=False)
    ]


def read_each(written: Mapping[Any, Any], read: Callable[[str, Any], T]) -> dict[str, T]:
    """Read all values of a mapping with string keys; report the problems of all values together."""
    values: dict[str, T] = {}
    problems: list[InitErrorDetails] = []
    for key, value in written.items():
        name = str(key)
        try:
            values[name] = read(name, value)
        except ValidationError as error:
            problems += located(error, name)
    refuse(problems)
    return values


class Settings(BaseModel):
    """Base of all settings. A number is accepted for a text setting, as in `run_id: 7`."""

    model_config = {
        "frozen": True,
        "extra": "forbid",
        "use_attribute_docstrings": True,
        "coerce_numbers_to_str": True,
        "allow_inf_nan": False,
    }

    @model_validator(mode="wrap")
    @classmethod
    def _say_what_is_allowed(cls, written: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Replace pydantic's messages. Only the model knows the allowed keys."""
        try:
            return validate(written)
        except ValidationError as error:
            problems = [
                problem(*found["loc"], says=cls._message(found), value=found["input"])
                for found in error.errors(include_url=False)
                # This error follows from another one: a default that depends on a refused value.
                if found["type"] != "default_factory_not_called"
            ]
            raise ValidationError.from_exception_data(cls.__name__, problems) from None

    @classmethod
    def _message(cls, found: ErrorDetails) -> str:
        value = found["input"]
        match found["type"]:
            case "setting":
                return found["msg"]
            case "extra_forbidden" | "invalid_key":
                keys = list(cls.model_fields)
                hint = did_you_mean(found["loc"][-1], keys)
                return f"unknown key{hint or '.'} Allowed: {', '.join(keys)}"
            case "missing":
                return "is required"
            case "model_type" | "dict_type":
                hint = "; write {} for the defaults, or remove the key" if value is None else ""
                return f"must be a mapping of keys to values, got {quoted(value)}{hint}"
            case "literal_error":
                expected: str = found["ctx"]["expected"]
                hint = did_you_mean(value, re.findall("'(.*?)'", expected))
                return f"must be {expected}, got {quoted(value)}{hint}"
            case "value_error":
                return f"{found['ctx']['error']}, got {quoted(value)}"
            case "string_type" if isinstance(value, bool):
                return (
                    f"must be text, got {quoted(value)}, which YAML also reads from yes, no, on "
                    "and off; put it in quotes"
                )
            case kind if kind in _MUST_BE:
                return f"{_MUST_BE[kind]}, got {quoted(value)}"
            case _:
                rule = found["msg"].replace("Input should be", "must be")
                return f"{rule[0].lower()}{rule[1:]}, got {quoted(value)}"


_MUST_BE = {
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
}
"""Messages in plain words for pydantic's errors, by error type."""


def _whole_number(value: Any) -> Any:
    """Convert common spellings of whole numbers, including `5.0e5` and `1e4` (text in YAML)."""
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    if not isinstance(value, str | float):
        return value
    try:
        return int(value) if isinstance(value, str) else _exact(value)
    except ValueError:
        pass
    try:
        return _exact(float(value))
    except (ValueError, OverflowError):
        raise ValueError("must be a whole number") from None


def _exact(value: float) -> int:
    if not value.is_integer():
        raise ValueError("not a whole number")
    return int(value)


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Int = Annotated[int, BeforeValidator(_whole_number)]
"""A whole number in any common spelling. Booleans are refused."""

Float = Annotated[float, BeforeValidator(_no_truth_value)]
"""A number, or text such as `3e-4`, which YAML 1.1 does not read as a number. Booleans are
refused."""


def list_of(items: str, *, or_null: bool = False) -> BeforeValidator:
    """Return a validator that accepts only lists, with an error message that names the `items`."""

    def check(value: Any) -> Any:
        if isinstance(value, list | tuple) or (or_null and value is None):
            return value
        raise ValueError(f"must be a list of {items}")

    return BeforeValidator(check)


def _sendable(value: float) -> float:
    if abs(value) > LARGEST_FLOAT32:
        raise ValueError(f"must be at most {LARGEST_FLOAT32:.2g} in magnitude, the 32-bit limit")
    return value


LARGEST_INT32 = 2**31 - 1
LARGEST_FLOAT32 = (2.0 - 2.0**-23) * 2.0**127

Float32 = Annotated[Float, AfterValidator(_sendable)]
"""A number that is sent to simulations."""
