//! Pipeline stages and tensor-parallel groups. Frameworks of the Megatron family (MindSpeed among them), DeepSpeed and
//! vLLM are told their sizes on the command line, and number ranks in one order: neighbours share tensors, stages are
//! farthest apart.

use serde::{Deserialize, Serialize};

/// Options that say how many ranks share tensors.
const TENSOR_OPTIONS: [&str; 5] =
    ["--tensor-model-parallel-size", "--tensor-parallel-size", "--model-parallel-size", "--tp-size", "-tp"];
/// Options that say how many stages there are.
const PIPELINE_OPTIONS: [&str; 5] =
    ["--pipeline-model-parallel-size", "--pipeline-parallel-size", "--pipe-parallel-size", "--pp-size", "-pp"];

/// How a job is divided, as far as it was told to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Division {
    /// Ranks that share every tensor.
    #[serde(default)]
    pub tensor_parallel_size: Option<u32>,
    /// Stages of the pipeline.
    #[serde(default)]
    pub pipeline_parallel_size: Option<u32>,
}

impl Division {
    /// What the words of a command line say.
    pub fn of_command<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut division = Self::default();
        let mut wanted: Option<bool> = None;
        for word in words {
            let spelled = word.replace('_', "-");
            let (option, value) = match spelled.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
                None => (spelled, None),
            };
            if let (Some(is_tensor), None) = (wanted.take(), &value) {
                division.set(is_tensor, &option);
            }
            let is_tensor = TENSOR_OPTIONS.contains(&option.as_str());
            if is_tensor || PIPELINE_OPTIONS.contains(&option.as_str()) {
                match value {
                    Some(value) => division.set(is_tensor, &value),
                    None => wanted = Some(is_tensor),
                }
            }
        }
        division
    }

    fn set(&mut self, is_tensor: bool, value: &str) {
        let size = value.parse().ok().filter(|size| *size > 0);
        let field = if is_tensor { &mut self.tensor_parallel_size } else { &mut self.pipeline_parallel_size };
        *field = size.or(*field);
    }

    /// The stage of a rank, if there are several and they divide the job evenly.
    pub fn stage(self, rank: u32, world_size: u32) -> Option<u32> {
        let stages = self.pipeline_parallel_size.filter(|stages| *stages > 1 && world_size.is_multiple_of(*stages))?;
        Some(rank / (world_size / stages)).filter(|stage| *stage < stages)
    }

    /// The number of the group of ranks that a rank shares tensors with.
    pub fn tensor_group(self, rank: u32, world_size: u32) -> Option<u32> {
        let size = self.tensor_parallel_size.filter(|size| *size > 1 && world_size.is_multiple_of(*size))?;
        Some(rank / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_command_lines() {
        let of = |line: &str| Division::of_command(line.split(' '));
        let both = Division { tensor_parallel_size: Some(8), pipeline_parallel_size: Some(4) };
        assert_eq!(of("python pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4"), both);
        assert_eq!(of("vllm serve m --tensor-parallel-size=8 -pp 4"), both);
        assert_eq!(of("vllm serve m --tensor_parallel_size=8 --pipeline_parallel_size 4"), both);
        assert_eq!(of("train.py --tensor-parallel-size many --pp-size 0 -tp"), Division::default());
    }

    #[test]
    fn neighbours_share_tensors_and_stages_are_far_apart() {
        let division = Division { tensor_parallel_size: Some(2), pipeline_parallel_size: Some(4) };
        let stages: Vec<_> = (0..8).map(|rank| division.stage(rank, 8).unwrap()).collect();
        assert_eq!(stages, [0, 0, 1, 1, 2, 2, 3, 3]);
        let groups: Vec<_> = (0..4).map(|rank| division.tensor_group(rank, 8).unwrap()).collect();
        assert_eq!(groups, [0, 0, 1, 1]);
        assert_eq!(division.stage(0, 6), None, "four stages do not divide six ranks");
        assert_eq!(Division::default().tensor_group(3, 8), None);
    }
}
