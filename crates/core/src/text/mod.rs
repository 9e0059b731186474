//! Bytes to characters, markers, and JSON read piece by piece.
//!
//! Everything that looks at model text byte by byte lives here, so that the rule for holding
//! text back exists once. Invariant: no reader here looks at a byte more than a constant
//! number of times, and none fails on any input.

mod boundary;
mod byte_set;
mod json;
mod marker;
mod python_json;
mod stop_matcher;
mod utf8;

pub use boundary::{JsonBoundary, JsonEvent};
pub(crate) use byte_set::ByteSet;
pub use byte_set::find_byte;
pub(crate) use json::whole_json;
pub use json::{
    ArgumentError, DecodedArguments, JsonLimits, decode_arguments, read_json, read_lenient,
};
pub use marker::{MAX_TAG_SPACES, Marker, MarkerMatch, MarkerScanner, Scan};
pub use python_json::to_python_json;
pub use stop_matcher::StopMatcher;
pub use utf8::Utf8Assembler;

/// The longest start of `text` that has at most `max_bytes` bytes and ends at a character.
#[must_use]
pub fn prefix_within(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
