//! `cargo bench -p twopass-core`: megabytes per second and nanoseconds per delta of the turn
//! parser. Fails if a text comes out incomplete.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    unreachable_pub,
    reason = "a program that prints figures"
)]

mod rows;

use std::time::Duration;

use rows::{Row, cut, is_whole, long_rows, mb_per_s, options, ours, rows, time};

fn main() {
    println!(
        "{:<42} {:>8} {:>9} {:>9}",
        "row", "chunks", "MB/s", "ns/delta"
    );
    for row in rows() {
        for n_chars in [None, Some(64), Some(4)] {
            show(&row, n_chars, Duration::from_millis(300));
        }
    }
    for n_bytes in [1 << 20, 10 << 20] {
        for row in long_rows(n_bytes) {
            for n_chars in [None, Some(4)] {
                show(&row, n_chars, Duration::from_millis(500));
            }
        }
    }
}

fn show(row: &Row, n_chars: Option<usize>, budget: Duration) {
    let options = options(row);
    let pieces = cut(&row.text, n_chars);
    let (time, n_payload) = time(budget, || ours(&options, &pieces));
    assert!(is_whole(row, n_payload), "{}: {n_payload} bytes", row.name);
    println!(
        "{:<42} {:>8} {:>9.1} {:>9.1}",
        row.name,
        n_chars.map_or("whole".to_owned(), |n| format!("{n} chars")),
        mb_per_s(row.text.len(), time),
        time.as_nanos() as f64 / pieces.len() as f64
    );
}
