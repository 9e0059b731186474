//! What holds for any text at all.

use proptest::prelude::*;
use serde_json::json;
use twopass_core::chat::{Event, ToolSpec};
use twopass_core::text::{JsonLimits, Utf8Assembler, decode_arguments};
use twopass_core::tool_parser::DIALECTS;

use crate::every_dialect::soup;
use crate::harness::{end, options, run};

fn tools() -> Vec<ToolSpec> {
    vec![ToolSpec {
        name: "f".to_owned(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}}),
    }]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 2, failure_persistence: None, ..ProptestConfig::default() })]

    // Row M1: any soup of markup gives one result, however it is cut.
    #[test]
    fn m1_chunk_invariance((row, text) in (0..DIALECTS.len()).prop_flat_map(|row| (Just(row), soup(&DIALECTS[row]))),
                           lens in proptest::collection::vec(1_usize..9, 0..40), length in any::<bool>(), auto in any::<bool>()) {
        let name = if auto { "auto" } else { DIALECTS[row].name };
        let options = options("think_tags", name, tools());
        let end = end(if length { "length" } else { "stop" }, None);
        let whole = run(&options, &end, text.as_bytes(), &[]);
        for lens in [lens, vec![1; text.len()]] {
            let cut = run(&options, &end, text.as_bytes(), &lens);
            prop_assert_eq!(&cut.reply, &whole.reply, "{} {:?}", name, text);
            if !whole.events.contains(&Event::Reclassified) && !cut.events.contains(&Event::Reclassified) {
                prop_assert_eq!(&cut.events, &whole.events, "{} {:?}", name, text);
            }
        }
    }

    // Row C7: text that holds no marker comes through unchanged, and little of it is held.
    #[test]
    fn c7_text_is_not_lost(words in proptest::collection::vec("[a-zA-Z<>/|_ .,:😀\n-]{0,12}", 0..20), row in 0..DIALECTS.len()) {
        let text = words.concat();
        let options = options("think_tags", DIALECTS[row].name, tools());
        let marked = DIALECTS[row].opens.iter().chain(DIALECTS[row].closes).any(|marker| text.contains(marker))
            || text.to_lowercase().contains("think");
        prop_assume!(!marked && !text.starts_with("all\n"));
        let cut = run(&options, &end("stop", None), text.as_bytes(), &vec![1; text.len()]);
        prop_assert_eq!(cut.reply.content.as_str(), text.trim());
        let longest = twopass_core::control::TurnParser::new(options).longest_marker_bytes();
        // Bodies without a marker wait for the name at the start of a line.
        if DIALECTS[row].raw == twopass_core::tool_parser::RawStart::No {
            prop_assert!(cut.most_held < longest.max(1), "held {} of {longest}", cut.most_held);
        }
    }

    // Row M1 for bytes: any bytes, any cut.
    #[test]
    fn m1_utf8(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 0_usize..64) {
        let read = |pieces: &[&[u8]]| {
            let mut utf8 = Utf8Assembler::new();
            let mut out = String::new();
            for piece in pieces {
                utf8.push(piece, &mut out);
            }
            utf8.finish(&mut out);
            (out, utf8.replaced())
        };
        let at = cut.min(bytes.len());
        prop_assert_eq!(read(&[&bytes[..at], &bytes[at..]]), read(&[&bytes]));
        prop_assert_eq!(read(&[&bytes]).0, String::from_utf8_lossy(&bytes).into_owned());
        let singles: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(read(&singles), read(&[&bytes]));
    }

    // Row I8: strict JSON is never repaired, and the readers never panic.
    #[test]
    fn i8_decode_arguments(text in "[\\[\\]{}\"':,a-zNT0-9\\\\ \n.-]{0,40}") {
        if let Ok(decoded) = decode_arguments(&text, &JsonLimits::default()) {
            let strict = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text);
            if let Ok(object) = strict {
                prop_assert!(!decoded.repaired);
                prop_assert_eq!(decoded.object, object);
            }
        }
    }
}

// Rows E16, M1: time grows with the length, not with its square.
#[test]
fn m1_linear_time() {
    let time = |text: &str, tools_name: &str| {
        let options = options("think_tags", tools_name, tools());
        let started = std::time::Instant::now();
        run(
            &options,
            &end("length", None),
            text.as_bytes(),
            &vec![4; text.len() / 4],
        );
        started.elapsed()
    };
    let floods: [(&str, &str, &str); 9] = [
        ("hermes", "", "<tool_call>"),
        ("hermes", "", "<tool_call>{\""),
        (
            "hermes",
            "",
            "<think><tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"",
        ),
        ("hermes", "", "<tool_call>{\"name\":\"f\"}x</tool_call "),
        (
            "qwen_xml",
            "",
            "<tool_call><function=f><parameter=s></parameter> ",
        ),
        ("auto", "", "[{\"name\": \"f\", (<|channel>"),
        ("pythonic", "", "\n[f(x=[\""),
        ("harmony", "", " "),
        ("qwen3_coder", "<think>\n<function=f>\n", "<parameter=a>\n"),
    ];
    for (name, head, piece) in floods {
        let short = head.to_owned() + &piece.repeat(60_000 / piece.len());
        let long = head.to_owned() + &piece.repeat(480_000 / piece.len());
        let (short, long) = (time(&short, name), time(&long, name));
        // 8 times the input; 40 times the time is far from the 64 of a square.
        let most = (short * 40).max(std::time::Duration::from_millis(400));
        assert!(
            long < most,
            "{name} {piece:?}: {short:?} for 60 KB, {long:?} for 480 KB"
        );
    }
}
