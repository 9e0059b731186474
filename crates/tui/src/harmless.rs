//! Text of others on a terminal: shown, never obeyed.
//!
//! What models, tools, files and services say may hold escape sequences that move the cursor,
//! set the clipboard or hide text. Control characters are shown as the pictures that Unicode
//! has for them, marks that turn the direction of text round as a replacement character.

use std::borrow::Cow;
use std::io::IsTerminal;

/// Columns of a tabulator on the screen.
const TAB: &str = "    ";

/// Text for a terminal's lines: line ends and tabulators stay as they are.
fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter_map(shown).collect())
}

/// The text for whoever reads there: programs get it as it is.
#[must_use]
pub fn for_reader<'a>(text: &'a str, to: &impl IsTerminal) -> Cow<'a, str> {
    match to.is_terminal() {
        true => harmless(text),
        false => Cow::Borrowed(text),
    }
}

/// One line for the screen: nothing in it moves the cursor.
pub(crate) fn harmless_line(text: &str) -> String {
    harmless(text).replace('\n', " ").replace('\t', TAB)
}

fn is_obeyed(one: char) -> bool {
    (one.is_control() && !matches!(one, '\n' | '\t')) || turns_text(one)
}

/// Embeddings, overrides and isolates: with them a command can read other than it runs.
fn turns_text(one: char) -> bool {
    matches!(one, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn shown(one: char) -> Option<char> {
    match one {
        // Half of a line end.
        '\r' => None,
        '\n' | '\t' => Some(one),
        '\u{7f}' => Some('\u{2421}'),
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(one)),
        _ if one.is_control() || turns_text(one) => Some(char::REPLACEMENT_CHARACTER),
        _ => Some(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_shown_and_not_obeyed() {
        let table = [
            ("plain ü 你\tx\n", "plain ü 你\tx\n"),
            ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),
            ("a\x1b[2Jb\r\nc\x7f", "a␛[2Jb\nc␡"),
            ("\u{9b}31m", "\u{fffd}31m"),
            ("rm \u{202e}txt", "rm \u{fffd}txt"),
            ("👩\u{200d}🚀 \u{200f}", "👩\u{200d}🚀 \u{200f}"),
        ];
        for (text, expected) in table {
            assert_eq!(harmless(text), expected);
        }
        assert_eq!(harmless_line("a\n\tb"), "a     b");
    }
}
