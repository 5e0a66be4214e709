"""Errors reported by compute-sanitizer are counted over all processes."""

from gpu_sanitizer import errors


def test_errors_of_all_processes_are_counted():
    output = "========= ERROR SUMMARY: 0 errors\n3 passed\n========= ERROR SUMMARY: 2 errors\n"
    assert errors(output) == 2
    assert errors("========= ERROR SUMMARY: 0 errors") == 0
    assert errors("========= RACECHECK SUMMARY: 4 hazards displayed (4 errors, 0 warnings)") == 4


def test_output_without_a_summary_is_not_clean():
    assert errors("3 passed in 2.1s") == -1
