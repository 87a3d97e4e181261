"""Files of vocabularies, and the messages of refused ones."""

import gzip
from pathlib import Path

import pytest

from longtail.models.errors import DataError
from longtail.models.vocabulary.reading import read_vocabulary


def written(folder: Path, content: str | bytes, name: str = "v.ttl") -> Path:
    path = folder / name
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_vocabulary(path)
    return str(caught.value)
