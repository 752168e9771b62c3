"""Datasets from local files: every layout people have is read the same way, and a missing file is named."""

from __future__ import annotations

import csv
import gzip
import pickle

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.training import load_dataset
from calipers.training.text_files import CLS, PAD, UNK, numbered

RNG = np.random.default_rng(7)
IMAGES = RNG.integers(256, size=(30, 28, 28), dtype=np.uint8)
LABELS = RNG.integers(10, size=30).astype(np.uint8)
COLORS = RNG.integers(256, size=(50, 32, 32, 3), dtype=np.uint8)
COLOR_LABELS = np.arange(50) % 10
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_idx(folder, packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX_NAMES, (IMAGES[:20], LABELS[:20], IMAGES[20:], LABELS[20:]), strict=True):
        content = idx(array)
        (folder / (name + (".gz" if packed else ""))).write_bytes(gzip.compress(content) if packed else content)


def same_digits(data) -> None:
    assert data.records.shape == (20, 1, 28, 28)
    assert np.array_equal(data.records[:, 0], IMAGES[:20])
    assert np.array_equal(data.test_records[:, 0], IMAGES[20:])
    assert np.array_equal(data.labels, LABELS[:20])
    assert np.array_equal(data.test_labels, LABELS[20:])
    assert data.labels.dtype == np.int64


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("name", "place"),
    [("mnist", ""), ("mnist", "MNIST/raw"), ("fashion-mnist", ""), ("fashion-mnist", "FashionMNIST/raw")],
)
def test_idx_files_are_read_from_the_folder_and_from_torchvisions_cache(tmp_path, name, place, packed) -> None:
    write_idx(tmp_path / place, packed)
    same_digits(load_dataset(name, tmp_path))


def test_an_archive_is_read_by_name_and_by_path(tmp_path) -> None:
    arrays = {"x_train": IMAGES[:20], "y_train": LABELS[:20], "x_test": IMAGES[20:], "y_test": LABELS[20:]}
    np.savez(tmp_path / "mnist.npz", **arrays)
    same_digits(load_dataset("mnist", tmp_path))
    np.savez(tmp_path / "mine.npz", **arrays)
    same_digits(load_dataset("mine.npz", tmp_path))
    same_digits(load_dataset(str(tmp_path / "mine.npz")))


def test_all_parts_of_cifar10_are_read_in_order(tmp_path) -> None:
    """Part 10 comes after part 2."""
    for part, rows in ((0, slice(0, 10)), (2, slice(10, 20)), (10, slice(20, 30))):
        np.savez(tmp_path / f"cifar10_train_{part}.npz", x=COLORS[rows], y=COLOR_LABELS[rows])
    np.savez(tmp_path / "cifar10_test.npz", x=COLORS[30:], y=COLOR_LABELS[30:])
    data = load_dataset("cifar10", tmp_path)
    assert np.array_equal(data.records, COLORS[:30].transpose(0, 3, 1, 2))
    assert np.array_equal(data.labels, COLOR_LABELS[:30])
    assert np.array_equal(data.test_records, COLORS[30:].transpose(0, 3, 1, 2))


def write_batches(folder) -> None:
    folder.mkdir()
    for number in range(5):
        rows = slice(8 * number, 8 * number + 8)
        flat = COLORS[rows].transpose(0, 3, 1, 2).reshape(8, -1)
        record = {b"data": flat, b"labels": COLOR_LABELS[rows].tolist(), b"batch_label": b"part"}
        (folder / f"data_batch_{number + 1}").write_bytes(pickle.dumps(record, protocol=2))
    flat = COLORS[40:].transpose(0, 3, 1, 2).reshape(10, -1)
    (folder / "test_batch").write_bytes(
        pickle.dumps({b"data": flat, b"labels": COLOR_LABELS[40:].tolist()}, protocol=2)
    )


def test_cifar10s_own_batches_are_read(tmp_path) -> None:
    write_batches(tmp_path / "cifar-10-batches-py")
    for place in (tmp_path, tmp_path / "cifar-10-batches-py"):
        data = load_dataset("cifar10", place)
        assert np.array_equal(data.records, COLORS[:40].transpose(0, 3, 1, 2))
        assert np.array_equal(data.test_labels, COLOR_LABELS[40:])


def test_a_batch_with_too_few_labels_is_refused(tmp_path) -> None:
    write_batches(tmp_path / "cifar-10-batches-py")
    short = {b"data": np.zeros((10, 3072), dtype=np.uint8), b"labels": [1, 2]}
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(short))
    with pytest.raises(InputError, match="10 records have 2 labels"):
        load_dataset("cifar10", tmp_path)


def test_a_pickle_that_would_run_code_is_refused(tmp_path) -> None:
    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    write_batches(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({b"data": Harm()}))
    with pytest.raises(InputError, match=r"test_batch is not a batch of CIFAR-10"):
        load_dataset("cifar10", tmp_path)
    assert not (tmp_path / "harm").exists()


def write_news(path, rows, header=False) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        if header:
            writer.writerow(["label", "title", "description", "source"])
        writer.writerows(rows)


NEWS = [("3", "", "Oil rises, oil falls"), ("1", "Talks", "Peace talks begin"), ("4", "", "Chips\nand oil")]


@pytest.mark.parametrize(
    ("train", "test"),
    [("ag_news_train_partial.csv.gz", "ag_news_test.csv.gz"), ("train.csv", "test.csv")],
)
def test_news_are_read_with_and_without_a_header(tmp_path, train, test) -> None:
    """Labels 1-4 become 0-3; [CLS] comes first, [PAD] fills up, texts are cut at the length."""
    write_news(tmp_path / train, [(*row, "x") for row in NEWS], header=True)
    write_news(tmp_path / test, NEWS[:1])
    data = load_dataset("ag-news", tmp_path, length=4, words=1000)
    assert data.labels.tolist() == [2, 0, 3]
    assert data.records.shape == (3, 4)
    assert data.records[:, 0].tolist() == [CLS] * 3
    assert np.array_equal(data.test_records[0], data.records[0])
    assert data.vocabulary_size == 1003
    assert data.records.max() < data.vocabulary_size


def test_all_parts_of_the_news_are_read_once(tmp_path) -> None:
    """In the order of their names; a part that is there packed and unpacked counts once."""
    write_news(tmp_path / "ag_news_test.csv.gz", NEWS)
    write_news(tmp_path / "ag_news_train_partial.csv.gz", NEWS[:1], header=True)
    write_news(tmp_path / "ag_news_train_partial.csv", NEWS[:1], header=True)
    write_news(tmp_path / "ag_news_train_1.csv.gz", NEWS[1:])
    data = load_dataset("ag-news", tmp_path)
    assert data.labels.tolist() == [0, 3, 2]
    assert np.array_equal(data.records[[2, 0, 1]], data.test_records)


def test_the_hashed_vocabulary_does_not_depend_on_the_texts() -> None:
    """A text has the same numbers whatever the other texts are; with the frequent words it has not."""
    text = "oil talks"
    alone, _ = numbered([text], [], length=4)
    crowd, _ = numbered([text, *["begin begin"] * 50], [], length=4)
    assert np.array_equal(alone[0], crowd[0])
    assert alone[0].tolist()[3:] == [PAD]
    # The check value of CRC-32, known for as long as the code: numbers are the same in every process and release.
    checked, _ = numbered(["123456789"], [], size=30_000, length=2)
    assert checked[0, 1] == 3 + 0xCBF43926 % 30_000
    ranked, others = numbered(["oil oil oil talks talks begin"], ["begin oil peace"], vocabulary="frequent", size=2)
    assert ranked[0, :7].tolist() == [CLS, 3, 3, 3, 4, 4, UNK]
    assert others[0, :4].tolist() == [CLS, UNK, 3, UNK]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mnist", "train-images-idx3-ubyte"),
        ("mnist", "mnist.npz"),
        ("cifar10", "data_batch_1"),
        ("cifar10", "cifar10_train_0.npz"),
        ("ag-news", "train.csv"),
        ("mine.npz", "mine.npz"),
    ],
)
def test_missing_files_are_named(tmp_path, name, expected) -> None:
    (tmp_path / "something").write_text("")
    with pytest.raises(InputError) as caught:
        load_dataset(name, tmp_path)
    assert expected in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_unknown_data_and_folders_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="mnist, fashion-mnist, cifar10, ag-news"):
        load_dataset("imagenet", tmp_path)
    with pytest.raises(InputError, match="There is no folder"):
        load_dataset("mnist", tmp_path / "nowhere")
    with pytest.raises(InputError, match="--data-dir"):
        load_dataset("mnist")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not an archive", "cannot be read as a numpy archive"),
        ({"x_train": IMAGES}, "not found: y_train, x_test, y_test"),
        ({"x_train": IMAGES * 1.0, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS}, "images as bytes"),
        ({"x_train": IMAGES, "y_train": LABELS[:3], "x_test": IMAGES, "y_test": LABELS}, "one whole label per image"),
        ({"x_train": IMAGES[:, :20], "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS}, "square images"),
        (
            {"x_train": IMAGES, "y_train": 10**6 + LABELS.astype(int), "x_test": IMAGES, "y_test": LABELS},
            "classes counted from 0",
        ),
        (
            {"x_train": IMAGES, "y_train": LABELS.astype(int) - 10, "x_test": IMAGES, "y_test": LABELS},
            "classes counted from 0",
        ),
        (IMAGES, "cannot be read as a numpy archive"),
    ],
)
def test_damaged_archives_are_refused(tmp_path, content, message) -> None:
    path = tmp_path / "mine.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        with path.open("wb") as file:
            np.save(file, content)
    with pytest.raises(InputError, match=message):
        load_dataset(str(path))


def test_damaged_idx_and_csv_files_are_refused(tmp_path) -> None:
    write_idx(tmp_path, packed=False)
    whole = (tmp_path / IDX_NAMES[0]).read_bytes()
    (tmp_path / IDX_NAMES[0]).write_bytes(whole[:-5])
    with pytest.raises(InputError, match="cut short"):
        load_dataset("mnist", tmp_path)
    for other in (b"PNG" + whole, whole[:6]):
        (tmp_path / IDX_NAMES[0]).write_bytes(other)
        with pytest.raises(InputError, match="not an IDX file"):
            load_dataset("mnist", tmp_path)
    write_news(tmp_path / "train.csv", [("9", "", "text")])
    write_news(tmp_path / "test.csv", NEWS)
    with pytest.raises(InputError, match="row 1: expected label"):
        load_dataset("ag-news", tmp_path)
    (tmp_path / "train.csv").unlink()
    packed = bytearray(gzip.compress(b"1,title,text\n" * 100))
    for damaged in (packed[:30], packed[:12] + b"\xff\xff\xff" + packed[15:]):
        (tmp_path / "train.csv.gz").write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read as CSV"):
            load_dataset("ag-news", tmp_path)


def test_a_part_of_a_dataset_is_its_beginning(tmp_path) -> None:
    write_idx(tmp_path, packed=True)
    data = load_dataset("mnist", tmp_path)
    assert np.array_equal(data.first(5).records, data.records[:5])
    assert data.first(5, 2).test_labels.shape == (2,)
    with pytest.raises(InputError, match="mnist has 20"):
        data.first(21)
