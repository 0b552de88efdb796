"""Strict reading of configuration files: YAML or JSON of limited size, without repeated keys."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import Change
from mlagents_envs.logging_util import get_logger
from mlagents_envs.suggestions import did_you_mean

logger = get_logger(__name__)

Written = dict[str, Any]
"""Settings as written in the file, nested and unchecked."""

_PYTHON_OBJECT = "tag:yaml.org,2002:python/"

_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "null")}
"""Allowed types of keys, besides text."""


class _Strict(yaml.constructor.SafeConstructor):
    """YAML constructor that refuses repeated keys."""

    # Dates stay text: no setting is a date, but a run may be named `run_id: 2030-01-31`.
    yaml_implicit_resolvers = {  # noqa: RUF012  (the base class declares it so)
        first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)  # type: ignore[call-arg]  # accepted by the loader base class
        self._checked: set[yaml.MappingNode] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # Called before the node becomes a mapping, and again after merge keys were resolved.
        if node not in self._checked:
            self._checked.add(node)
            self._check_keys(node)
        super().flatten_mapping(node)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        names = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                kind = "mapping" if isinstance(key, yaml.MappingNode) else "list"
                says = (
                    f"a key must be text, got a {kind}. Quote it, or fill in the placeholder if it "
                    "is a template such as {{ name }}"
                )
                raise yaml.MarkedYAMLError(problem=says, problem_mark=key.start_mark)
            name = self._name(key)
            if name in names:
                self._repeated(name, key.start_mark)
            names.add(name)

    def _repeated(self, name: str, mark: yaml.Mark) -> None:
        raise yaml.MarkedYAMLError(
            problem=f"the key {name!r} appears a second time", problem_mark=mark
        )

    def _name(self, key: yaml.ScalarNode) -> str:
        """Return a key as text after reading: 16 and 0x10 are the same, as are true and "True"."""
        if key.tag in _PLAIN_TAGS:
            return str(self.construct_object(key))
        return str(key.value)


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _SafeLoader = yaml.SafeLoader
else:
    _SafeLoader = yaml.CSafeLoader  # libyaml, ten times as fast


class _Loader(_Strict, _SafeLoader):
    """Safe and strict YAML."""


class _LastKeyLoader(_Loader):
    """Safe YAML in which the last of several equal keys counts, with a warning."""

    def _repeated(self, name: str, mark: yaml.Mark) -> None:
        logger.warning(
            "Line %d: the key %r appears again; the last one counts.", mark.line + 1, name
        )


_MOST_BYTES = 2**20
_MOST_VALUES = 50_000
_MOST_LEVELS = 100
"""Limits far above the size of any configuration. Larger files could exhaust the memory."""


def _check_extent(text: str) -> None:
    """Raise if a YAML text has too many values, counting aliases in full, or too deep nesting."""
    sizes: dict[str, int] = {}
    unfinished: list[tuple[str | None, int]] = []
    n_values = 0
    for event in yaml.parse(text, Loader=_Loader):
        says = ""
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in unfinished):
                says = f"the alias *{event.anchor} refers to itself"
            n_values += sizes.get(str(event.anchor), 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = unfinished.pop()
            if anchor is not None:
                sizes[anchor] = n_values - before
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.CollectionStartEvent):
                unfinished.append((event.anchor, n_values))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
            n_values += 1
        if n_values > _MOST_VALUES:
            says = f"there are more than {_MOST_VALUES} keys and values, aliases counted in full"
        if len(unfinished) > _MOST_LEVELS:
            says = f"is nested too deeply: more than {_MOST_LEVELS} levels"
        if says:
            mark: Any = event.start_mark  # libyaml has its own type for it
            raise yaml.MarkedYAMLError(problem=says, problem_mark=mark)


def read_change(text: str) -> Change:
    """Return the setting in a text such as `torch_settings.threads=2`. The value is read as YAML.

    Raises:
        ValueError: The text does not have this form, or the value is not YAML.
    """
    path, is_there, value = text.partition("=")
    path = path.strip()
    if not is_there or not path or "" in path.split("."):
        raise ValueError(
            f"expected KEY=VALUE, such as behaviors.3DBall.max_steps=100000, got {text!r:.200}"
        )
    if not value.strip():
        raise ValueError(f"{path} has no value; write null or '' if intended, got {text!r:.200}")
    try:
        _check_extent(value)
        return Change(path, yaml.load(value, Loader=_Loader), text)
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"{path}: {error.problem or error.context}, got {value!r:.200}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path}: is not YAML: {error}, got {value!r:.200}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> Written:
    """Return a JSON object as a mapping, as strictly as `_Loader` reads YAML."""
    for name in _repeated_names(pairs):
        raise ValueError(f"the key {name!r} appears a second time")
    return dict(pairs)


def _with_last_keys(pairs: list[tuple[str, Any]]) -> Written:
    """Return a JSON object as a mapping, as `_LastKeyLoader` reads YAML."""
    for name in _repeated_names(pairs):
        logger.warning("The key %r appears again; the last one counts.", name)
    return dict(pairs)


def _repeated_names(pairs: list[tuple[str, Any]]) -> list[str]:
    counts = Counter(name for name, _ in pairs)
    return [name for name, count in counts.items() if count > 1]


def read_configuration(file: Path, *, last_key_counts: bool = False) -> Written:
    """Return the content of a YAML file, or of a JSON file if its name ends in `.json`.

    Args:
        file: File to read.
        last_key_counts: Whether the last of several equal keys counts, with a warning, as before
            ML-Agents 0.18. Otherwise, repeated keys are an error.

    Raises:
        TrainerConfigError: The file cannot be read, or does not contain a mapping in UTF-8.
    """
    is_json = file.suffix == ".json"  # JSON indented with tabs is not valid YAML
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise TrainerConfigError(f"{file}: is larger than {_MOST_BYTES} bytes")
        text = content.decode("utf-8-sig")
        if is_json:
            hook = _with_last_keys if last_key_counts else _without_repeats
            written = json.loads(text, object_pairs_hook=hook)
        else:
            _check_extent(text)
            written = yaml.load(text, Loader=_LastKeyLoader if last_key_counts else _Loader)
    except OSError as error:
        siblings = [path.name for path in file.parent.glob("*.y*ml")]
        hint = did_you_mean(file.name, siblings)
        raise TrainerConfigError(f"{file}: cannot be read: {error.strerror}{hint}") from error
    except UnicodeDecodeError as error:
        raise TrainerConfigError(f"{file}: is not UTF-8 text (byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        says = error.problem or error.context or ""
        if _PYTHON_OBJECT in says:
            says = (
                "contains a Python object (!!python/...), as old releases of ML-Agents wrote into "
                "their results (configuration.yaml). Reading such an object could run any program, "
                "so it is refused. Use the file that the run was started with, or replace the "
                "objects with plain values."
            )
        raise TrainerConfigError(f"{file}:{line} {says}") from error
    except (yaml.YAMLError, ValueError) as error:
        kind = "JSON" if is_json else "YAML"
        raise TrainerConfigError(f"{file}: is not {kind}: {error}") from error
    except RecursionError as error:
        raise TrainerConfigError(f"{file}: is nested too deeply") from error
    if written is None:
        raise TrainerConfigError(f"{file}: is empty; it needs at least `behaviors:`")
    if not isinstance(written, dict):
        allowed = ", ".join(RunOptions.model_fields)
        raise TrainerConfigError(
            f"{file}: must be a mapping with some of the keys {allowed}, got {written!r:.80}"
        )
    return written
