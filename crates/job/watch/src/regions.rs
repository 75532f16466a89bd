//! Which labelled regions a thread is in: what it allocates there belongs to the owner of that label.

/// Labels of the regions that a thread is in.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    /// Outermost first.
    labels: Vec<u32>,
}

impl Regions {
    /// Enters a region.
    pub fn enter(&mut self, label: u32) {
        self.labels.push(label);
    }

    /// Leaves the innermost region with this label; regions need not be left in order.
    pub fn leave(&mut self, label: u32) {
        if let Some(position) = self.labels.iter().rposition(|&known| known == label) {
            self.labels.remove(position);
        }
    }

    /// Whether a region with this label is open.
    pub fn contains(&self, label: u32) -> bool {
        self.labels.contains(&label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_may_repeat_and_end_in_any_order() {
        let mut regions = Regions::default();
        for label in [1, 2, 1] {
            regions.enter(label);
        }
        regions.leave(1);
        assert!(regions.contains(1), "the outer one is still open");
        regions.leave(1);
        regions.leave(7);
        assert!(!regions.contains(1) && regions.contains(2));
    }
}
