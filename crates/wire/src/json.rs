//! JSON objects read field by field, so that every error can name its place.
//!
//! Parts that only pass through stay text (`RawValue`): call arguments keep integers beyond
//! 64 bits and the order of their keys.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use twopass_core::chat::BadRequest;

/// A JSON object whose values have not been read yet, and where it stands.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    path: String,
    map: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    /// Reads an object from text.
    pub(crate) fn read(path: impl Into<String>, text: &'a str) -> Result<Self, BadRequest> {
        let path = path.into();
        match serde_json::from_str(text) {
            Ok(map) => Ok(Self { path, map }),
            Err(error) if error.is_data() => Err(BadRequest::new(
                path,
                format!("must be an object, got {}", brief(text)),
            )),
            Err(error) => Err(BadRequest::new(path, format!("is not JSON: {error}"))),
        }
    }

    /// The place of a field, as a caller would write it.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() || self.path == "body" {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// A field's text; absent and null are the same.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.map
            .get(name)
            .map(|raw| raw.get().trim())
            .filter(|text| *text != "null")
    }

    /// A field's value; absent and null are the same.
    pub(crate) fn value(&self, name: &str) -> Result<Option<Value>, BadRequest> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        serde_json::from_str(raw).map(Some).map_err(|error| {
            BadRequest::new(self.path_of(name), format!("cannot be read: {error}"))
        })
    }

    pub(crate) fn fault(&self, name: &str, allowed: &str) -> BadRequest {
        let got = self.raw(name).map_or_else(|| "nothing".to_owned(), brief);
        BadRequest::new(self.path_of(name), format!("must be {allowed}, got {got}"))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, BadRequest> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.fault(name, "a string")),
        }
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, BadRequest> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.fault(name, "true or false")),
        }
    }

    pub(crate) fn float(&self, name: &str) -> Result<Option<f32>, BadRequest> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Number(number)) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "sampling values need no more"
                )]
                let value = number.as_f64().map(|value| value as f32);
                value
                    .filter(|value| value.is_finite())
                    .map(Some)
                    .ok_or_else(|| self.fault(name, "a number"))
            }
            Some(_) => Err(self.fault(name, "a number")),
        }
    }

    /// A whole number from `least` to `most`; `8.0` counts as 8.
    pub(crate) fn whole(
        &self,
        name: &str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, BadRequest> {
        let Some(value) = self.value(name)? else {
            return Ok(None);
        };
        let whole = match &value {
            Value::Number(number) => number
                .as_u64()
                .or_else(|| number.as_f64().and_then(whole_float)),
            _ => None,
        };
        match whole {
            Some(whole) if (least..=most).contains(&whole) => Ok(Some(whole)),
            Some(whole) if whole > most => {
                Err(self.fault(name, &format!("a whole number from {least} to {most}")))
            }
            _ => Err(self.fault(name, &format!("a whole number of at least {least}"))),
        }
    }

    /// A cap in tokens.
    pub(crate) fn cap(&self, name: &str, least: u32) -> Result<Option<u32>, BadRequest> {
        let value = self.whole(name, u64::from(least), u64::from(u32::MAX))?;
        Ok(value.and_then(|value| u32::try_from(value).ok()))
    }

    /// The elements of an array, unread, with their places.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<(String, &'a str)>, BadRequest> {
        let Some(raw) = self.raw(name) else {
            return Ok(Vec::new());
        };
        let items: Vec<&'a RawValue> =
            serde_json::from_str(raw).map_err(|_| self.fault(name, "an array"))?;
        let path = self.path_of(name);
        Ok(items
            .into_iter()
            .enumerate()
            .map(|(idx, item)| (format!("{path}[{idx}]"), item.get().trim()))
            .collect())
    }
}

fn whole_float(value: f64) -> Option<u64> {
    // 2^53: beyond it a float no longer says which whole number was meant.
    if value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        return Some(value as u64);
    }
    None
}

/// What was given, short enough for a message: scalars as they stand, the rest by kind.
pub(crate) fn brief(text: &str) -> String {
    match text.as_bytes().first() {
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "an array".to_owned(),
        Some(b'"') if text.len() > 42 => "a longer string".to_owned(),
        _ => format!("`{}`", text.chars().take(40).collect::<String>()),
    }
}
