//! `lines`: the lines of code that hold most at the peak of a pool, with operators, modules and phases, as `analyze` has it.

use super::scope::Scope;
use super::{Answer, Problem};

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let group = scope.model.groups[scope.group()? as usize];
    let known = scope.findings().and_then(|findings| {
        findings.lines_at_peaks.iter().find(|(pool, _)| *pool == (group.device, group.pool)).map(|(_, lines)| lines)
    });
    known.cloned().ok_or_else(|| Problem::Missing("nothing was in use in this pool".to_owned()))
}
