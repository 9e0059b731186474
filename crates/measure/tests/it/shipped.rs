//! The set of `examples/sweep`: what the rule makes, with labels that another way of solving
//! the questions finds too.

use twopass_measure::dataset::Dataset;

use crate::arithmetic_logic::lines;

const SHIPPED: &str = include_str!("../../../../examples/sweep/arithmetic-logic.jsonl");

#[test]
fn the_file_is_what_the_rule_makes() {
    assert!(SHIPPED == lines(), "write it anew with the example");
    let set = Dataset::read(SHIPPED, "arithmetic-logic.jsonl").unwrap();
    assert_eq!(set.items.len(), 80);
    let mut prompts: Vec<_> = set
        .items
        .iter()
        .map(|item| item.messages[0].content_text())
        .collect();
    prompts.sort();
    prompts.dedup();
    assert_eq!(prompts.len(), 80, "each question once");
}

#[test]
fn labels_are_right() {
    let set = Dataset::read(SHIPPED, "arithmetic-logic.jsonl").unwrap();
    for item in &set.items {
        let prompt = item.messages[0].content_text();
        let answer = solve(&item.id, &prompt);
        assert!(item.expected.fits(&answer), "{prompt} {answer}");
        assert!(!item.expected.fits("I do not know"), "{prompt}");
    }
}

/// Reads the question's text alone, by other means than the rule that made it.
fn solve(id: &str, prompt: &str) -> String {
    let numbers: Vec<i64> = prompt
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    match id.split('-').next().unwrap() {
        "sum" => (numbers[0] + numbers[1] - numbers[2]).to_string(),
        "story" => {
            // Box by box.
            let all: i64 = (0..numbers[0]).map(|_| numbers[1]).sum();
            (all - numbers[2]).to_string()
        }
        "product" => (0..numbers[1]).map(|_| numbers[0]).sum::<i64>().to_string(),
        "series" => (2 * numbers[3] - numbers[2]).to_string(),
        "order" => order(prompt),
        "weekday" => weekday(prompt, numbers[0]),
        "modus" => modus(prompt),
        "sort" => {
            let mut sorted = Vec::new();
            for number in numbers {
                let at = sorted.iter().take_while(|known| **known < number).count();
                sorted.insert(at, number);
            }
            format!("{sorted:?}")
        }
        other => panic!("unknown kind {other}"),
    }
}

/// Counts who is taller than whom.
fn order(prompt: &str) -> String {
    let sentences: Vec<&str> = prompt.split(". ").collect();
    let pairs: Vec<(&str, &str)> = sentences
        .iter()
        .filter_map(|sentence| sentence.split_once(" is taller than "))
        .collect();
    let (mut taller, mut shorter): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (one, other) = (taller.clone(), shorter.clone());
    taller.retain(|name| !other.contains(name));
    shorter.retain(|name| !one.contains(name));
    let asked = if prompt.contains("tallest") {
        taller
    } else {
        shorter
    };
    assert_eq!(asked.len(), 1, "{prompt}");
    asked[0].to_owned()
}

/// Goes on day by day.
fn weekday(prompt: &str, ahead: i64) -> String {
    let next = |day: &str| match day {
        "Monday" => "Tuesday",
        "Tuesday" => "Wednesday",
        "Wednesday" => "Thursday",
        "Thursday" => "Friday",
        "Friday" => "Saturday",
        "Saturday" => "Sunday",
        "Sunday" => "Monday",
        other => panic!("no day: {other}"),
    };
    let mut day = prompt["Today is ".len()..].split('.').next().unwrap();
    for _ in 0..ahead {
        day = next(day);
    }
    format!("It is {day}.")
}

/// All cases in which the rule and the fact hold: the claim follows if it holds in each.
fn modus(prompt: &str) -> String {
    let (rule, rest) = prompt.split_once(". Now ").unwrap();
    let (fact, rest) = rest.split_once(". Does it follow that ").unwrap();
    let claim = rest.split('?').next().unwrap();
    let (cause, effect) = rule["Whenever ".len()..].split_once(", ").unwrap();
    // A sentence in one case: what it speaks of, denied or not.
    let is_denied = |text: &str| text.contains(" not ");
    let same_matter = |text: &str, of: &str| {
        text.split(' ').nth(1) == of.split(' ').nth(1)
            && text.split(' ').next() == of.split(' ').next()
    };
    let holds = |text: &str, (causes, effects): (bool, bool)| {
        let positive = if same_matter(text, cause) {
            causes
        } else {
            assert!(same_matter(text, effect), "{text}");
            effects
        };
        positive != is_denied(text)
    };
    let cases = [(false, false), (false, true), (true, false), (true, true)];
    let mut possible = cases
        .into_iter()
        .filter(|case| (!case.0 || case.1) && holds(fact, *case));
    let follows = possible.all(|case| holds(claim, case));
    if follows { "Yes." } else { "No, it does not." }.to_owned()
}
