//! Random numbers that depend on nothing but the seed and offset that the framework's generator hands out.

/// A generator (splitmix64), good enough for a device that stands in for another.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator for a seed and offset.
    #[must_use]
    pub fn new(seed: u64, offset: u64) -> Self {
        let mut random = Self { state: seed ^ offset.wrapping_mul(0xD1B5_4A32_D192_ED03) };
        random.bits();
        random
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.state;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// A number from 0 up to, but not including, 1; exact in 24 bits so that it stays below 1 as `f32`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 40) as f64 / (1u64 << 24) as f64
    }

    /// A number with normal distribution.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.unit()).cos()
    }

    /// A whole number from `low` up to, but not including, `high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = high.wrapping_sub(low).max(1) as u64;
        low.wrapping_add((self.bits() % span) as i64)
    }

    /// The numbers from 0 to `count` - 1 in random order.
    pub fn permutation(&mut self, count: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..count as i64).collect();
        for index in (1..count).rev() {
            order.swap(index, self.between(0, index as i64 + 1) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_have_the_right_distribution() {
        let mut random = Random::new(42, 0);
        let uniform: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(uniform.iter().all(|value| (0.0..1.0).contains(value)));
        assert!((uniform.iter().sum::<f64>() / 10_000.0 - 0.5).abs() < 0.02);
        let normal: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        assert!((normal.iter().sum::<f64>() / 10_000.0).abs() < 0.05);
        assert!((normal.iter().map(|value| value * value).sum::<f64>() / 10_000.0 - 1.0).abs() < 0.05);
        let mut order = random.permutation(100);
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<i64>>());
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        assert_eq!(Random::new(1, 2).bits(), Random::new(1, 2).bits());
        assert_ne!(Random::new(1, 2).bits(), Random::new(1, 3).bits());
    }
}
