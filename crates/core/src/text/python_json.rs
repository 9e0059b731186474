//! JSON text as Python's `json.dumps(.., ensure_ascii=False)` writes it: templates and
//! models were trained on `", "` and `": "`, and on unescaped `<`, `>`, `&` and `'`.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

/// The value as Python prints it; `indent` = spaces per level, or one line.
#[must_use]
pub fn to_python_json(value: &Value, indent: Option<usize>) -> String {
    let mut bytes = Vec::new();
    let done = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, PythonFormatter)),
        Some(width) => {
            let spaces = " ".repeat(width);
            let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))
        }
    };
    match (done, String::from_utf8(bytes)) {
        (Ok(()), Ok(text)) => text,
        // Writing a JSON value into memory does not fail; the compact form is as good.
        _ => value.to_string(),
    }
}
