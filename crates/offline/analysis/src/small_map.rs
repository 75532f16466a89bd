//! A map for a handful of keys that come in runs: devices, pools, threads. Finding the key that was
//! asked for last costs one comparison.

/// The map.
#[derive(Clone, Debug)]
pub(crate) struct SmallMap<K, V> {
    entries: Vec<(K, V)>,
    latest: usize,
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), latest: 0 }
    }
}

impl<K: Copy + Eq, V: Default> SmallMap<K, V> {
    /// The value of a key, made if there is none.
    #[inline]
    pub(crate) fn entry(&mut self, key: K) -> &mut V {
        match self.entries.get(self.latest) {
            Some((latest, _)) if *latest == key => {}
            _ => self.seek(key),
        }
        &mut self.entries[self.latest].1
    }

    #[cold]
    fn seek(&mut self, key: K) {
        self.latest = match self.entries.iter().position(|(known, _)| *known == key) {
            Some(position) => position,
            None => {
                self.entries.push((key, V::default()));
                self.entries.len() - 1
            }
        };
    }
}

impl<K: Copy + Eq, V> SmallMap<K, V> {
    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&V> {
        match self.entries.get(self.latest) {
            Some((latest, value)) if *latest == key => Some(value),
            _ => self.entries.iter().find(|(known, _)| *known == key).map(|(_, value)| value),
        }
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// All entries.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// All entries.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.entries.into_iter()
    }
}
