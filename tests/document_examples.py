"""Runs the Python examples of a document, in the order in which they stand there."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def examples_of(document: str) -> list[str]:
    """Return the programs that stand in a document."""
    return re.findall(r"```python\n(.*?)```", (DOCS / document).read_text(), re.DOTALL)


def run_examples(document: str) -> int:
    """Run each as a program of its own; return how many there are."""
    examples = examples_of(document)
    for number, example in enumerate(examples):
        code = compile(example, f"{document}, example {number + 1}", "exec")
        exec(code, {"__name__": "__main__"})
    return len(examples)
