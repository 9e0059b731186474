//! Writes the small labelled set that the repository ships: ten questions of each of eight
//! kinds, made by rule, labels computed and not asked of a model.
//!
//! `cargo run -p twopass-measure --example arithmetic_logic > examples/sweep/arithmetic-logic.jsonl`
#![expect(clippy::print_stdout, reason = "the data goes to stdout")]

use serde_json::{Value, json};

const PER_KIND: usize = 10;
const NAMES: [&str; 8] = ["Ann", "Bob", "Cem", "Dora", "Eli", "Fay", "Gus", "Hana"];
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

fn main() {
    print!("{}", lines());
}

/// Makes one question.
type Make = fn(&mut Random) -> Value;

/// The whole set as JSON lines.
pub(crate) fn lines() -> String {
    let kinds: [(&str, Make); 8] = [
        ("sum", sum),
        ("story", story),
        ("product", product),
        ("series", series),
        ("order", order),
        ("weekday", weekday),
        ("modus", modus),
        ("sort", sort),
    ];
    let mut random = Random(20_261_128);
    let mut known = Vec::new();
    let mut text = String::new();
    for (kind, make) in kinds {
        let mut number = 0;
        while number < PER_KIND {
            let mut line = make(&mut random);
            if known.contains(&line["prompt"]) {
                continue;
            }
            known.push(line["prompt"].clone());
            number += 1;
            line["id"] = json!(format!("{kind}-{number}"));
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

/// A linear congruential generator: the same set everywhere.
struct Random(u64);

impl Random {
    fn from(&mut self, low: u32, high: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        low + (self.0 >> 33) as u32 % (high - low + 1)
    }

    /// The first so many of the choices in a random order.
    fn several<T: Copy>(&mut self, choices: &[T], n_wanted: usize) -> Vec<T> {
        let mut rest = choices.to_vec();
        let pick = |_| {
            let last = rest.len().saturating_sub(1) as u32;
            rest.swap_remove(self.from(0, last) as usize)
        };
        (0..n_wanted).map(pick).collect()
    }
}

fn sum(random: &mut Random) -> Value {
    let (a, b, c) = (random.from(21, 89), random.from(11, 69), random.from(3, 29));
    json!({
        "prompt": format!("What is {a} + {b} - {c}? Answer with the number only."),
        "answer": a + b - c,
    })
}

fn story(random: &mut Random) -> Value {
    let (boxes, pens, sold) = (random.from(4, 12), random.from(5, 12), random.from(6, 19));
    json!({
        "prompt": format!(
            "A shop has {boxes} boxes with {pens} pens each. It sells {sold} pens. How many pens are left? \
             Answer with the number only."
        ),
        "answer": boxes * pens - sold,
    })
}

fn product(random: &mut Random) -> Value {
    let (a, b) = (random.from(12, 29), random.from(3, 9));
    json!({
        "prompt": format!("What is {a} times {b}? Answer with the number only."),
        "answer": a * b,
    })
}

fn series(random: &mut Random) -> Value {
    let (start, step) = (random.from(2, 20), random.from(3, 12));
    let shown: Vec<String> = (0..4).map(|at| (start + at * step).to_string()).collect();
    json!({
        "prompt": format!(
            "Which number comes next: {}, ...? Answer with the number only.",
            shown.join(", ")
        ),
        "answer": start + 4 * step,
    })
}

fn order(random: &mut Random) -> Value {
    let people = random.several(&NAMES, 3);
    let [tall, middle, short] = [people[0], people[1], people[2]];
    let (first, second) = (
        format!("{tall} is taller than {middle}."),
        format!("{middle} is taller than {short}."),
    );
    let facts = match random.from(0, 1) {
        0 => format!("{first} {second}"),
        _ => format!("{second} {first}"),
    };
    let (asked, name) = match random.from(0, 1) {
        0 => ("tallest", tall),
        _ => ("shortest", short),
    };
    json!({
        "prompt": format!("{facts} Who is the {asked}? Answer with the name only."),
        "answer": name,
    })
}

fn weekday(random: &mut Random) -> Value {
    let (today, ahead) = (random.from(0, 6), random.from(3, 20));
    let day = DAYS[((today + ahead) % 7) as usize];
    json!({
        "prompt": format!(
            "Today is {}. Which day of the week is it in {ahead} days? Answer with the day only.",
            DAYS[today as usize]
        ),
        "answer": day,
        "match": "contains",
    })
}

fn modus(random: &mut Random) -> Value {
    // Of a rule "if A then B": A, so B; not B, so not A.
    let rules = [
        (
            "it rains",
            "the street is wet",
            "the street is not wet",
            "it does not rain",
        ),
        (
            "the lamp is on",
            "the room is bright",
            "the room is not bright",
            "the lamp is not on",
        ),
        (
            "the alarm rings",
            "the dog barks",
            "the dog does not bark",
            "the alarm does not ring",
        ),
        (
            "the shop is open",
            "the door is unlocked",
            "the door is not unlocked",
            "the shop is not open",
        ),
        (
            "the river floods",
            "the bridge is closed",
            "the bridge is not closed",
            "the river does not flood",
        ),
    ];
    let (cause, effect, no_effect, no_cause) =
        rules[random.from(0, rules.len() as u32 - 1) as usize];
    let (fact, claim, holds) = match random.from(0, 3) {
        0 => (cause, effect, "yes"),
        1 => (cause, no_effect, "no"),
        2 => (no_effect, no_cause, "yes"),
        _ => (no_effect, cause, "no"),
    };
    json!({
        "prompt": format!(
            "Whenever {cause}, {effect}. Now {fact}. Does it follow that {claim}? Answer yes or no."
        ),
        "answer": format!("(?i)^\\W*{holds}\\b"),
        "match": "regex",
    })
}

fn sort(random: &mut Random) -> Value {
    let numbers: Vec<u32> = (2..60).collect();
    let numbers = random.several(&numbers, 4);
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    let shown: Vec<String> = numbers.iter().map(u32::to_string).collect();
    json!({
        "prompt": format!(
            "Sort these numbers, the smallest first: {}. Answer with a JSON array of numbers only.",
            shown.join(", ")
        ),
        "answer": sorted,
    })
}
