"""Values of Claude's rows, read as the types that they should have, and the kinds of rows."""

from __future__ import annotations

import re
from typing import Any

# Values of any type: each function takes anything and returns the type that it names.

SYNTHETIC = "<synthetic>"
"""The model of a message that the client wrote itself."""
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_RESERVED = "main"
_ROW = frozenset({"parentUuid", "uuid", "type", "sessionId"})


def text(value: Any) -> str:
    """Return `value` if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def count(value: Any) -> int:
    """Return `value` if it is a whole number from 0 to 2^53, else 0."""
    return value if type(value) is int and 0 <= value < 2**53 else 0


def identifier(value: Any) -> str | None:
    """Return `value` if it can stand in an id as it is: a short ASCII string."""
    if isinstance(value, str) and 0 < len(value) <= 256 and value.isascii():
        return value
    return None


def agent_id(value: Any) -> str | None:
    """Return `value` if it can name a subagent's thread."""
    if isinstance(value, str) and value != _RESERVED and _AGENT_ID.fullmatch(value):
        return value
    return None


def is_row(value: Any) -> bool:
    """Tell whether an object found amid damage is a row of the chain, and not a part of one."""
    return isinstance(value, dict) and _ROW.issubset(value)


def parts(content: Any) -> list[Any]:
    """Return message content as a list of parts; a string is a text part."""
    if isinstance(content, list):
        return content
    return [] if content is None else [content]


def part_text(part: Any) -> str | None:
    """Return the text of a text part (or bare string), None for parts of other kinds."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text":
        return text(part.get("text"))
    return None


def all_text(content: Any) -> str:
    """Return the text parts of message or result content, joined by newlines."""
    if isinstance(content, str):
        return content
    found = [part_text(part) for part in parts(content)]
    return "\n".join(piece for piece in found if piece)


# Kinds of rows and parts that clients up to 2.1.332 write and that show nothing.
#
# A kind that is in none of these sets, and is not shown either, is a sign of a newer client
# (`drift`).


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Rows and stdout lines outside the chain that say nothing of the conversation.
ROWS = _names(
    """
    active_goal agent-color agent-name agent-setting agent_metadata ai-title api-request
    api-request-blob api-request-resumed api-request-shape artifact-autoreact-ledger
    artifact-comment-monitor atis-latch attribution-snapshot bridge-session content-replacement
    continued-in control_cancel_request control_request control_response conversation_reset
    cost-state custom-title data-flow-incomplete data-flow-records derived-from dev-mods
    ended-by-model file-history-delta file-history-snapshot fork-context-ref frame-link
    history-suppression host-row hybrid-organization isolation-latch keep_alive last-prompt
    marble-origami-commit marble-origami-snapshot memory-mode mode observer-ref permission-mode
    pr-link prompt_suggestion queue-operation relocated repl-mode resume-head-vouch
    session-owner speculation-accept stream_event summary tag tool_progress tool_use_summary
    tools-used transcript_mirror worktree-state
    """
)
CONTROL = frozenset({"control_cancel_request", "control_request", "control_response", "keep_alive"})
QUEUE_OPERATIONS = frozenset({"enqueue", "dequeue", "remove", "popAll"})

# Subtypes of `system` rows and stdout lines; the visible ones are in `notes`.
SUBTYPES = _names(
    """
    background_tasks_changed bridge_state bridge_status checkpoint_done cloud_session_delta
    cloud_session_status code_change_published commands_changed control_request_progress
    dev_intent elicitation_complete feedback_draft_queued file_attachments_missing file_snapshot
    files_persisted hook_progress hook_response hook_started inherited_asks_settled
    instruction_size_warning late_allow_not_run memory_recall model_consent_fallback
    model_fallback notification peer_message_hold per_turn_effort_changed
    permission_check_status permission_retry placed plugin_install post_turn_summary
    rewind_stand_in session_metadata session_state_changed session_title_changed shell_cwd
    start_folder status stop_hook_summary task_progress task_started task_summary task_updated
    thinking_tokens tool_host_result turn_began_before_init turn_duration turn_handoff_available
    turn_preempted turn_starting ui_focus ui_invalidate ui_log ui_notify ui_notify_cancel
    ui_panes ui_placed ui_scroll ui_status ui_toast vcs_state_changed voice_call_talk
    worker_shutting_down
    """
)

ATTACHMENTS = _names(
    """
    account_memory_recall advisor_stripped advisor_tool agent_ask_notice agent_listing_delta
    agent_mention already_read_file artifact_opening_prefetch async_hook_response
    async_hook_response_batch at_mention_reference attention_budget auto_mode auto_mode_exit
    autocheckpointing background_task_status bash_output_audience_note batching_reminder
    batching_reminder_sent budget_usd claude_app_notice command_permissions
    compact_file_reference compaction_reminder companion_intro context_efficiency
    context_sections coordinator_context cowork_memory_context credential_org
    critical_system_reminder date date_change deferred_tools_delta deferred_tools_record
    diagnostics dir_sync_notice directory dynamic_skill edited_image_file elapsed_time_reminder
    environment file first_week fork_briefing goal_status goals hook_additional_context
    hook_cancelled hook_deferred_tool hook_permission_decision hook_success inlined_image_paths
    instructions invoked_skills language linked_plugin_tools_note mcp_dropped_tools_delta
    mcp_instructions_delta mcp_resource memory_update message_pdf_reads model nested_memory
    opened_file_in_ide output_limit_note output_style output_style_instructions
    output_token_usage pdf_reference peer_mention plan_file_reference plan_mode plan_mode_exit
    plan_mode_reentry plugin_note poll_events prefix_delta proactivity progress_reminder_sent
    project_doc_reads projects_thread_ask prompt_as_file prompt_render_point prompt_snapshot
    read_truncation_notice relevant_memories remote_session_change repl_mcp_needs_auth
    repl_mcp_servers sandbox_instructions secondary_reminder secondary_reminder_sent
    selected_lines_in_diff selected_lines_in_ide session_context session_cron_carry
    silent_turn_reminder skill_listing skill_mention structured_output task_progress
    task_reminder team_context teammate_shutdown_batch thinking_drop thinking_stripped
    thread_state todo todo_reminder token_usage tool_host_result_lines tool_hosts_correction
    tool_hosts_notice tool_offer_record tool_results_cut tool_search_usage_reminder
    total_tokens_reminder ultra_effort_enter ultra_effort_exit ultramemory ultrathink_effort
    unknown_command_fallback verify_plan_reminder whole_texts_withdrawn widget_context_hint
    withheld_memory workflow_keyword_request workflow_size_guideline_change
    """
)

PROGRESS = _names(
    """
    agent_api_retry agent_progress bash_progress compact_progress connector_file_progress
    hook_progress mcp_progress powershell_progress query_update repl_tool_call
    search_results_received search_retry skill_progress task_progress thinking_progress
    tool_heartbeat waiting_for_task workflow_log
    """
)

# Parts of message content that show nothing of their own.
PARTS = frozenset({"compaction", "container_upload", "fallback", "tool_reference"})
