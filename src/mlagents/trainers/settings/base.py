"""What all settings share: frozen, strict about keys, and clear about what is wrong.

A model of settings refuses a value with one problem per key. Each problem has a location, the key's
path from the model down, and a message that says what is allowed and what came.
"""

import difflib
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

T = TypeVar("T")
Key = str | int


def did_you_mean(name: object, allowed: Collection[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest of `allowed`, or nothing when none is near.

    Capital letters count as small ones.
    """
    spelled = {other.casefold(): other for other in allowed}
    nearest = difflib.get_close_matches(str(name).casefold(), spelled, n=1)
    return f"; did you mean {spelled[nearest[0]]!r}?" if nearest else ""


def quoted(value: object) -> str:
    """Return what came as it is written in a file, cut short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return reprlib.repr(value)


def one_of(allowed: Collection[str]) -> str:
    """Return the allowed names as a phrase: `'a', 'b' or 'c'`."""
    *first, last = map(repr, allowed)
    return f"{', '.join(first)} or {last}" if first else last


def problem(*path: Key, says: str, value: object = None) -> InitErrorDetails:
    """Describe one thing that is wrong.

    Args:
        path: The key it is about, from the model down; empty for the model as a whole.
        says: What is wrong and what is allowed.
        value: What came.
    """
    # A custom error's text is a template; without a context nothing in it is filled in.
    return {"type": PydanticCustomError("setting", says), "loc": path, "input": value}


def refuse(problems: list[InitErrorDetails]) -> None:
    """Raise a `ValidationError` that holds `problems`, if there are any."""
    if problems:
        raise ValidationError.from_exception_data("settings", problems)


def located(error: ValidationError, *path: Key) -> list[InitErrorDetails]:
    """Return the problems of `error`, found in what stands at `path`."""
    return [
        problem(*path, *found["loc"], says=found["msg"], value=found["input"])
        for found in error.errors(include_url=False)
    ]


def read_each(written: Mapping[Any, Any], read: Callable[[str, Any], T]) -> dict[str, T]:
    """Read the values of a mapping whose keys are names, and report the problems of all."""
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
    """Base of all settings. Numbers may be written where text is wanted, as for `run_id: 7`."""

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
        """Put every problem into the words of this module; only here the allowed keys are known."""
        try:
            return validate(written)
        except ValidationError as error:
            problems = [
                problem(*found["loc"], says=cls._message(found), value=found["input"])
                for found in error.errors(include_url=False)
                # Follows from another problem: a default that is taken from a refused value.
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
"""Rules of pydantic in words for those who do not program, by the type of the error."""


def _whole_number(value: Any) -> Any:
    """Accept what people write for a whole number, `5.0e5` and `1e4` (text in YAML) included."""
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
"""A whole number, however it is written; never a truth value."""

Float = Annotated[float, BeforeValidator(_no_truth_value)]
"""A number, also as text like `3e-4`, which YAML 1.1 does not take for one; never a truth value."""


def list_of(items: str, *, or_null: bool = False) -> BeforeValidator:
    """Return what refuses anything but a list, and says what its `items` are."""

    def check(value: Any) -> Any:
        if isinstance(value, list | tuple) or (or_null and value is None):
            return value
        raise ValueError(f"must be a list of {items}")

    return BeforeValidator(check)


def _sendable(value: float) -> float:
    if abs(value) > LARGEST_FLOAT32:
        raise ValueError(f"must be at most {LARGEST_FLOAT32:.2g} in size, the largest of 32 bits")
    return value


LARGEST_INT32 = 2**31 - 1
LARGEST_FLOAT32 = (2.0 - 2.0**-23) * 2.0**127

Float32 = Annotated[Float, AfterValidator(_sendable)]
"""A number that is sent to simulations."""
