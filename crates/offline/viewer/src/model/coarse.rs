//! A rough curve of every pool that can be shown while a recording is still being read.

use super::Group;

/// Pieces of time.
const PIECES: usize = 2048;

/// Least, most and last bytes of a piece of time.
type Piece = Option<(u64, u64, u64)>;

/// The curves so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coarse {
    first_ns: u64,
    last_ns: u64,
    pub(crate) groups: Vec<(Group, Vec<Piece>)>,
}

impl Coarse {
    /// Nothing read yet of a recording that covers this time.
    pub(crate) fn new(first_ns: u64, last_ns: u64) -> Self {
        Self { first_ns, last_ns: last_ns.max(first_ns + 1), groups: Vec::new() }
    }

    fn piece(&self, time: u64) -> usize {
        let share = time.saturating_sub(self.first_ns) as f64 / (self.last_ns - self.first_ns) as f64;
        ((share * PIECES as f64) as usize).min(PIECES - 1)
    }

    /// A pool uses this much from now on.
    #[inline]
    pub(crate) fn set(&mut self, group: u16, key: Group, time: u64, used_bytes: u64) {
        let index = group as usize;
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, || (key, vec![None; PIECES]));
        }
        let at = self.piece(time);
        let piece = &mut self.groups[index].1[at];
        *piece = match *piece {
            None => Some((used_bytes, used_bytes, used_bytes)),
            Some((least, most, _)) => Some((least.min(used_bytes), most.max(used_bytes), used_bytes)),
        };
    }

    /// Least and most bytes of a pool within pieces of a window, as far as read; `until` is the time of the latest
    /// event.
    pub(crate) fn curve(&self, group: Group, edges: &[u64], until: u64) -> Vec<Option<(u64, u64)>> {
        let Some((_, pieces)) = self.groups.iter().find(|(known, _)| *known == group) else {
            return vec![None; edges.len().saturating_sub(1)];
        };
        let mut level = 0;
        let filled: Vec<(u64, u64)> = pieces
            .iter()
            .map(|piece| {
                let (least, most, last) = piece
                    .map_or((level, level, level), |(least, most, last)| (least.min(level), most.max(level), last));
                level = last;
                (least, most)
            })
            .collect();
        let window = |pair: &[u64]| {
            if pair[0] > until {
                return None;
            }
            let (first, last) = (self.piece(pair[0]), self.piece(pair[1].saturating_sub(1).max(pair[0])));
            let inside = &filled[first..=last];
            let least = inside.iter().map(|piece| piece.0).min()?;
            Some((least, inside.iter().map(|piece| piece.1).max()?))
        };
        edges.windows(2).map(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use msmemscope_event::{Device, Pool};

    use super::*;

    #[test]
    fn levels_last_until_they_change() {
        let group = Group { device: Device::Npu(0), pool: Pool::PytorchCaching };
        let mut coarse = Coarse::new(0, 2048);
        coarse.set(0, group, 10, 100);
        coarse.set(0, group, 20, 300);
        coarse.set(0, group, 20, 200);
        let curve = coarse.curve(group, &[0, 10, 20, 30, 40, 50], 39);
        assert_eq!(curve, [Some((0, 0)), Some((0, 100)), Some((100, 300)), Some((200, 200)), None]);
    }
}
