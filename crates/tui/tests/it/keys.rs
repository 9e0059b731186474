//! What keys do.

use twopass_tools::Consent;
use twopass_tui::{Command, Effect};

use crate::play::play;

fn consent(consent: Consent) -> Effect {
    Effect::Consent {
        call_id: "call_1".to_owned(),
        consent,
    }
}

#[test]
fn scripts_have_their_effects() {
    let send = |text: &str| Effect::Send(text.to_owned());
    let working = "type go\nkey enter";
    let table: [(&str, Vec<Effect>); 17] = [
        ("type hello\nkey enter", vec![send("hello")]),
        ("key enter", vec![]),
        (
            "type a\nkey alt-enter\ntype b\nkey ctrl-j\ntype c\nkey enter",
            vec![send("a\nb\nc")],
        ),
        ("paste x\\ny\nkey enter", vec![send("x\ny")]),
        (
            "type ab\nkey left\nkey back\ntype z\nkey end\ntype !\nkey enter",
            vec![send("zb!")],
        ),
        (
            "type one two\nkey ctrl-w\ntype three\nkey enter",
            vec![send("one three")],
        ),
        (
            "type äöü\nkey left\nkey left\nkey delete\nkey enter",
            vec![send("äü")],
        ),
        (
            "type junk\nkey ctrl-u\ntype ok\nkey enter",
            vec![send("ok")],
        ),
        ("type /quit\nkey enter", vec![Effect::Quit]),
        (
            "type /memory\nkey enter",
            vec![Effect::Run(Command::Memory)],
        ),
        (
            "type /no/path is text\nkey enter",
            vec![send("/no/path is text")],
        ),
        // One interrupt ends the turn, a second one leaves; too late it does not.
        (
            &format!("{working}\nkey ctrl-c"),
            vec![send("go"), Effect::Cancel],
        ),
        (
            &format!("{working}\nkey ctrl-c\nwait 1000\nkey ctrl-c"),
            vec![send("go"), Effect::Cancel, Effect::Quit],
        ),
        ("key ctrl-c\nwait 1600\nkey ctrl-c", vec![]),
        (
            &format!("{working}\nkey esc"),
            vec![send("go"), Effect::Cancel],
        ),
        // While a turn is under way nothing else is sent, and what was typed is kept.
        (
            &format!("{working}\ntype more\nkey enter\nend answer\nkey enter"),
            vec![send("go"), send("more")],
        ),
        ("key ctrl-d", vec![Effect::Quit]),
    ];
    for (script, effects) in table {
        assert_eq!(play(script).effects, effects, "{script}");
    }
}

#[test]
fn consent_is_given_once_always_or_not() {
    let ask = "type go\nkey enter\nask execute_bash {\"command\": \"ls\"}\nwait 1000";
    let always = vec![
        Effect::Allow("execute_bash".to_owned()),
        consent(Consent::Given),
    ];
    let table = [
        ("key y", vec![consent(Consent::Given)]),
        ("key n", vec![consent(Consent::Denied)]),
        ("key A", always),
        ("key a\nkey Y\nkey N", vec![]),
        ("key esc", vec![Effect::Cancel]),
        ("key x\nkey enter", vec![]),
        ("key ctrl-c", vec![Effect::Cancel]),
    ];
    for (keys, effects) in table {
        let played = play(&format!("{ask}\n{keys}"));
        assert_eq!(played.effects[1..], effects, "{keys}");
    }
}

// Who types while the question comes up does not answer it; what was typed is kept.
#[test]
fn keys_typed_ahead_answer_no_question() {
    let ask = "type go\nkey enter\ntype than\nask execute_bash {\"command\": \"ls\"}";
    let played = play(&format!("{ask}\ntype ks, yes An\nwait 600\ntype y"));
    assert_eq!(played.effects[1..], []);
    let slow = format!("{ask}\ntype k\nwait 900\nkey y\ntype ou\nend answer\nkey enter");
    let sent = Effect::Send("thankyou".to_owned());
    assert_eq!(play(&slow).effects[1..], [sent]);
    let cleared = format!("{ask}\nkey ctrl-u\nwait 700\nkey y");
    assert_eq!(play(&cleared).effects[1..], [consent(Consent::Given)]);
    // A key that is held answers one question.
    let two = "type go\nkey enter\nask read_file {}\nask execute_bash {}\nwait 1000";
    let held = format!("{two}\nkey y\nkey y\nkey y");
    assert_eq!(play(&held).effects[1..], [consent(Consent::Given)]);
}

#[test]
fn a_turn_is_not_left_by_accident() {
    let working = "type go\nkey enter\nkey ctrl-d";
    assert_eq!(play(working).effects.len(), 1);
    let ended = format!("{working}\nend answer\nkey ctrl-d");
    assert_eq!(play(&ended).effects.last(), Some(&Effect::Quit));
    let told = format!("{working}\nterminate");
    assert_eq!(play(&told).effects.last(), Some(&Effect::Quit));
}

#[test]
fn the_history_comes_back_and_a_draft_is_kept() {
    let sent = "type one\nkey enter\nend answer\ntype two\nkey enter\nend answer\n";
    let table = [
        ("key up\nkey enter", "two"),
        ("key up\nkey up\nkey enter", "one"),
        ("key up\nkey up\nkey up\nkey enter", "one"),
        (
            "type draft\nkey up\nkey up\nkey down\nkey down\nkey enter",
            "draft",
        ),
        (
            "type a\nkey alt-enter\ntype b\nkey up\ntype x\nkey enter",
            "ax\nb",
        ),
    ];
    for (keys, expected) in table {
        let played = play(&format!("{sent}{keys}"));
        let last = played.effects.last().cloned();
        assert_eq!(last, Some(Effect::Send(expected.to_owned())), "{keys}");
    }
}
