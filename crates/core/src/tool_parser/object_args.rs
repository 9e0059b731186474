//! A call's arguments where each has a notation of its own.

use serde_json::{Map, Value};

use super::calls::{ArgumentBody, Calls};
use crate::chat::Event;
use crate::text::to_python_json;

/// Arguments of the open call, each shown when it is whole.
#[derive(Default)]
pub(crate) struct ObjectArgs {
    object: Map<String, Value>,
    /// More than the object has if a key came twice.
    n_read: usize,
    fault: Option<String>,
}

impl ObjectArgs {
    pub(crate) fn n_read(&self) -> usize {
        self.n_read
    }

    /// One more argument; the text that was shown of it.
    pub(crate) fn add(
        &mut self,
        key: String,
        value: Value,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> String {
        let head = if self.n_read == 0 { "{" } else { ", " };
        self.n_read += 1;
        let name = Value::from(key.as_str());
        let piece = format!("{head}{name}: {}", to_python_json(&value, None));
        calls.delta(&piece, out);
        self.object.insert(key, value);
        piece
    }

    /// An argument cannot be read: the call ends as malformed. The first reason counts.
    pub(crate) fn fail(&mut self, message: String) {
        self.fault.get_or_insert(message);
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    /// Ends the call. `raw`: its text, for the report of a fault.
    pub(crate) fn end(&mut self, raw: &str, calls: &mut Calls, out: &mut Vec<Event>) {
        let Self {
            object,
            n_read,
            fault,
        } = std::mem::take(self);
        if let Some(message) = fault {
            let raw = raw.to_owned();
            calls.end(ArgumentBody::Malformed { raw, message }, out);
            return;
        }
        calls.delta(if n_read == 0 { "{}" } else { "}" }, out);
        let repaired = false;
        calls.end(ArgumentBody::Object { object, repaired }, out);
    }
}
