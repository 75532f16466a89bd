//! The least of many keyed things, without keeping or ordering the others.

/// Keys with the numbers of what they belong to.
pub(super) struct Least {
    wanted: usize,
    /// At most twice as many as are wanted.
    kept: Vec<(u64, u32)>,
    /// What is not below this is not among the least.
    limit: Option<(u64, u32)>,
}

impl Least {
    pub(super) fn new(wanted: usize) -> Self {
        Self { wanted: wanted.max(1), kept: Vec::new(), limit: None }
    }

    #[inline]
    pub(super) fn offer(&mut self, keyed: (u64, u32)) {
        if self.limit.is_some_and(|limit| keyed >= limit) {
            return;
        }
        self.kept.push(keyed);
        if self.kept.len() >= self.wanted.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.kept.len() > self.wanted {
            self.kept.select_nth_unstable(self.wanted);
            self.limit = Some(self.kept[self.wanted]);
            self.kept.truncate(self.wanted);
        }
    }

    /// The least, in order.
    pub(super) fn finish(mut self) -> Vec<(u64, u32)> {
        self.cut();
        self.kept.sort_unstable();
        self.kept
    }
}
