//! Bounds of numbers in the form in which a grammar keeps them exactly.

use serde_json::{Map, Number, Value};

use super::forms::rewrite;

/// Integers up to here are the same in a double.
const EXACT: i128 = 1 << 53;
/// Largest double below 2^63: grammars count in 64 bits.
const LARGEST: i128 = (1 << 63) - 1024;
/// Places behind the point that a grammar counts: beyond them it reads a bound as zero.
const MAX_PLACES: usize = 18;
/// The last of them.
const PLACE: f64 = 1e-18;
const BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/// How far an exclusive bound of a number is moved inwards, of its size and at least of 1.
const HAIR: f64 = 1e-9;

/// Narrows the bounds of numbers so that a grammar that reads them as doubles and writes any
/// number of digits lets nothing through that they forbid. What fits the result fits `schema`.
///
/// Integers get inclusive bounds that a double holds exactly, so some beyond 2^53 next to a
/// bound can no longer be written. An exclusive bound of a number becomes an inclusive one a
/// billionth further in: `0.99999999999999999999` reads as 1. Bounds of numbers lose what is
/// beyond 18 places or 64 bits. Where nothing would be left the bounds stay: see
/// [`unkept_bound`].
pub(super) fn narrow_numbers(schema: &Value) -> Value {
    let mut narrowed = schema.clone();
    rewrite(&mut narrowed, &mut |members| {
        if !has_bound(members) {
            return;
        }
        match is_integer(members) {
            true => narrow_integer(members),
            false => narrow_number(members),
        }
    });
    narrowed
}

/// The bound that [`narrow_numbers`] leaves though a grammar would read it wrongly: what lies
/// between this and the other one cannot be told apart in doubles.
pub(super) fn unkept_bound(members: &Map<String, Value>) -> Option<&'static str> {
    let is_kept = match is_integer(members) {
        _ if !has_bound(members) => true,
        true => {
            let (low, high) = integer_bounds(members);
            is_empty(low, high) || kept_integers(low, high).is_some()
        }
        false => {
            let (low, high) = number_bounds(members);
            let (least, most) = inclusive(members);
            is_empty(least, most) || !is_empty(low, high)
        }
    };
    let mut bounds = BOUNDS.into_iter();
    let mut stands = |key: &&str| members.get(*key).is_some_and(Value::is_number);
    if is_kept {
        None
    } else {
        bounds.find(&mut stands)
    }
}

fn has_bound(members: &Map<String, Value>) -> bool {
    let mut bounds = BOUNDS.iter();
    bounds.any(|key| members.get(*key).is_some_and(Value::is_number))
}

fn is_integer(members: &Map<String, Value>) -> bool {
    let has_type = |name: &str| match members.get("type") {
        Some(Value::Array(names)) => names.iter().any(|known| known == name),
        one => one.is_some_and(|one| one == name),
    };
    has_type("integer") && !has_type("number")
}

fn is_empty<T: PartialOrd>(low: Option<T>, high: Option<T>) -> bool {
    low.zip(high).is_some_and(|(low, high)| low > high)
}

/// The least and the largest integer.
fn integer_bounds(members: &Map<String, Value>) -> (Option<i128>, Option<i128>) {
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
    (low, high)
}

/// The integers' bounds that doubles and 64 bits hold, if anything is between them.
fn kept_integers(low: Option<i128>, high: Option<i128>) -> Option<(Option<i128>, Option<i128>)> {
    if low.is_some_and(|low| low > LARGEST) || high.is_some_and(|high| high < -LARGEST) {
        return None;
    }
    let low = low.map(exact_from);
    let high = high.map(|high| -exact_from(-high));
    // Without an end the digits of a large bound overflow.
    let low = low.or_else(|| high.filter(|high| *high < -EXACT).map(|_| -LARGEST));
    let high = high.or_else(|| low.filter(|low| *low > EXACT).map(|_| LARGEST));
    (!is_empty(low, high)).then_some((low, high))
}

fn narrow_integer(members: &mut Map<String, Value>) {
    let (low, high) = integer_bounds(members);
    if let Some((low, high)) = kept_integers(low, high).filter(|_| !is_empty(low, high)) {
        set(members, low.map(integer), high.map(integer));
    }
}

fn narrow_number(members: &mut Map<String, Value>) {
    let (low, high) = number_bounds(members);
    if !is_empty(low, high) {
        let number = |bound: f64| Number::from_f64(bound).map(Value::Number);
        let is_same = |key: &str, bound: Option<f64>| {
            members
                .get(key)
                .map(|old| old.as_f64().filter(|_| !is_inexact(old)))
                == bound.map(Some)
        };
        let has_exclusive =
            members.contains_key("exclusiveMinimum") || members.contains_key("exclusiveMaximum");
        if has_exclusive || !is_same("minimum", low) || !is_same("maximum", high) {
            set(members, low.and_then(number), high.and_then(number));
        }
    }
}

/// The bounds as they stand, whether they are in or out.
fn inclusive(members: &Map<String, Value>) -> (Option<f64>, Option<f64>) {
    let read = |key: &str| members.get(key).and_then(Value::as_f64);
    let lows = read("exclusiveMinimum").into_iter().chain(read("minimum"));
    let highs = read("exclusiveMaximum").into_iter().chain(read("maximum"));
    (lows.reduce(f64::max), highs.reduce(f64::min))
}

/// The numbers' bounds, moved inwards to what a grammar keeps.
fn number_bounds(members: &Map<String, Value>) -> (Option<f64>, Option<f64>) {
    let read = |key: &str| members.get(key).and_then(Value::as_f64);
    let inwards = |key: &str, round: Round| members.get(key).and_then(|n| double(n, round));
    // In a narrow space the hair is a quarter of it.
    let space = match inclusive(members) {
        (Some(low), Some(high)) => (high - low) / 4.0,
        _ => f64::INFINITY,
    };
    let hair = |bound: f64| (bound.abs().max(1.0) * HAIR).min(space);
    let larger = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    let smaller = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
    let low = read("exclusiveMinimum").map(|low| low + hair(low));
    let high = read("exclusiveMaximum").map(|high| high - hair(high));
    let low = larger(low, inwards("minimum", Round::Up));
    let high = smaller(high, inwards("maximum", Round::Down));
    (
        low.map(written_from),
        high.map(|high| -written_from(-high) + 0.0),
    )
}

/// The least number from `low` on that has few places and is not beyond 64 bits.
fn written_from(low: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a double by its making")]
    let low = low.max(-(LARGEST as f64));
    let text = format!("{low}");
    let Some((_, places)) = text.split_once('.').filter(|(_, p)| p.len() > MAX_PLACES) else {
        return low + 0.0;
    };
    let is_below_zero = low < 0.0;
    let kept = &text[..text.len() - (places.len() - MAX_PLACES)];
    let cut: f64 = kept.parse().unwrap_or(low);
    // Cutting digits off moves towards zero.
    let up = if is_below_zero || cut >= low {
        cut
    } else {
        cut + PLACE
    };
    // A sum may have more digits than it should.
    format!("{up:.MAX_PLACES$}").parse::<f64>().unwrap_or(up) + 0.0
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
                json!({"type": "number", "minimum": 2.5e-13, "maximum": 1e-12}),
            ),
            (
                json!({"type": "number", "minimum": 1e-21, "maximum": 1}),
                json!({"type": "number", "minimum": 1e-18, "maximum": 1.0}),
            ),
            (
                json!({"type": "number", "minimum": -1e-21, "maximum": 1e300}),
                json!({"type": "number", "minimum": 0.0, "maximum": 9_223_372_036_854_774_784.0}),
            ),
            (
                json!({"type": "number", "minimum": 1e-21, "maximum": 1e-20}),
                json!({"type": "number", "minimum": 1e-21, "maximum": 1e-20}),
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

    #[test]
    fn m5_bounds_that_no_grammar_keeps_are_named() {
        let big = 9_007_199_254_740_993_i64;
        for (schema, expect) in [
            (
                json!({"type": "integer", "minimum": big, "maximum": big}),
                Some("minimum"),
            ),
            (
                json!({"type": "integer", "minimum": big, "maximum": big + 1}),
                None,
            ),
            (json!({"type": "integer", "minimum": 3, "maximum": 2}), None),
            (
                json!({"type": "integer", "minimum": u64::MAX}),
                Some("minimum"),
            ),
            (
                json!({"type": "integer", "exclusiveMaximum": i64::MIN}),
                Some("exclusiveMaximum"),
            ),
            (
                json!({"type": "number", "minimum": 1e-21, "maximum": 1e-20}),
                Some("minimum"),
            ),
            (
                json!({"type": "number", "minimum": 0, "maximum": 1e-20}),
                None,
            ),
            (json!({"type": "number", "minimum": 1e300}), None),
        ] {
            let members = schema.as_object().unwrap();
            assert_eq!(unkept_bound(members), expect, "{schema}");
        }
    }
}
