use super::*;

fn rule(budget_tokens: u32) -> ThinkingRule {
    ThinkingRule {
        tag: ThinkTag::Think,
        budget_tokens,
        close_text: "\n</think>\n\n".to_owned(),
        call_open: Some("<tool_call>".to_owned()),
        call_close: Some("</tool_call>".to_owned()),
    }
}

/// Runs pieces through a budget as an engine does and returns the text, with `|` where
/// the close was forced, and the state at the end.
fn run(budget_tokens: u32, pieces: &[&[u8]]) -> (String, ThinkingBudget) {
    let mut budget = ThinkingBudget::new(rule(budget_tokens));
    let mut taken: Vec<&[u8]> = Vec::new();
    for &piece in pieces {
        match budget.admit(piece, piece == b"EOG") {
            Admission::Refuse => continue,
            Admission::CloseInstead => {
                taken.push(b"|");
                budget.handle_closed();
                continue;
            }
            Admission::Accept if piece == b"EOG" => break,
            Admission::Accept => {}
        }
        taken.push(piece);
        if let After::Close { undo_tokens } = budget.handle_token(piece) {
            taken.truncate(taken.len() - undo_tokens as usize);
            taken.push(b"|");
            budget.handle_closed();
        }
    }
    let text = taken.concat();
    (String::from_utf8_lossy(&text).into_owned(), budget)
}

// Row D3: the close is forced at the cap and only there.
#[test]
fn d3_close_forced_at_the_cap() {
    let (text, budget) = run(2, &[b"a", b"b", b"c"]);
    assert_eq!(text, "ab|c");
    assert_eq!((budget.thinking_tokens(), budget.truncated()), (2, true));
}

#[test]
fn d2_model_closes_in_time() {
    let (text, budget) = run(9, &[b"a", b"</", b"think", b">", b"b"]);
    assert_eq!(text, "a</think>b");
    assert_eq!((budget.thinking_tokens(), budget.truncated()), (1, false));
    assert_eq!(budget.phase(), Phase::Answering);
}

#[test]
fn d3_closing_tag_of_several_tokens_may_cross_the_cap() {
    let (text, budget) = run(2, &[b"a", b".</", b"think", b">\n", b"b"]);
    assert_eq!(text, "a.</think>\nb");
    assert_eq!((budget.thinking_tokens(), budget.truncated()), (2, false));
}

#[test]
fn d3_what_only_looked_like_a_close_is_taken_back_at_the_cap() {
    let (text, budget) = run(1, &[b"a", b"b"]);
    assert_eq!(text, "a|b");
    let (text, budget2) = run(2, &[b"a", b"<", b"/th", b"ank", b"b"]);
    assert_eq!(text, "a<|b");
    assert_eq!(budget2.thinking_tokens(), 2);
    assert_eq!(budget.thinking_tokens(), 1);
}

#[test]
fn d3_character_is_never_split_and_the_cap_holds() {
    let (text, budget) = run(2, &[b"a", b"\xF0\x9F", b"b"]);
    assert_eq!(text, "a|b");
    assert_eq!((budget.thinking_tokens(), budget.truncated()), (1, true));
    let (text, budget) = run(3, &[b"a", b"\xF0\x9F", b"\x98\x80", b"b"]);
    assert_eq!(text, "a\u{1F600}|b");
    assert_eq!(budget.thinking_tokens(), 3);
}

#[test]
fn d13_zero_budget_starts_in_the_answer_and_refuses_blocks() {
    let (text, budget) = run(0, &[b"<", b"think", b">", b"b"]);
    assert_eq!(text, "<>b");
    assert_eq!((budget.thinking_tokens(), budget.truncated()), (0, false));
}

// Row D5: what is refused is refused whole, so that no half tag ends the answer.
#[test]
fn d5_spent_budget_refuses_a_tag_from_its_first_telling_piece() {
    let spent: &[(&[&[u8]], &str)] = &[
        (&[b"\n<", b"thi", b"n", b"k", b">"], "a|\n<nk>"),
        (&[b"\n<think", b">x"], "a|>x"),
        (&[b"\n<THINK >", b"b"], "a|b"),
        (&[b"</tool_call>", b"<think>", b"b"], "a|</tool_call>b"),
        (&[b"as <think", b"> says"], "a|as <think> says"),
        (&[b"\n<th", b">\n", b"<thing>"], "a|\n<th>\n<thing>"),
    ];
    for (pieces, expected) in spent {
        let all: Vec<&[u8]> = std::iter::once::<&[u8]>(b"a")
            .chain(pieces.iter().copied())
            .collect();
        let (text, budget) = run(1, &all);
        assert_eq!(&text, expected);
        assert_eq!(budget.thinking_tokens(), 1);
    }
}

#[test]
fn further_blocks_share_the_budget() {
    let (text, budget) = run(
        3,
        &[b"a", b"</think>", b"x\n", b"<think>", b"b", b"c", b"d"],
    );
    assert_eq!(text, "a</think>x\n<think>bc|d");
    assert_eq!(budget.thinking_tokens(), 3);
}

#[test]
fn end_of_turn_inside_the_thought_is_a_close() {
    let (text, budget) = run(9, &[b"a", b"EOG", b"b", b"EOG", b"c"]);
    assert_eq!(text, "a|b");
    assert!(!budget.truncated());
}

#[test]
fn backticked_close_is_a_mention() {
    let (text, budget) = run(9, &[b"a `", b"</think>", b"`", b" b", b"</think>", b"c"]);
    assert_eq!(text, "a `</think>` b</think>c");
    assert_eq!(budget.thinking_tokens(), 4);
    assert_eq!(budget.phase(), Phase::Answering);
}

#[test]
fn call_in_the_thought_is_not_cut() {
    let call: &[&[u8]] = &[
        b"a\n",
        b"<tool_call>",
        b"{",
        b"1",
        b"}",
        b"</tool_call>",
        b"EOG",
    ];
    let (text, budget) = run(3, call);
    assert_eq!(text, "a\n<tool_call>{1}</tool_call>");
    assert_eq!(budget.phase(), Phase::CallInThought);
    assert!(!budget.truncated());
    let more: &[&[u8]] = &[
        b"a\n",
        b"<tool_call>",
        b"{",
        b"1",
        b"}",
        b"</tool_call>",
        b"x",
        b"y",
    ];
    let (text, budget) = run(3, more);
    assert_eq!(text, "a\n<tool_call>{1}</tool_call>|y");
    assert!(budget.truncated());
}
