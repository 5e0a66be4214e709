"""What compute-sanitizer says is counted over all processes; silence is not a clean bill."""

from gpu_sanitizer import errors


def test_errors_of_all_processes_are_counted():
    said = "========= ERROR SUMMARY: 0 errors\n3 passed\n========= ERROR SUMMARY: 2 errors\n"
    assert errors(said) == 2
    assert errors("========= ERROR SUMMARY: 0 errors") == 0
    assert errors("========= RACECHECK SUMMARY: 4 hazards displayed (4 errors, 0 warnings)") == 4


def test_where_nothing_was_counted_nothing_is_clean():
    assert errors("3 passed in 2.1s") == -1
