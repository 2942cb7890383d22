"""Each fault that hardening once found, and the tests that would notice if it came back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FINDINGS: dict[str, tuple[str, ...]] = {
    "a pickle made objects of pointers that it chose": (
        "formats/test_pickles.py::test_a_pickle_cannot_reach_memory_or_change_the_reader",
        "formats/test_pickles.py::test_object_arrays",
    ),
    "a pickle that unfolds, holds itself or inflates": (
        "formats/test_pickles.py::test_a_pickle_bomb_is_refused",
        "formats/test_pickles.py::test_an_inflating_codec_is_refused",
        "formats/test_pickles.py::test_values_that_hold_themselves_or_double_again_and_again",
    ),
    "downloaded files without a hash": (
        "datasets/test_download.py::test_a_data_set_is_downloaded_once_and_recorded",
        "datasets/test_download.py::test_a_file_without_a_published_hash_is_held_to_that_of_its_first_download",
        "datasets/test_download.py::test_wanted_members_are_unpacked",
    ),
    "a kilobyte that claimed a billion nodes filled disk or memory": (
        "files/test_limits.py::test_a_file_of_a_kilobyte_cannot_claim_a_billion_nodes",
        "files/test_limits.py::test_headers_that_claim_what_is_not_there",
        "files/test_limits.py::test_a_matlab_file_that_claims_much",
    ),
    "settings and boards that no machine can hold": (
        "files/test_limits.py::test_models_that_no_machine_can_build",
        "files/test_limits.py::test_boards_that_no_machine_can_hold",
    ),
    "bombs of npz and gzip, expanded tensors, hollow files": (
        "files/test_limits.py::test_packed_bytes_that_unfold_to_more_than_memory",
        "files/test_limits.py::test_tensors_that_repeat_their_numbers",
        "files/test_hostile_directories.py::test_a_table_that_repeats_one_row_for_ever_is_refused",
        "files/test_findings.py::test_a_list_of_nodes_that_claims_terabytes_is_not_read",
        "files/test_findings.py::test_blocks_of_unfinished_tokens_that_grew_are_not_read",
    ),
    "rolled labels, reversed ids and changed splits went unnoticed": (
        "files/test_seals.py::test_every_changed_byte_of_a_small_directory_is_noticed",
        "files/test_seals.py::test_rolled_labels_and_reversed_ids_are_noticed",
        "files/test_seals.py::test_large_files_are_sampled_on_opening_and_read_whole_when_verified",
        "files/test_findings.py::test_verify_reads_everything",
    ),
    "files of another run or graph went unnoticed": (
        "files/test_mixed_directories.py::test_a_file_of_another_run_is_noticed",
        "files/test_mixed_directories.py::test_a_model_of_another_run_predicts_nothing",
        "files/test_mixed_directories.py::test_training_does_not_go_on_from_the_checkpoint_of_another_run",
        "files/test_mixed_directories.py::test_a_file_of_another_graph_is_noticed",
    ),
    "a changed header of a checkpoint altered a result": (
        "files/test_findings.py::test_a_changed_header_of_a_checkpoint_is_noticed",
    ),
    "ids that repeat, features that are no finite matrix": (
        "files/test_findings.py::test_arrays_of_a_directory_without_hashes_are_still_looked_at",
    ),
    "names in a manifest left the folder": ("files/test_seals.py::test_names_in_a_manifest_stay_in_the_folder",),
    "directories of earlier versions": ("test_old_versions.py::test_graphs_and_tokens_are_read",),
    "filters died by SIGBUS on a full disk and left folders": (
        "files/test_findings.py::test_filters_reserve_their_space_before_it_is_mapped",
    ),
    "a mapped file that is cut off killed the process": (
        "native/test_signals.py::test_a_file_that_is_cut_off_while_it_is_mapped",
    ),
    "a run directory deleted in training ended with code 0": (
        "files/test_findings.py::test_a_run_directory_that_is_removed_during_training_is_an_error",
    ),
    "headers of npy files that raised anything": (
        "files/test_npy.py::test_other_headers_are_refused",
        "files/test_npy.py::test_a_file_that_ends_inside_its_header",
        "files/test_npy.py::test_many_threads_read_headers_at_once",
        "files/test_limits.py::test_arrays_of_anything_but_numbers_and_words",
    ),
    "JSON nested deep, with 5,000 digits or of wrong types": (
        "files/test_json_files.py::test_what_is_not_of_the_schema_is_refused",
        "files/test_json_files.py::test_damaged_lines_are_refused_and_a_cut_last_line_is_left_out",
        "files/test_hostile_directories.py::test_a_plan_that_is_nested_deep_is_refused",
    ),
    "Latin-1 names of columns in a CSV": (
        "fuzz/test_fuzz.py::test_past_findings_stay_mended",
        "files/test_json_files.py::test_latin1_and_other_bytes_are_refused",
    ),
    "arrays in the other order of bytes": ("files/test_findings.py::test_big_endian_arrays_are_read_as_what_they_are",),
    "very long options and names": (
        "files/test_limits.py::test_names_that_no_system_takes_are_refused_in_a_sentence",
        "files/test_limits.py::test_numbers_that_no_float_holds_are_refused_in_a_sentence",
        "files/test_limits.py::test_a_long_option_is_refused_in_a_sentence",
    ),
    "one room opens files": ("files/test_one_room.py::test_only_one_room_opens_files",),
    "files were 0644 whatever the umask": (
        "files/test_findings.py::test_new_files_have_the_rights_that_the_umask_leaves",
    ),
    "ids went into CSV as formulas": ("files/test_findings.py::test_ids_do_not_become_formulas",),
    "keys of model.safetensors in another order from run to run": (
        "files/test_findings.py::test_the_header_of_a_model_has_one_name_so_that_equal_models_are_equal_files",
    ),
    "a killed worker held the lock of a study": (
        "files/test_findings.py::test_a_killed_worker_does_not_hold_the_journal",
    ),
    "memory that ran out was told as a damaged file": (
        "files/test_findings.py::test_memory_that_runs_out_is_no_damaged_file",
    ),
    "a pipe in the place of a file blocked": (
        "files/test_findings.py::test_a_pipe_in_the_place_of_a_file_does_not_block",
    ),
    "exceptions of C++ crossed the border": (
        "native/test_border.py::test_every_exported_function_keeps_its_exceptions",
        "native/test_border.py::test_memory_that_runs_out_in_the_kernel_is_an_error_of_ours",
    ),
    "an update wrote through a link": (
        "files/test_hostile_directories.py::test_an_update_does_not_write_through_a_link",
        "files/test_hostile_directories.py::test_nothing_is_opened_for_writing_through_a_link",
    ),
}


@pytest.mark.parametrize("finding", FINDINGS)
def test_each_finding_has_its_tests(finding: str) -> None:
    for name in FINDINGS[finding]:
        file, _, test = name.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, name
