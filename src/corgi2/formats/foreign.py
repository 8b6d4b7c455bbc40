"""Formats that corgi2 recognises but does not read, each with a way to convert it (docs/formats.md)."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Foreign:
    """A foreign format: what its files are called, which paths are such files, and how to convert them."""

    name: str
    pattern: str = field(repr=False)
    """A regular expression for a path, or its end, in lower case."""
    files: str
    way: str

    def is_of(self, path: str) -> bool:
        return re.search(f"(?:^|/)(?:{self.pattern})$", path.lower()) is not None


_ANY = r"[^/]*\."
_WRITER = "webdataset.ShardWriter('train-%06d.tar')"

FOREIGN = (
    Foreign(
        "LitData",
        r"chunk-\d+-\d+(\.\w+)?\.bin",
        "`chunk-0-0.bin`",
        f"iterate litdata.StreamingDataset and write each sample with {_WRITER}",
    ),
    Foreign(
        "MDS (MosaicML Streaming)",
        rf"{_ANY}mds(\.\w+)?",
        "`.mds`",
        f"iterate streaming.StreamingDataset and write each sample with {_WRITER}",
    ),
    Foreign(
        "Lance",
        r".*\.lance(/.*)?",
        "`.lance/`",
        "pyarrow.dataset.write_dataset(lance.dataset('x.lance').scanner().to_reader(), 'out', format='parquet')",
    ),
    Foreign(
        "Zarr",
        r".*\.zarr/.*|(.*/)?(\.zarray|\.zgroup|zarr\.json)",
        "`.zarr/`",
        f"read the arrays with zarr.open and write a row per record with pyarrow.parquet, or with {_WRITER}",
    ),
    Foreign(
        "ArrayRecord",
        rf"{_ANY}array_?record(-\d+-of-\d+)?",
        "`.array_record`",
        f"iterate array_record's ArrayRecordReader and write each record with {_WRITER}",
    ),
    Foreign(
        "CSV",
        rf"{_ANY}csv(\.gz|\.zst|\.bz2)?",
        "`.csv`",
        "pyarrow.dataset.write_dataset(pyarrow.dataset.dataset(folder, format='csv'), 'out', format='parquet')",
    ),
    Foreign(
        "TSV",
        rf"{_ANY}tsv(\.gz|\.zst|\.bz2)?",
        "`.tsv`",
        "read with pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(delimiter='\\t')) and write with "
        "pyarrow.parquet.write_table",
    ),
    Foreign(
        "JSON",
        rf"{_ANY}json(\.gz|\.zst)?",
        "`.json`",
        "an array becomes lines by jq -c '.[]' a.json > a.jsonl; one record per line needs only the name .jsonl",
    ),
    Foreign(
        "HDF5",
        rf"{_ANY}(h5|hdf5|hdf)",
        "`.h5` `.hdf5`",
        f"read the arrays with h5py and write a row per record with pyarrow.parquet, or with {_WRITER}",
    ),
    Foreign(
        "NumPy",
        rf"{_ANY}np[yz]",
        "`.npy` `.npz`",
        f"read with numpy.load and write a row per record with pyarrow.parquet, or with {_WRITER}",
    ),
    Foreign(
        "pickle",
        rf"{_ANY}(pkl|pickle|pth?)(\.gz)?",
        "`.pkl` `.pt`",
        f"corgi2 never unpickles; load the files that you trust and write each sample with {_WRITER}",
    ),
    Foreign(
        "Megatron",
        rf"{_ANY}(bin|idx)",
        "`.bin` with `.idx`",
        "shuffle the text before it is tokenized: JSON lines in, and then preprocess_data.py",
    ),
    Foreign(
        "FFCV",
        rf"{_ANY}beton",
        "`.beton`",
        f"write the data set that it was made from with {_WRITER}",
    ),
    Foreign(
        "LMDB",
        rf"(.*/)?data\.mdb|{_ANY}lmdb",
        "`data.mdb`",
        f"iterate lmdb.open(folder).begin().cursor() and write each value with {_WRITER}",
    ),
    Foreign(
        "image",
        rf"{_ANY}(jpe?g|png|webp|gif|bmp|tiff?)",
        "`.jpg` `.png` in folders",
        f"iterate torchvision.datasets.ImageFolder(folder).samples and write image and class with {_WRITER}",
    ),
    Foreign(
        "zip",
        rf"{_ANY}zip",
        "`.zip`",
        "unpack them, and pack the files as tar: tar --sort=name -cf train-000000.tar folder",
    ),
)
"""The first that matches counts."""

_DESCRIBES = "JSON"
"""Files that often lie next to others, and describe them."""

_LOOKED_AT = 1000


def foreign_of(paths: Sequence[str]) -> tuple[Foreign, list[str]] | None:
    """The format that most of these paths have, and those that have it; None if no format is recognised."""
    some = Counter(next((each for each in FOREIGN if each.is_of(path)), None) for path in paths[:_LOOKED_AT])
    kinds = [each for each, _ in some.most_common() if each is not None]
    if not kinds:
        return None
    kind = min(kinds, key=lambda each: each.name == _DESCRIBES)
    return kind, [path for path in paths if kind.is_of(path)]
