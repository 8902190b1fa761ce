"""Tables of README and docs are those of docs/results: nobody has edited one without the other."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import documents
import grid_documents
import pairs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copied(tmp_path, monkeypatch) -> Path:
    """The documents elsewhere, to be written anew."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("pictures"))
    shutil.copyfile(ROOT / "README.md", tmp_path / "README.md")
    for module in (documents, grid_documents):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("write", "document"),
    [
        (grid_documents.write_headline, "README.md"),
        (grid_documents.write_elsewhere, "README.md"),
        (grid_documents.write_unseen, "README.md"),
        (grid_documents.write_ends, "docs/RESULTS.md"),
        (grid_documents.write_looks, "docs/RESULTS.md"),
        (grid_documents.write_ablations, "docs/METHOD.md"),
        (pairs.write_pairs, "docs/DEVELOPMENT.md"),
    ],
)
def test_a_table_written_anew_is_the_one_that_stands_there(copied, write, document):
    write()
    assert (copied / document).read_text(encoding="utf-8") == (ROOT / document).read_text(encoding="utf-8")


def test_the_guard_sees_a_number_that_was_edited(copied):
    path = copied / "README.md"
    told = documents.read_section("README.md", "headline")
    path.write_text(path.read_text(encoding="utf-8").replace(told, told + "\n| made up |"), encoding="utf-8")
    assert documents.read_section("README.md", "headline") != told
    grid_documents.write_headline()
    assert documents.read_section("README.md", "headline") == told
