//! Estimates with their 95 % intervals.
//!
//! The unit is the item: if it was asked several times, its mean goes in. Answers to one
//! question are alike, so that counting each for itself would promise too much.

/// The 97.5 % point of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The best single guess; NaN without data.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The standard error of `value`.
    pub error: f64,
}

impl Estimate {
    const NONE: Self = Self {
        value: f64::NAN,
        low: f64::NAN,
        high: f64::NAN,
        error: f64::NAN,
    };

    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            low: self.low * factor,
            high: self.high * factor,
            error: self.error * factor,
        }
    }
}

/// Wilson's score interval of a share: `successes` of `trials`, neither of which need be whole.
///
/// Source: E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference,
/// JASA 22 (1927).
#[must_use]
pub fn wilson(successes: f64, trials: f64) -> Estimate {
    if trials <= 0.0 {
        return Estimate::NONE;
    }
    let share = successes / trials;
    let weight = 1.0 + Z * Z / trials;
    let centre = (share + Z * Z / (2.0 * trials)) / weight;
    let spread = share * (1.0 - share) / trials;
    let half = Z / weight * (spread + Z * Z / (4.0 * trials * trials)).sqrt();
    Estimate {
        value: share,
        // At the ends rounding would leave the bounds, or the value outside its interval.
        low: (centre - half).clamp(0.0, share),
        high: (centre + half).clamp(share, 1.0),
        error: spread.sqrt(),
    }
}

/// The share of right answers over items: each with its own share, of `repeats` answers.
///
/// Wilson's interval; with repeats at the effective number of answers, which is the number
/// of independent ones whose share would vary as the items' shares do: at least the items, at
/// most the answers.
#[must_use]
pub fn accuracy(shares: &[f64], repeats: u32) -> Estimate {
    let n_items = shares.len() as f64;
    if shares.is_empty() {
        return Estimate::NONE;
    }
    let share = shares.iter().sum::<f64>() / n_items;
    let n_answers = n_items * f64::from(repeats.max(1));
    let varies = variance(shares, share) / n_items;
    let effective = if varies > 0.0 {
        (share * (1.0 - share) / varies).clamp(n_items, n_answers)
    } else {
        n_items
    };
    wilson(share * effective, effective)
}

/// The mean, with Student's t.
#[must_use]
pub fn mean(values: &[f64]) -> Estimate {
    if values.is_empty() {
        return Estimate::NONE;
    }
    let n_values = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n_values;
    let error = (variance(values, mean) / n_values).sqrt();
    let half = student_t(values.len() - 1) * error;
    Estimate {
        value: mean,
        low: mean - half,
        high: mean + half,
        error,
    }
}

/// The median, with the interval between the order statistics that hold it with at least 95 %,
/// whatever the distribution; below 6 values the whole range, which holds it less surely.
#[must_use]
pub fn median(values: &[f64]) -> Estimate {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n_values = sorted.len();
    let Some(last) = n_values.checked_sub(1) else {
        return Estimate::NONE;
    };
    let value = f64::midpoint(sorted[last / 2], sorted[n_values / 2]);
    let skipped = outside_median(n_values);
    let (low, high) = (sorted[skipped], sorted[last - skipped]);
    Estimate {
        value,
        low,
        high,
        error: (high - low) / (2.0 * Z),
    }
}

/// How much less the first of each pair is than the second, on average over the same items.
/// Values lie from 0 to 1.
///
/// The interval of Bonett and Price: two more pairs are thought of, one each way, so that a
/// few pairs that agree do not promise certainty. It knows that the same items were asked:
/// items that are hard, or easy, at both budgets do not widen it.
///
/// Source: D. G. Bonett, R. M. Price, Adjusted Wald Confidence Interval for a Difference of
/// Binomial Proportions Based on Paired Data, J. Educ. Behav. Stat. 37 (2012).
#[must_use]
pub fn paired_loss(pairs: &[(f64, f64)]) -> Estimate {
    if pairs.is_empty() {
        return Estimate::NONE;
    }
    let losses = pairs.iter().map(|(one, other)| other - one);
    let total: f64 = losses.clone().sum();
    let squares: f64 = losses.map(|loss| loss * loss).sum::<f64>() + 2.0;
    let n_pairs = pairs.len() as f64 + 2.0;
    let centre = total / n_pairs;
    let error = ((squares / n_pairs - centre * centre) / n_pairs).sqrt();
    Estimate {
        value: total / pairs.len() as f64,
        low: (centre - Z * error).max(-1.0),
        high: (centre + Z * error).min(1.0),
        error,
    }
}

/// The sample variance; 0 of a single value.
fn variance(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len().max(2) - 1) as f64
}

/// The 97.5 % point of Student's t: exact for 1 and 2 degrees of freedom, else the expansion of
/// Fisher and Cornish, within 1 % from 3 on.
fn student_t(freedom: usize) -> f64 {
    match freedom {
        0 => return 0.0,
        1 => return 12.706_204_736,
        2 => return 4.302_652_730,
        _ => {}
    }
    let n = freedom as f64;
    let z2 = Z * Z;
    let first = (z2 + 1.0) / 4.0;
    let second = ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let third = (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    Z * (1.0 + first / n + second / n.powi(2) + third / n.powi(3))
}

/// How many values may be left out at each end so that the median lies between the outermost
/// of the rest with at least 95 %.
fn outside_median(n_values: usize) -> usize {
    let half_power = -(n_values as f64) * std::f64::consts::LN_2;
    let (mut ln_ways, mut tail, mut skipped) = (0.0, 0.0, 0);
    for rank in 0..n_values / 2 {
        // The chance that exactly `rank` of the values lie below the median.
        tail += f64::exp(ln_ways + half_power);
        if tail > 0.025 {
            break;
        }
        skipped = rank + 1;
        ln_ways += ((n_values - rank) as f64 / (rank + 1) as f64).ln();
    }
    // Rank `skipped - 1`'s tail is small enough: the interval starts at the value after it.
    skipped.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expect: f64, within: f64) {
        assert!(
            (found - expect).abs() <= within,
            "{found} is not {expect} within {within}"
        );
    }

    /// Values of the literature: Newcombe (1998), Statistics in Medicine 17, table I, method 3.
    #[test]
    fn wilson_as_tabulated() {
        for (successes, trials, low, high) in [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
            (29.0, 29.0, 0.8830, 1.0),
        ] {
            let found = wilson(successes, trials);
            near(found.low, low, 5e-5);
            near(found.high, high, 5e-5);
        }
        assert!(wilson(0.0, 0.0).value.is_nan());
    }

    #[test]
    fn repeats_count_as_much_as_they_differ() {
        // One answer per item is plain Wilson.
        let shares: Vec<f64> = (0..40).map(|item| f64::from(u8::from(item < 10))).collect();
        let once = accuracy(&shares, 1);
        near(once.low, wilson(10.0, 40.0).low, 1e-9);
        // Repeats that always agree tell nothing new.
        assert_eq!(accuracy(&shares, 5), once);
        // Repeats of which each item gets as many right as chance would have it count nearly all.
        let mixed: Vec<f64> = (0..40).map(|item| f64::from(item % 3) / 2.0).collect();
        let twice = accuracy(&mixed, 2);
        assert!(twice.high - twice.low < once.high - once.low + 0.1);
        near(accuracy(&[0.5; 40], 2).low, wilson(20.0, 40.0).low, 1e-9);
        assert!(accuracy(&[], 1).value.is_nan());
    }

    /// Student's own sleep data (1908), the differences: 95 % interval of the mean 0.70 to 2.46.
    #[test]
    fn mean_of_the_sleep_data() {
        let differences = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let found = mean(&differences);
        near(found.value, 1.58, 1e-9);
        near(found.low, 0.7001, 5e-4);
        near(found.high, 2.4599, 5e-4);
        assert_eq!(mean(&[3.0]).error, 0.0);
        assert!(mean(&[]).value.is_nan());
    }

    #[test]
    fn quantiles_of_student() {
        for (freedom, expect) in [
            (1, 12.706),
            (2, 4.303),
            (9, 2.262),
            (29, 2.045),
            (999, 1.962),
        ] {
            near(student_t(freedom), expect, 1e-3);
        }
        near(student_t(3), 3.182, 0.03);
    }

    /// Ranks from the tables of the sign test: of 10 values the 2nd and the 9th, of 25 the 8th
    /// and the 18th, of 100 the 40th and the 61st; of 5 no pair is sure enough.
    #[test]
    fn ranks_around_the_median() {
        for (n_values, low) in [(1, 1), (5, 1), (6, 1), (10, 2), (25, 8), (100, 40)] {
            let values: Vec<f64> = (1..=n_values).map(f64::from).collect();
            let found = median(&values);
            near(found.low, f64::from(low), 0.0);
            near(found.high, f64::from(n_values + 1 - low), 0.0);
            near(found.value, f64::from(n_values + 1) / 2.0, 0.0);
        }
        assert!(median(&[]).value.is_nan());
        let many: Vec<f64> = (0..5000).map(f64::from).collect();
        assert!(median(&many).low > 2400.0);
    }

    /// Bonett and Price's formula, worked by hand for 20 pairs, 6 of which differ, 5 one way.
    #[test]
    fn paired_losses() {
        let mut pairs = vec![(1.0, 1.0); 14];
        pairs.extend([(0.0, 1.0); 5]);
        pairs.push((1.0, 0.0));
        let found = paired_loss(&pairs);
        near(found.value, 0.2, 1e-9);
        // p12 = 6/22, p21 = 2/22: difference 4/22, error sqrt((8/22 - (4/22)^2) / 22).
        near(found.error, 0.122_58, 1e-4);
        near(found.low, 0.1818 - Z * 0.122_58, 1e-3);
        // Equal everywhere is no certainty.
        let equal = paired_loss(&[(1.0, 1.0); 20]);
        near(equal.value, 0.0, 0.0);
        assert!(equal.low < -0.1 && equal.high > 0.1);
        assert!(paired_loss(&[]).value.is_nan());
    }
}
