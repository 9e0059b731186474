//! The calendar, without a clock.

/// Year, month (1-12) and day (1-31) of a day counted from 1970-01-01.
///
/// A calendar of 400 years that begins in March, so that the leap day is the last one. Source:
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
#[must_use]
pub fn civil_date(days: i64) -> (i64, usize, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, usize::try_from(month).unwrap_or(1), day)
}

/// The day counted from 1970-01-01 of a date; `None` if there is no such date, or its year is
/// not of four digits. The other way of [`civil_date`].
///
/// Source: as there, `days_from_civil`.
#[must_use]
pub fn day_number(year: u32, month: u32, day: u32) -> Option<i64> {
    if year > 9999 || !(1..=12).contains(&month) || day > 31 {
        return None;
    }
    let (year, month, day) = (i64::from(year), i64::from(month), i64::from(day));
    let shifted_year = year - i64::from(month <= 2);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = shifted_year.div_euclid(400) * 146_097 + day_of_era - 719_468;
    let same = (year, usize::try_from(month).ok()?, day);
    (civil_date(days) == same).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_meet() {
        for days in (-719_528..2_932_897).step_by(97) {
            let (year, month, day) = civil_date(days);
            let [year, month, day] =
                [year, i64::try_from(month).unwrap(), day].map(|part| u32::try_from(part).unwrap());
            assert_eq!(
                day_number(year, month, day),
                Some(days),
                "{year}-{month}-{day}"
            );
        }
        // `date -u -d 2026-11-28 +%s`, divided by the seconds of a day.
        assert_eq!(day_number(2026, 11, 28), Some(20_785));
        for (year, month, day) in [
            (2026, 2, 29),
            (2026, 0, 1),
            (2026, 13, 1),
            (2026, 4, 31),
            (2026, 4, 0),
            (10_000, 1, 1),
        ] {
            assert_eq!(day_number(year, month, day), None, "{year}-{month}-{day}");
        }
    }
}
