"""The one room where files are opened: guarded readers and writers of npy, npz, JSON and safetensors files.

Also one lock, one check of free disk, one way to write aside and rename, and hashes of contents. No other room opens
such a file itself.

============== =====================================================================================
guard          sentences for what goes wrong: ``reading`` around readers, ``reporting_io_errors`` around writers
schema         kinds of JSON values; data_schemas and run_schemas: what every JSON of ours must look like
json_files     ``read_json(path, schema)``, ``write_json(path, content, schema)``, lines of JSON
npy, npz       arrays: read, mapped, streamed, written; sparse matrices
tensors        ``read_tensors``, ``write_tensors``: safetensors with a JSON text about them
whole          ``write_whole``, ``new_directory``, ``.NAME.partial``: files that appear whole
locks, disk    one lock, one check of free disk, space reserved before it is needed
digests        hashes of arrays and files
run_identity   which run a file of a run directory belongs to
seals          hashes of all files of a directory, by chunks of a mebibyte
============== =====================================================================================
"""

from polyformer.files.digests import array_digest, check_samples, file_digest, file_samples, npy_digest
from polyformer.files.disk import free_bytes, require_disk, reserve
from polyformer.files.guard import (
    GET_AGAIN,
    RESTORE,
    check_gzip,
    is_folder,
    is_there,
    open_regular,
    read_small,
    reading,
    reporting_io_errors,
    require_regular,
    source_bytes,
)
from polyformer.files.json_files import (
    append_json_line,
    check_json,
    finite,
    json_line,
    parse_json,
    read_json,
    read_json_lines,
    write_json,
    write_json_lines,
)
from polyformer.files.locks import is_held, locked
from polyformer.files.npy import (
    NpyHeader,
    NpyWriter,
    create_mapped,
    create_npy,
    map_npy,
    native,
    read_npy,
    read_npy_header,
    write_npy,
)
from polyformer.files.npz import NpzFile, NpzMember, read_npz, read_sparse, write_npz, write_sparse
from polyformer.files.run_identity import RUN, check_identity, run_identity
from polyformer.files.seals import check_sealed, plain_name, reseal_file, seal_file, seal_files
from polyformer.files.tensors import read_tensors, write_tensors
from polyformer.files.whole import (
    append_line,
    existing_folder,
    held_partial,
    move_over,
    new_directory,
    open_in_place,
    partial_place,
    refuse_existing,
    sync_directory,
    sync_file,
    write_whole,
)

__all__ = [
    "GET_AGAIN",
    "RESTORE",
    "RUN",
    "NpyHeader",
    "NpyWriter",
    "NpzFile",
    "NpzMember",
    "append_json_line",
    "append_line",
    "array_digest",
    "check_gzip",
    "check_identity",
    "check_json",
    "check_samples",
    "check_sealed",
    "create_mapped",
    "create_npy",
    "existing_folder",
    "file_digest",
    "file_samples",
    "finite",
    "free_bytes",
    "held_partial",
    "is_folder",
    "is_held",
    "is_there",
    "json_line",
    "locked",
    "map_npy",
    "move_over",
    "native",
    "new_directory",
    "npy_digest",
    "open_in_place",
    "open_regular",
    "parse_json",
    "partial_place",
    "plain_name",
    "read_json",
    "read_json_lines",
    "read_npy",
    "read_npy_header",
    "read_npz",
    "read_small",
    "read_sparse",
    "read_tensors",
    "reading",
    "refuse_existing",
    "reporting_io_errors",
    "require_disk",
    "require_regular",
    "reseal_file",
    "reserve",
    "run_identity",
    "seal_file",
    "seal_files",
    "source_bytes",
    "sync_directory",
    "sync_file",
    "write_json",
    "write_json_lines",
    "write_npy",
    "write_npz",
    "write_sparse",
    "write_tensors",
    "write_whole",
]
