import pytest

from jcas.data.new_folder import new_folder


def test_new_folder_is_there_whole_or_not_at_all(tmp_path):
    out = tmp_path / "deep" / "out"
    with new_folder(out) as building:
        (building / "a.txt").write_text("a")
        assert not out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["out"] and (out / "a.txt").read_text() == "a"
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(KeyboardInterrupt), new_folder(empty) as building:
        (building / "a.txt").write_text("a")
        raise KeyboardInterrupt
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "empty"] and not any(empty.iterdir())
    with new_folder(empty) as building:
        (building / "b.txt").write_text("b")
    assert (empty / "b.txt").read_text() == "b"


def test_new_folder_spares_what_lies_in_its_place(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("mine")
    for name in ("file", "full"):
        place = new_folder(tmp_path / name)
        with pytest.raises(ValueError, match=f"{name}: exists and is not an empty folder"), place:
            pytest.fail("must not be entered")
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "a.txt").read_text() == "mine"
