//! Medians and quartiles.

/// The `q`-quantile of `values`, linear between neighbours; NaN for an empty slice.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor())
}

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Interquartile range divided by the median; zero if the median is zero.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    if middle == 0.0 { 0.0 } else { (quantile(values, 0.75) - quantile(values, 0.25)) / middle }
}

/// Median of the ratios of values measured in one round.
pub(crate) fn paired_ratio(ours: &[f64], rival: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(rival).filter(|(_, r)| **r > 0.0).map(|(o, r)| o / r).collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_neighbours() {
        let v = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&v), 2.5);
        assert_eq!(quantile(&v, 0.0), 1.0);
        assert_eq!(quantile(&v, 1.0), 4.0);
        assert_eq!(spread(&v), (3.25 - 1.75) / 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // A disturbance that doubles a whole round leaves the ratio as it was.
        assert_eq!(paired_ratio(&[1.0, 2.0, 1.0], &[4.0, 8.0, 4.0]), 0.25);
    }
}
