//! Dates of HTTP headers. Source: RFC 9110 section 5.6.7, read 2026-01.

/// Seconds since 1970 of a date in any of the three forms; `None` for everything else.
pub(super) fn unix_seconds(text: &str) -> Option<i64> {
    let words: Vec<&str> = text
        .split([' ', ',', '-'])
        .filter(|word| !word.is_empty())
        .collect();
    // `Wed, 21 Oct 2026 07:28:30 GMT`, `Wednesday, 21-Oct-26 07:28:30 GMT`,
    // `Wed Oct 21 07:28:30 2026`.
    let (day, month, year, time) = match words.as_slice() {
        [_, month, day, time, year] if time.contains(':') => (day, month, year, time),
        [_, day, month, year, time, "GMT" | "UTC" | "+0000"] => (day, month, year, time),
        _ => return None,
    };
    let day: i64 = day.parse().ok()?;
    let month = month_number(month)?;
    let mut year: i64 = year.parse().ok()?;
    if year < 100 {
        year += if year < 70 { 2000 } else { 1900 };
    }
    let mut clock = time.split(':').map(str::parse::<i64>);
    let (Some(Ok(hour)), Some(Ok(minute)), Some(Ok(second)), None) =
        (clock.next(), clock.next(), clock.next(), clock.next())
    else {
        return None;
    };
    let valid = (1..=31).contains(&day)
        && (1970..10_000).contains(&year)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    valid.then(|| ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn month_number(name: &str) -> Option<i64> {
    const NAMES: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let name = name.to_ascii_lowercase();
    let at = NAMES.iter().position(|month| *month == name)?;
    i64::try_from(at).ok().map(|at| at + 1)
}

/// Days since 1970-01-01 in the Gregorian calendar, counted from March so that the leap day
/// ends the year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::unix_seconds;

    #[test]
    fn three_forms_of_one_date() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(unix_seconds(text), Some(784_111_777), "{text}");
        }
        for text in [
            "",
            "soon",
            "7",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "a b c d e f",
        ] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }
}
