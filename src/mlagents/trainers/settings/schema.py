"""JSON schema of configuration files, for editors.

It accepts the same files as the loader: numbers and booleans as text, short forms of parameters,
and required keys that only `default_settings` contains. It excludes old spellings, so editors mark
them as errors. It contains no rules that relate several keys.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from mlagents.trainers.settings.behavior import (
    REWARD_SIGNALS,
    BehavioralCloningSettings,
    BehaviorSettings,
    GailSettings,
)
from mlagents.trainers.settings.hyperparameters import hyperparameter_models
from mlagents.trainers.settings.parameters import SAMPLERS, EnvironmentParameter, Lesson, Sampler
from mlagents.trainers.settings.run_options import RunOptions

NUMBER_TEXT = {
    "type": "string",
    "pattern": r"^\s*[-+]?([0-9_]+\.?[0-9_]*|\.[0-9_]+)([eE][-+]?[0-9]+)?\s*$",
}
TRUTH_TEXT = {
    "enum": [
        *(0, 1),
        *(
            spelled
            for word in ("true", "false", "yes", "no", "on", "off", "t", "f", "y", "n", "0", "1")
            for spelled in dict.fromkeys([word, word.title(), word.upper()])
        ),
    ]
}


class _Generator(GenerateJsonSchema):
    """Generates a schema that includes the spellings accepted by the models beyond plain types."""

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"anyOf": [super().int_schema(schema), NUMBER_TEXT]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), NUMBER_TEXT]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return {"anyOf": [super().bool_schema(schema), TRUTH_TEXT]}

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        return {**super().str_schema(schema), "type": ["string", "number"]}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # the title would repeat the key


def configuration_schema() -> dict[str, Any]:
    """Return the schema, with the trainer types of the current context."""
    tables: list[Mapping[str, type[BaseModel]]] = [
        hyperparameter_models(),
        REWARD_SIGNALS,
        SAMPLERS,
    ]
    models: list[type[BaseModel]] = [
        RunOptions,
        *(model for table in tables for model in table.values()),
    ]
    references, schema = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], schema_generator=_Generator
    )
    definitions = schema["$defs"]
    of_model = {model: reference for (model, _), reference in references.items()}

    def by_name(table: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
        return {name: of_model[model] for name, model in table.items()}

    behavior = definitions[BehaviorSettings.__name__]
    behavior["properties"]["trainer_type"]["enum"] = list(hyperparameter_models())
    _follow(behavior, "hyperparameters", by_name(hyperparameter_models()), chosen_by="trainer_type")
    signals = behavior["properties"]["reward_signals"]
    signals |= {"properties": by_name(REWARD_SIGNALS), "additionalProperties": False}
    for model in (GailSettings, BehavioralCloningSettings):
        del definitions[model.__name__]["required"]  # default_settings may contain it

    sampler = definitions[Sampler.__name__]
    _follow(sampler, "sampler_parameters", by_name(SAMPLERS), chosen_by="sampler_type")
    number = {"anyOf": [{"type": "number"}, NUMBER_TEXT]}
    of_sampler = {"$ref": f"#/$defs/{Sampler.__name__}"}
    of_curriculum = {"$ref": f"#/$defs/{EnvironmentParameter.__name__}"}
    value = definitions[Lesson.__name__]["properties"]["value"]
    del value["$ref"]
    value["anyOf"] = [number, of_sampler]
    top = definitions.pop(RunOptions.__name__)
    parameters = top["properties"]["environment_parameters"]["anyOf"][0]
    parameters["additionalProperties"] = {"anyOf": [number, of_sampler, of_curriculum]}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "Configuration of mlagents-learn",
        **{key: rule for key, rule in top.items() if key != "title"},
        "$defs": definitions,
    }


def _follow(
    model: dict[str, Any], key: str, models: Mapping[str, dict[str, Any]], *, chosen_by: str
) -> None:
    """Make the rules of `key` depend on the value of `chosen_by`, if it is given."""
    rules = model["properties"][key]
    del rules["$ref"]
    rules["anyOf"] = list(models.values())
    model["allOf"] = [
        {
            "if": {"properties": {chosen_by: {"const": name}}, "required": [chosen_by]},
            "then": {"properties": {key: reference}},
        }
        for name, reference in models.items()
    ]
