//! Bounds of numbers in the form in which a grammar keeps them exactly.

use serde_json::{Map, Number, Value};

use super::forms::rewrite;

/// Integers up to here are the same in a double.
const EXACT: i128 = 1 << 53;
/// Largest double below 2^63: grammars count in 64 bits.
const LARGEST: i128 = (1 << 63) - 1024;
/// How far an exclusive bound of a number is moved inwards, of its size and at least of 1.
const HAIR: f64 = 1e-9;

/// Narrows the bounds of numbers so that a grammar that reads them as doubles and writes any
/// number of digits lets nothing through that they forbid. What fits the result fits `schema`.
///
/// Integers get inclusive bounds that a double holds exactly, so some beyond 2^53 next to a
/// bound can no longer be written. An exclusive bound of a number becomes an inclusive one a
/// billionth further in: `0.99999999999999999999` reads as 1. Where nothing would be left
/// the bounds stay.
pub(super) fn narrow_numbers(schema: &Value) -> Value {
    let mut narrowed = schema.clone();
    rewrite(&mut narrowed, &mut |members| {
        let has_bound = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
            .iter()
            .any(|key| members.get(*key).is_some_and(Value::is_number));
        if !has_bound {
            return;
        }
        let has_type = |name: &str| match members.get("type") {
            Some(Value::Array(names)) => names.iter().any(|known| known == name),
            one => one.is_some_and(|one| one == name),
        };
        match has_type("integer") && !has_type("number") {
            true => narrow_integer(members),
            false => narrow_number(members),
        }
    });
    narrowed
}

fn narrow_integer(members: &mut Map<String, Value>) {
    let low = [
        bound(members, "minimum", Round::Up),
        bound(members, "exclusiveMinimum", Round::Down).map(|low| low + 1),
    ];
    let high = [
        bound(members, "maximum", Round::Down),
        bound(members, "exclusiveMaximum", Round::Up).map(|high| high - 1),
    ];
    let low = low.into_iter().flatten().max();
    let high = high.into_iter().flatten().min();
    if low.is_some_and(|low| low > LARGEST) || high.is_some_and(|high| high < -LARGEST) {
        return;
    }
    let low = low.map(exact_from);
    let high = high.map(|high| -exact_from(-high));
    // Without an end the digits of a large bound overflow.
    let low = low.or_else(|| high.filter(|high| *high < -EXACT).map(|_| -LARGEST));
    let high = high.or_else(|| low.filter(|low| *low > EXACT).map(|_| LARGEST));
    if low.zip(high).is_some_and(|(low, high)| low > high) {
        return;
    }
    set(members, low.map(integer), high.map(integer));
}

fn narrow_number(members: &mut Map<String, Value>) {
    let read = |key: &str| members.get(key).and_then(Value::as_f64);
    let inwards = |key: &str, round: Round| members.get(key).and_then(|n| double(n, round));
    let hair = |bound: f64| bound.abs().max(1.0) * HAIR;
    let larger = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    let smaller = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
    let low = read("exclusiveMinimum").map(|low| low + hair(low));
    let high = read("exclusiveMaximum").map(|high| high - hair(high));
    let is_kept = |key: &str| !members.get(key).is_some_and(is_inexact);
    if low.is_none() && high.is_none() && is_kept("minimum") && is_kept("maximum") {
        return;
    }
    let low = larger(low, inwards("minimum", Round::Up));
    let high = smaller(high, inwards("maximum", Round::Down));
    if low.zip(high).is_some_and(|(low, high)| low > high) {
        return;
    }
    let number = |bound: f64| Number::from_f64(bound).map(Value::Number);
    set(members, low.and_then(number), high.and_then(number));
}

fn set(members: &mut Map<String, Value>, low: Option<Value>, high: Option<Value>) {
    members.shift_remove("exclusiveMinimum");
    members.shift_remove("exclusiveMaximum");
    for (key, bound) in [("minimum", low), ("maximum", high)] {
        if let Some(bound) = bound {
            members.insert(key.to_owned(), bound);
        }
    }
}

#[derive(Clone, Copy)]
enum Round {
    Up,
    Down,
}

fn bound(members: &Map<String, Value>, key: &str, round: Round) -> Option<i128> {
    let value = members.get(key)?;
    if let Some(whole) = value.as_i64() {
        return Some(whole.into());
    }
    if let Some(whole) = value.as_u64() {
        return Some(whole.into());
    }
    let number = value.as_f64()?;
    let number = match round {
        Round::Up => number.ceil(),
        Round::Down => number.floor(),
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, far beyond 64 bits"
    )]
    Some(number as i128)
}

/// The double next to a number on this side of it.
#[expect(clippy::cast_possible_truncation, reason = "below 2^65")]
fn double(value: &Value, round: Round) -> Option<f64> {
    let near = value.as_f64()?;
    let Some(whole) = whole(value) else {
        return Some(near);
    };
    let at = near as i128;
    Some(match round {
        Round::Up if at < whole => near.next_up(),
        Round::Down if at > whole => near.next_down(),
        _ => near,
    })
}

fn whole(value: &Value) -> Option<i128> {
    let signed = value.as_i64().map(i128::from);
    signed.or_else(|| value.as_u64().map(i128::from))
}

/// True for a whole number that no double holds, and for what holds one.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the loss is what is looked for; the values are below 2^65"
)]
pub(super) fn is_inexact(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(is_inexact),
        Value::Object(members) => members.values().any(is_inexact),
        number => whole(number).is_some_and(|n| (n as f64) as i128 != n),
    }
}

/// The smallest integer from `low` on that a double and 64 bits hold.
fn exact_from(low: i128) -> i128 {
    let low = low.clamp(-LARGEST, LARGEST);
    let bits = 128 - low.unsigned_abs().leading_zeros();
    let step = 1_i128 << bits.saturating_sub(53);
    let below = low.div_euclid(step) * step;
    if below < low { below + step } else { low }
}

fn integer(value: i128) -> Value {
    i64::try_from(value).map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m5_bounds_that_a_grammar_keeps() {
        let big = 9_007_199_254_740_993_i64;
        let rows = [
            (
                json!({"type": "integer", "minimum": 1, "maximum": 9}),
                json!({"type": "integer", "minimum": 1, "maximum": 9}),
            ),
            (
                json!({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9.5}),
                json!({"type": "integer", "minimum": 1, "maximum": 9}),
            ),
            (
                json!({"type": "integer", "minimum": big, "maximum": big + 6}),
                json!({"type": "integer", "minimum": big + 1, "maximum": big + 5}),
            ),
            (
                json!({"type": "integer", "minimum": -big - 6, "maximum": -big}),
                json!({"type": "integer", "minimum": -big - 5, "maximum": -big - 1}),
            ),
            (
                json!({"type": "integer", "minimum": u64::MAX}),
                json!({"type": "integer", "minimum": u64::MAX}),
            ),
            (
                json!({"type": "integer", "minimum": 5, "maximum": 1}),
                json!({"type": "integer", "minimum": 5, "maximum": 1}),
            ),
            (
                json!({"type": ["integer", "null"], "minimum": big, "maximum": big + 6}),
                json!({"type": ["integer", "null"], "minimum": big + 1, "maximum": big + 5}),
            ),
            (
                json!({"type": "number", "minimum": big, "maximum": big + 6}),
                json!({"type": "number", "minimum": 9_007_199_254_740_994.0, "maximum": 9_007_199_254_740_998.0}),
            ),
            (
                json!({"minimum": -big, "exclusiveMaximum": 1}),
                json!({"minimum": -9_007_199_254_740_992.0, "maximum": 1.0 - 1e-9}),
            ),
            (
                json!({"type": "number", "minimum": 0.1, "maximum": 1}),
                json!({"type": "number", "minimum": 0.1, "maximum": 1}),
            ),
            (
                json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
                json!({"type": "number", "minimum": 1e-9, "maximum": 1.0 - 1e-9}),
            ),
            (
                json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1e-12}),
                json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1e-12}),
            ),
            (
                json!({"items": {"type": "integer", "maximum": -big}}),
                json!({"items": {"type": "integer", "maximum": -big - 1, "minimum": -(i64::MAX - 1023)}}),
            ),
        ];
        for (given, expect) in rows {
            assert_eq!(narrow_numbers(&given), expect, "{given}");
        }
    }
}
