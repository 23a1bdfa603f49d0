"""Which test holds which rule of reading, and each public report of what went wrong elsewhere.

Rules and reports are those of the reference on Claude Code's formats: its sections 8 and 7.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
RULES = {
    "1 lines": (
        "test_whole_records_survive_damage_around_them test_unicode_line_separators_end_no_line"
    ),
    "2 damage": "test_damage_costs_what_it_hit_and_nothing_else",
    "3 bad utf-8": "test_bad_utf8_is_replaced_and_marked",
    "4 size": "test_a_line_of_many_megabytes_is_read test_parsing_costs_little_more_than_decoding",
    "5 unknown": (
        "test_unknown_rows_are_kept_whole_and_hidden test_a_results_content_may_have_any_shape"
    ),
    "6 by content": "test_claude_rows_are_recognised test_other_files_are_not",
    "7 people only": "test_what_no_user_typed_is_no_prompt test_what_a_user_typed_is_a_prompt",
    "8 stable ids": (
        "test_rows_without_uuid_are_named_by_their_bytes test_ids_are_those_of_the_undamaged_file"
    ),
    "9 one block a part": "test_each_content_part_gives_its_own_block",
    "10 pairing": (
        "test_calls_and_results_are_paired_by_id test_a_repeated_call_id_means_the_nearest_call"
    ),
    "11 empty thoughts": "test_an_empty_signed_thought_is_still_a_block",
    "12 subagents": (
        "test_links_go_from_sure_to_guessed test_a_background_agent_runs_until_its_notification"
    ),
    "13 system": "test_system_rows_show_what_matters test_attachments_show_what_matters",
    "14 times": (
        "test_times_come_in_several_spellings test_order_is_file_order_whatever_the_clock_said"
    ),
    "15 active path": (
        "test_the_named_leaf_wins_over_the_last_row test_parallel_calls_are_no_branches"
    ),
    "16 compaction": "test_rows_that_a_compaction_preserved_are_shown_once_in_both_views",
    "17 sidechains": "test_inline_sidechains_are_split_by_root",
    "24 tokens": (
        "test_a_session_costs_what_its_last_cost_state_says"
        " test_a_recorded_run_costs_what_its_results_say"
    ),
}
REPORTS = {
    "1-2, 7": "test_a_message_over_several_rows_counts_once_from_its_last_row",
    "3-4, 8": "test_a_message_that_was_copied_counts_once_over_several_sessions",
    "5": "test_rows_without_message_id_never_fold_together",
    "6": "test_a_gateway_that_repeats_message_ids_loses_no_tokens",
    "9": "test_tokens_of_agents_are_counted_once",
    "10": "test_counts_are_lower_bounds_where_no_row_has_a_stop_reason",
    "11, 40": "test_a_results_content_may_have_any_shape",
    "12-14, 26": (
        "test_a_missing_parent_is_bridged_and_reported"
        " test_a_boundary_goes_on_after_what_stands_before_it"
    ),
    "15": "test_a_snapshot_with_a_prompts_id_is_no_row_of_the_chain",
    "16": "test_progress_rows_are_transparent",
    "17": "test_parallel_calls_are_no_branches",
    "18": "test_a_notice_beside_an_answer_is_no_branch",
    "20": "test_tools_at_the_models_side_are_calls_and_results",
    "21-22": "test_a_copied_ancestor_is_shown_once",
    "23": "test_a_row_of_another_session_is_shown_and_remarked_on",
    "24": "test_an_answer_that_a_second_client_did_not_see_is_superseded",
    "27-37": "test_every_scenario_and_every_kind_of_damage_has_its_fixture",
    "38": "test_bookkeeping_rows_are_hidden_and_counted",
    "39": "test_a_rate_limit_shows_when_it_is_near",
    "41": (
        "test_a_prompt_typed_mid_turn_is_shown_once"
        " test_a_prompt_that_never_left_the_queue_is_shown"
    ),
    "42": "test_an_empty_signed_thought_is_still_a_block",
    "47": "test_a_child_alone_is_a_session_of_its_own",
    "48": "test_the_agents_of_a_workflow_are_listed_with_their_purpose",
    "49": "test_links_go_from_sure_to_guessed",
    "50-51": "test_a_line_of_many_megabytes_is_read",
    "53-54": "test_a_lone_result_holds_the_answer",
    "56": "test_order_is_file_order_whatever_the_clock_said",
    "57": "test_compaction_keeps_the_history_before_it",
    "58": "test_an_output_that_was_put_in_a_file_is_shown_as_preview_and_pointer",
}


@pytest.mark.feature("B-01")
def test_every_rule_and_every_report_has_its_test() -> None:
    """None of the tests that the tables name is missing."""
    there = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    named = {name for tests in [*RULES.values(), *REPORTS.values()] for name in tests.split()}
    assert named - there == set()
