//! What says where steps end: whoever reads a finding about steps must know whose steps are meant.

use msmemscope_event::LoopKind;
use msmemscope_timeline::StepSource;
use serde::Serialize;

/// Where steps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepsFrom {
    /// mstx ranges named `step start`.
    Marks,
    /// The function `step()` of the Python package.
    Api,
    /// `step()` of a profiler of the framework, because nobody marked steps.
    ProfilerStep,
    /// The loop of a framework, such as a trainer or an engine, because nobody marked steps.
    FrameworkStep,
    /// `step()` of an optimizer, because nobody marked steps.
    OptimizerStep,
    /// Calls of the outermost module, because nobody marked steps and nothing is trained.
    ModuleCall,
    /// Operators that come again and again, because nobody marked steps and nothing else shows a loop.
    OperatorPattern,
    /// Another loop that this version does not know.
    OtherLoop,
}

impl From<StepSource> for StepsFrom {
    fn from(source: StepSource) -> Self {
        match source {
            StepSource::Ranges => StepsFrom::Marks,
            StepSource::Api { .. } => StepsFrom::Api,
            StepSource::Loop { kind: LoopKind::ProfilerStep, .. } => StepsFrom::ProfilerStep,
            StepSource::Loop { kind: LoopKind::FrameworkStep, .. } => StepsFrom::FrameworkStep,
            StepSource::Loop { kind: LoopKind::OptimizerStep, .. } => StepsFrom::OptimizerStep,
            StepSource::Loop { kind: LoopKind::ModuleCall, .. } => StepsFrom::ModuleCall,
            StepSource::Loop { kind: LoopKind::Other, .. } => StepsFrom::OtherLoop,
            StepSource::Operators(_) => StepsFrom::OperatorPattern,
        }
    }
}
