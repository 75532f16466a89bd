//! The place of a process among those of its job: what launchers call its rank.

/// Which of its job's processes one is, as far as its launcher said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number among all processes of the job, from 0.
    pub rank: Option<u32>,
    /// Number among the processes of its machine, from 0.
    pub local_rank: Option<u32>,
    /// Processes of the job.
    pub world_size: Option<u32>,
}

impl Place {
    /// A process by its rank, or by its id if it has none.
    pub fn name(self, process_id: u32) -> String {
        self.rank.map_or_else(|| format!("process {process_id}"), |rank| format!("rank {rank}"))
    }

    /// The same as the heading of what is said about it.
    pub fn title(self, process_id: u32) -> String {
        self.rank.map_or_else(|| format!("Process {process_id}"), |rank| format!("Rank {rank} (process {process_id})"))
    }

    /// Reads what the recorder wrote: `name=number`, each on a line. What is not understood is left out.
    pub fn read(text: &[u8]) -> Self {
        let mut place = Self::default();
        for line in text.split(|&byte| byte == b'\n') {
            let Some((name, number)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once('=')) else {
                continue;
            };
            let number = number.parse().ok();
            match name {
                "rank" => place.rank = number,
                "local_rank" => place.local_rank = number,
                "world_size" => place.world_size = number,
                _ => {}
            }
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_understood_is_believed() {
        let place = Place::read(b"rank=3\nworld_size=8\nnew=1\n\xff=2\nlocal_rank=-1\n");
        assert_eq!(place, Place { rank: Some(3), local_rank: None, world_size: Some(8) });
        assert_eq!(Place::read(b""), Place::default());
    }
}
