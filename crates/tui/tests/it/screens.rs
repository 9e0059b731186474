//! What people see, at 80x24 and 120x40.

use crate::play::{Played, play};

const TURN: &str = "
type What is in my notes?
key enter
step
think The person asks for the notes.
think  I should look at the folder first.
call list_directory {\"dir_path\": \".\", \"recursive\": true}
turn 18
result notes.md\\nplans/\\n  autumn.md
step
think Two files.
say ## Your notes\\n\\n- **notes.md**: ideas\\n- `plans/autumn.md`: what you want to do\\n\\n
say ```sh\\ncat notes.md\\n```\\nShall I read them?
turn 4
end answer
";

fn both(name: &str, played: &Played) {
    insta::assert_snapshot!(format!("{name}_80x24"), played.screen(80, 24));
    insta::assert_snapshot!(format!("{name}_120x40"), played.screen(120, 40));
}

#[test]
fn an_empty_conversation_says_how_to_begin() {
    both("empty", &play(""));
}

#[test]
fn a_turn_with_a_thought_a_call_and_an_answer() {
    both("turn", &play(TURN));
}

#[test]
fn reasoning_unfolds_with_its_gauge() {
    let mut played = play(TURN);
    played.go_on("key ctrl-r");
    both("unfolded", &played);
}

#[test]
fn work_under_way_shows_its_last_thought_and_the_budget() {
    let script = "
        type Why?
        key enter
        wait 3400
        think First\\nthe second line of the thought
        think  goes on
    ";
    both("thinking", &play(script));
}

#[test]
fn a_call_waits_for_consent() {
    let script = "
        type Run the tests
        key enter
        ask execute_bash {\"command\": \"cargo test --workspace\\necho done\"}
    ";
    both("consent", &play(script));
}

#[test]
fn failures_and_long_results_are_told() {
    let script = "
        type Do it
        key enter
        call read_file {\"file_path\": \"/etc/passwd\"}
        fail the path leaves the workspace
        call search_codebase {\"pattern\": \"x\"}
        result 1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9
        end max_steps
    ";
    both("failures", &play(script));
}

#[test]
fn commands_answer_in_the_transcript() {
    both(
        "help",
        &play("type /help\nkey enter\ntype /tools\nkey enter\ntype /nothing\nkey enter"),
    );
}

#[test]
fn several_lines_of_input_and_the_way_out() {
    both(
        "input",
        &play("type first\nkey alt-enter\ntype second\nkey ctrl-c\npaste a\\nb\\nc"),
    );
}

// A note in the middle of an answer does not break it, and text that turns out to be
// reasoning moves there.
#[test]
fn answers_stay_whole() {
    let script = "
        type go
        key enter
        step
        say one
        type more
        key enter
        say  and the same sentence
        step
        say this was
        reclassify
        think  a thought
        say Done.
    ";
    both("whole", &play(script));
}

// Resize-safe: every size draws, also none at all, and every line fits.
#[test]
fn every_size_can_be_drawn() {
    let mut played = play(TURN);
    played.go_on("ask execute_bash {\"command\": \"ls\"}\ntype 你好 long text in the input line");
    for (width, height) in [(1, 1), (2, 3), (7, 5), (20, 8), (80, 2), (300, 100)] {
        assert!(!played.screen(width, height).is_empty());
    }
}

// Row M6: what a model or a tool writes never moves the cursor.
#[test]
fn m6_control_characters_do_not_reach_the_terminal() {
    let mut played = play("type x\nkey enter");
    played.go_on("call \u{1b}[2J {\"\\u001b]0;t\\u0007\": \"\\u001b[31m\"}");
    played.go_on("result \u{1b}[2J\u{8}");
    played.go_on("say \u{1b}[2J`\u{1b}c`\nthink \u{1b}[1A\nkey ctrl-r");
    let screen = played.screen(80, 24);
    assert!(
        !screen.chars().any(|one| one.is_control() && one != '\n'),
        "{screen:?}"
    );
}
