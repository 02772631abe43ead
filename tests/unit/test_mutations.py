"""The list of `make mutate`, which takes half an hour: its texts and tests must be there when it runs."""

from __future__ import annotations

import pytest

from mutate import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("file", sorted({mutation.file for mutation in MUTATIONS}))
def test_each_text_stands_in_its_file_once(file: str) -> None:
    source = (ROOT / "stanadapt" / file).read_text(encoding="utf-8")
    texts = [mutation.text for mutation in MUTATIONS if mutation.file == file]
    assert [text for text in texts if source.count(text) != 1] == []


def test_each_test_is_there() -> None:
    def is_there(test: str) -> bool:
        file, name = test.split("::")
        return f"def {name.partition('[')[0]}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")

    def missing(mutation: Mutation) -> list[str]:
        return [test for test in mutation.tests if not is_there(test)]

    assert [test for mutation in MUTATIONS for test in missing(mutation)] == []
