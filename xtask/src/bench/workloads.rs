//! What is asked of all servers, and the tables of it.

use std::collections::BTreeMap;

use super::Options;
use super::ask::{FIRST_TOKENS, Mode, Question, Rates, Side, measure};

/// One line of work: the same questions for every server, in every round.
pub(super) struct Workload {
    pub(super) label: String,
    pub(super) n_streams: usize,
    system: Option<Prefix>,
    prompt_words: usize,
    tokens: u32,
    mode: Mode,
    /// The figures that are printed.
    figures: &'static [Figure],
}

/// A beginning that questions share.
#[derive(Clone, Copy, PartialEq)]
enum Prefix {
    /// Never seen before.
    Cold,
    /// The one of the cold question before.
    Warm,
}

struct Figure {
    what: &'static str,
    get: fn(&Rates) -> f64,
    /// Times: less is better.
    is_time: bool,
}

const PREFILL: Figure = Figure {
    what: "prefill t/s",
    get: |rates| rates.prefill,
    is_time: false,
};
const DECODE: Figure = Figure {
    what: "decode t/s",
    get: |rates| rates.generation,
    is_time: false,
};
const ALL: Figure = Figure {
    what: "all t/s",
    ..DECODE
};
/// With the prompt in it, for answers that may come in one piece at the end.
const WHOLE: Figure = Figure {
    what: "whole t/s",
    get: |rates| rates.tokens as f64 * 1000.0 / rates.total_ms,
    is_time: false,
};
const FIRST: Figure = Figure {
    what: "first ms",
    get: |rates| rates.first_ms,
    is_time: true,
};
const TOTAL: Figure = Figure {
    what: "total ms",
    get: |rates| rates.total_ms,
    is_time: true,
};

/// The kinds of work that `--only` selects among.
pub(super) const KINDS: [&str; 5] = ["streams", "long", "prefix", "grammar", "budgets"];

/// All that the options ask for, in order.
pub(super) fn workloads(options: &Options) -> Vec<Workload> {
    let wants = |kind: &str| options.only.iter().any(|only| only == kind);
    let base = |label: String, mode: Mode| Workload {
        label,
        n_streams: 1,
        system: None,
        prompt_words: options.prompt_words,
        tokens: options.tokens,
        mode,
        figures: &[PREFILL, DECODE],
    };
    let mut list = Vec::new();
    if wants("streams") {
        for n_streams in &options.streams {
            list.push(Workload {
                n_streams: *n_streams,
                // Several streams share the words out, so that their total is not all prefill.
                prompt_words: options.prompt_words / n_streams,
                figures: if *n_streams == 1 {
                    &[PREFILL, DECODE]
                } else {
                    &[PREFILL, ALL]
                },
                ..base(format!("streams {n_streams}"), Mode::Text)
            });
        }
    }
    if wants("long") {
        list.push(Workload {
            prompt_words: options.long_words,
            tokens: FIRST_TOKENS,
            figures: &[PREFILL, FIRST],
            ..base("long prompt".to_owned(), Mode::Text)
        });
    }
    if wants("prefix") {
        for (label, prefix) in [("prefix cold", Prefix::Cold), ("prefix warm", Prefix::Warm)] {
            list.push(Workload {
                system: Some(prefix),
                prompt_words: 4,
                tokens: FIRST_TOKENS,
                figures: &[FIRST],
                ..base(label.to_owned(), Mode::Cached)
            });
        }
    }
    if wants("grammar") {
        for n_streams in [1, 8] {
            for (label, mode) in [("free", Mode::Text), ("grammar", Mode::Grammar)] {
                list.push(Workload {
                    n_streams,
                    prompt_words: 20,
                    figures: &[WHOLE],
                    ..base(format!("{label} {n_streams}"), mode)
                });
            }
        }
    }
    if wants("budgets") {
        for budget in &options.budgets {
            list.push(Workload {
                figures: &[TOTAL],
                tokens: 32,
                ..base(format!("budget {budget}"), Mode::Thinking(*budget))
            });
        }
    }
    list
}

impl Workload {
    /// The questions of a round; other rounds have others, so that nothing is cached by chance.
    fn questions(&self, round: usize, options: &Options) -> Vec<Question> {
        let kind = self.label.bytes().fold(7usize, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        let system = self.system.map(|_| {
            let words = words(round + 1, options.prefix_words);
            format!("Notes {round}: {}.", words.join(" "))
        });
        let question = |stream| {
            let words = words(kind + round * 64 + stream, self.prompt_words);
            let prompt = format!(
                "{}. Write a very long story with all of these words, at least ten pages.",
                words.join(" ")
            );
            Question {
                system: system.clone(),
                prompt,
                tokens: self.tokens,
                mode: self.mode,
            }
        };
        (0..self.n_streams).map(question).collect()
    }
}

/// Ordinary words by a fixed generator, so that every bench asks the same.
fn words(seed: usize, n_words: usize) -> Vec<&'static str> {
    const WORDS: [&str; 16] = [
        "river", "stone", "morning", "letter", "garden", "winter", "market", "silver", "window",
        "forest", "captain", "bread", "island", "music", "shadow", "harvest",
    ];
    let mut state = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        WORDS[(state >> 33) as usize % WORDS.len()]
    };
    (0..n_words).map(|_| next()).collect()
}

/// What every workload gave at each side, round by round.
pub(super) struct Measured {
    workloads: Vec<Workload>,
    /// By workload and side.
    rates: BTreeMap<(usize, usize), Vec<Rates>>,
}

/// Asks all sides in turn, the other way round in every other round.
pub(super) fn run(sides: &[Side], options: &Options) -> anyhow::Result<Measured> {
    let workloads = workloads(options);
    let mut rates: BTreeMap<(usize, usize), Vec<Rates>> = BTreeMap::new();
    for side in sides {
        // Page the file in and warm it up; not counted.
        let warm_up = Question {
            system: None,
            prompt: "Tell me a story.".to_owned(),
            tokens: 8,
            mode: Mode::Text,
        };
        measure(side, &[warm_up])?;
    }
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for (number, workload) in workloads.iter().enumerate() {
            let questions = workload.questions(round, options);
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for side in order {
                if workload.n_streams <= sides[side].max_streams {
                    let measured = measure(&sides[side], &questions)?;
                    rates.entry((number, side)).or_default().push(measured);
                }
            }
        }
    }
    Ok(Measured { workloads, rates })
}

impl Measured {
    /// Our side beside one of the others.
    pub(super) fn print(&self, ours: &Side, (number, peer): (usize, &Side)) {
        println!(
            "\n{:<12} {:<11} {:>9} {:>13}  {:>5}  {:>9}  ratio of each round",
            "", "", ours.name, peer.name, "ratio", "cpu ratio"
        );
        for (workload_idx, workload) in self.workloads.iter().enumerate() {
            let (Some(own), Some(theirs)) = (
                self.rates.get(&(workload_idx, 0)),
                self.rates.get(&(workload_idx, number)),
            ) else {
                continue;
            };
            for figure in workload.figures {
                print_figure(&workload.label, figure, (own, theirs));
            }
            let tokens = |rates: &[Rates]| {
                let prompt = median(rates.iter().map(|rates| rates.prompt_tokens as f64));
                let made = median(rates.iter().map(|rates| rates.tokens as f64));
                format!("{prompt:.0}+{made:.0}")
            };
            println!(
                "{:<12} {:<11} {:>9} {:>13}",
                "",
                "tokens",
                tokens(own),
                tokens(theirs)
            );
        }
        self.print_relations(ours, (number, peer));
    }

    /// What figures of two workloads say together.
    fn print_relations(&self, ours: &Side, (number, peer): (usize, &Side)) {
        println!();
        for (name, side) in [(ours.name, 0), (peer.name, number)] {
            let of = |label: &str, get: fn(&Rates) -> f64| {
                let at = self.workloads.iter().position(|work| work.label == label)?;
                let rates = self.rates.get(&(at, side))?;
                Some(median(rates.iter().map(get)))
            };
            let first = |rates: &Rates| rates.first_ms;
            if let (Some(cold), Some(warm)) = (of("prefix cold", first), of("prefix warm", first)) {
                println!("{name}: first token {:.1} times faster warm", cold / warm);
            }
            for n_streams in [1, 8] {
                let speed = WHOLE.get;
                let free = of(&format!("free {n_streams}"), speed);
                let bound = of(&format!("grammar {n_streams}"), speed);
                if let (Some(free), Some(bound)) = (free, bound) {
                    let cost = (free / bound - 1.0) * 100.0;
                    println!("{name}: a grammar costs {cost:+.1} % at {n_streams} stream(s)");
                }
            }
        }
    }

    /// Tokens per second of our only stream, if that was measured.
    pub(super) fn single_stream(&self) -> Option<f64> {
        let at = self
            .workloads
            .iter()
            .position(|work| work.label == "streams 1")?;
        let rates = self.rates.get(&(at, 0))?;
        Some(median(rates.iter().map(|rates| rates.generation)))
    }
}

/// Over 1 is better for us, of times and of processor time too.
fn print_figure(label: &str, figure: &Figure, (ours, theirs): (&[Rates], &[Rates])) {
    let pairs = || ours.iter().zip(theirs);
    let ratio = |(own, their): (&Rates, &Rates)| {
        let ratio = (figure.get)(own) / (figure.get)(their);
        if figure.is_time { 1.0 / ratio } else { ratio }
    };
    // Per token, since one may have ended earlier than the other.
    let cpu = |rates: &Rates| rates.cpu / (rates.prompt_tokens + rates.tokens) as f64;
    let each: Vec<String> = pairs().map(|pair| format!("{:.2}", ratio(pair))).collect();
    println!(
        "{label:<12} {:<11} {:>9.1} {:>13.1}  {:>5.2}  {:>9.2}  {}",
        figure.what,
        median(ours.iter().map(figure.get)),
        median(theirs.iter().map(figure.get)),
        median(pairs().map(ratio)),
        median(pairs().map(|(own, their)| cpu(their) / cpu(own))),
        each.join(" "),
    );
}

/// The middle value; the mean of both middle values of an even number.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!(median([].into_iter()).is_nan());
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 1.0].into_iter()) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn prompts_share_no_beginning_unless_they_are_to() {
        let options = Options::parse(&[]).unwrap();
        let all = workloads(&options);
        let prompts = |label: &str, round| {
            let workload = all.iter().find(|workload| workload.label == label).unwrap();
            workload.questions(round, &options)
        };
        let prompt = |label, round, stream: usize| prompts(label, round)[stream].prompt.clone();
        let first = prompt("streams 8", 0, 0);
        assert_eq!(first, prompt("streams 8", 0, 0));
        let others = [
            prompt("streams 8", 0, 1),
            prompt("streams 8", 1, 0),
            prompt("streams 16", 0, 0),
        ];
        for other in others {
            let words = first.split(' ').zip(other.split(' '));
            assert!(words.take_while(|(a, b)| a == b).count() < 6, "{other}");
        }
        let (cold, warm) = (prompts("prefix cold", 2), prompts("prefix warm", 2));
        assert!(cold[0].system.is_some() && cold[0].system == warm[0].system);
        assert_ne!(cold[0].prompt, warm[0].prompt);
        assert_ne!(cold[0].system, prompts("prefix cold", 1)[0].system);
    }
}
