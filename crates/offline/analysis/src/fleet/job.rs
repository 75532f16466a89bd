//! Summaries of one job together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use msmemscope_event::Pool;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::groups::Division;
use super::outliers::{Difference, Measure, Value, median, outliers};
use super::summary::{AFTER_FINALIZE, PoolNumbers, RanOut, RecordingState, SiteNumbers, Summary};

/// Pieces of the curves of hosts.
const PIECES: usize = 96;
/// Call sites reported.
const MOST_SITES: usize = 100;
/// Ranks compared within a stage; with fewer the whole job is compared.
const FEWEST_OF_STAGE: usize = 3;
/// Largest job whose missing ranks are looked for.
const LARGEST_WORLD: u32 = 1 << 20;

/// What is kept of one summary.
#[derive(Clone, Debug)]
pub struct Member {
    pub(crate) path: PathBuf,
    pub(crate) rank: Option<u32>,
    pub(crate) host: String,
    pub(crate) process_id: u32,
    pub(crate) start_ns: u64,
    pub(crate) job: Option<String>,
    pub(crate) world_size: Option<u32>,
    pub(crate) state: RecordingState,
    pub(crate) end_ns: u64,
    division: Division,
    command: String,
    steps: u64,
    lost_events: u64,
    devices: Vec<DeviceUse>,
    leaks: Vec<SiteNumbers>,
    at_peak: Vec<SiteNumbers>,
    ran_out: Option<RanOut>,
}

/// The pool that matters on a device: a framework's, or else the driver's.
#[derive(Clone, Debug)]
struct DeviceUse {
    numbers: PoolNumbers,
    driver_bytes: u64,
}

impl Member {
    /// What matters of a summary.
    pub fn of(path: PathBuf, summary: Summary) -> Self {
        let Summary { identity, state, steps, pools, leaks, call_sites_at_peak, out_of_memory, lost_events, .. } =
            summary;
        Self {
            path,
            rank: identity.rank,
            host: identity.host,
            process_id: identity.process_id,
            start_ns: identity.start_ns,
            job: identity.job,
            world_size: identity.world_size,
            state,
            end_ns: identity.end_ns,
            division: identity.division,
            command: identity.command,
            steps,
            lost_events,
            devices: main_pools(pools),
            leaks,
            at_peak: call_sites_at_peak,
            ran_out: out_of_memory,
        }
    }

    /// Most bytes in use on one of its devices.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.numbers.peak_bytes).max().unwrap_or(0)
    }

    /// Where its summary is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// For every device the pool that stands for it. The host stands in where there is no other.
fn main_pools(pools: Vec<PoolNumbers>) -> Vec<DeviceUse> {
    let driver = Pool::Hal.event_type();
    let is_npu = |pool: &PoolNumbers| pool.device.parse::<u16>().is_ok();
    let has_npu = pools.iter().any(|pool| is_npu(pool) && pool.peak_bytes > 0);
    let mut by_device: BTreeMap<(Option<u16>, String), DeviceUse> = BTreeMap::new();
    for mut pool in pools.into_iter().filter(|pool| pool.peak_bytes > 0 && (!has_npu || is_npu(pool))) {
        (pool.owners_at_peak, pool.step_use) = (Vec::new(), Default::default());
        let driver_bytes = if pool.pool == driver { pool.peak_bytes } else { 0 };
        let key = (pool.device.parse().ok(), pool.device.clone());
        match by_device.get_mut(&key) {
            None => {
                by_device.insert(key, DeviceUse { numbers: pool, driver_bytes });
            }
            Some(known) => {
                known.driver_bytes = known.driver_bytes.max(driver_bytes);
                let rank = |pool: &PoolNumbers| (pool.pool != driver, pool.peak_bytes);
                if rank(&pool) > rank(&known.numbers) {
                    known.numbers = pool;
                }
            }
        }
    }
    by_device.into_values().collect()
}

/// One rank on one device.
#[derive(Clone, Debug, Serialize)]
pub struct RankRow {
    /// Its summary.
    pub path: PathBuf,
    /// Rank, if the process has one.
    pub rank: Option<u32>,
    /// Process.
    pub process_id: u32,
    /// Machine.
    pub host: String,
    /// Device; empty if the process used none.
    pub device: String,
    /// The pool that the numbers are of.
    pub pool: String,
    /// Most bytes in use.
    pub peak_bytes: u64,
    /// Step of the peak, zero if none.
    pub peak_step: u64,
    /// Bytes in use at the end.
    pub end_bytes: u64,
    /// Most bytes that the pool held, without the most that were in use.
    pub unused_bytes: u64,
    /// Most bytes from the driver.
    pub driver_bytes: u64,
    /// Growth per step, if there were steps.
    pub growth_bytes_per_step: Option<f64>,
    /// Bytes that leak on this device, at the call sites that the summary names.
    pub leaked_bytes: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Steps.
    pub steps: u64,
    /// Whether memory ran out.
    pub ran_out: bool,
    /// What became of the process.
    pub state: RecordingState,
    /// Events lost.
    pub lost_events: u64,
    /// Stage of the pipeline.
    pub stage: Option<u32>,
    /// Group that shares tensors.
    pub tensor_group: Option<u32>,
    /// Whether it only ran beside another process of its rank, which stands for the rank in comparisons.
    pub is_helper: bool,
    /// Whether the process used several devices.
    pub is_one_of_several: bool,
}

impl RankRow {
    fn value(&self, measure: Measure) -> Option<Value> {
        let own = |value: f64| Value { value, scale: value };
        Some(match measure {
            Measure::Peak => own(self.peak_bytes as f64),
            Measure::End => Value { value: self.end_bytes as f64, scale: self.peak_bytes as f64 },
            Measure::Unused => {
                Value { value: self.unused_bytes as f64, scale: (self.peak_bytes + self.unused_bytes) as f64 }
            }
            // What grows matters by what it adds up to.
            Measure::Growth => {
                Value { value: self.growth_bytes_per_step?, scale: self.peak_bytes as f64 / self.steps.max(1) as f64 }
            }
            Measure::Allocations => own(self.allocations as f64),
            Measure::Steps => own(self.steps as f64),
        })
    }
}

/// A rank that is different.
#[derive(Clone, Debug, Serialize)]
pub struct Outlier {
    /// Its place in the matrix.
    pub row: usize,
    /// In what it is different, what matters most first.
    pub differences: Vec<Difference>,
    /// The call site that explains it: what only it leaks, or what it holds more of than others.
    pub because_of: Option<Cause>,
}

/// Why a rank is different.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// The line of code.
    pub line: String,
    /// Bytes there on this rank.
    pub bytes: u64,
    /// Median of the bytes there on all ranks.
    pub median_bytes: u64,
    /// Whether it is a leak.
    pub is_leak: bool,
}

/// A call site over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetSite {
    /// The pool.
    pub pool: String,
    /// The line of code.
    pub line: String,
    /// Ranks, or processes without one, that have it.
    pub processes: u64,
    /// Those with a rank.
    pub ranks: Vec<u32>,
    /// Bytes on all of them.
    pub bytes: u64,
    /// Most bytes on one.
    pub most_bytes: u64,
    /// The rank that has most.
    pub most_on: Option<u32>,
    /// Growth per step on all of them; zero where there were no steps.
    pub bytes_per_step: u64,
    /// Whether it holds more with every step, and is not only never given back.
    pub is_growing: bool,
    /// Who holds the blocks, as one of them says.
    pub held_by: String,
}

/// Ranks that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupUse {
    /// Number of the stage or group.
    pub number: u32,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// Median of the peaks.
    pub median_peak_bytes: u64,
    /// Least peak.
    pub least_peak_bytes: u64,
    /// Largest peak.
    pub most_peak_bytes: u64,
}

/// Memory of one host over the time of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostCurve {
    /// Its name.
    pub host: String,
    /// Processes on it.
    pub processes: u64,
    /// Sum of the most that each process had in use in each piece of time: never less than what was in use at once.
    pub most_bytes: Vec<u64>,
}

/// A rank that ran out of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankOutOfMemory {
    /// Rank.
    pub rank: Option<u32>,
    /// Process.
    pub process_id: u32,
    /// Machine.
    pub host: String,
    /// What happened.
    pub failure: RanOut,
}

/// One job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobReport {
    /// The id that a launcher gave.
    pub id: Option<String>,
    /// What its first process was called as.
    pub command: String,
    /// Processes of the job, as the launcher said.
    pub world_size: Option<u32>,
    /// Processes with a summary.
    pub processes: u64,
    /// Those of them that only run beside another process of their rank.
    pub helpers: u64,
    /// Hosts.
    pub host_count: u64,
    /// Ranks without a summary.
    pub missing_ranks: Vec<u32>,
    /// When it began, nanoseconds since 1970.
    pub start_ns: u64,
    /// How long it lasted.
    pub duration_ns: u64,
    /// One row per rank and device.
    pub matrix: Vec<RankRow>,
    /// Ranks that are different, those that differ in what matters most first.
    pub outliers: Vec<Outlier>,
    /// Call sites that leak, the largest first.
    pub leaks: Vec<FleetSite>,
    /// Call sites that held most at the peaks, the largest first.
    pub call_sites_at_peak: Vec<FleetSite>,
    /// Stages of the pipeline.
    pub stages: Vec<GroupUse>,
    /// Groups that share tensors.
    pub tensor_groups: Vec<GroupUse>,
    /// Hosts over time.
    pub hosts: Vec<HostCurve>,
    /// The whole job over time.
    pub most_bytes: Vec<u64>,
    /// Ranks that ran out of memory, the first first.
    pub out_of_memory: Vec<RankOutOfMemory>,
}

impl JobReport {
    /// Of its processes, in the order of their ranks. Of those of one rank the first stands for it.
    pub(crate) fn of(id: Option<String>, members: Vec<Arc<Member>>) -> Self {
        let first = members.first();
        let world_size = members.iter().find_map(|member| member.world_size);
        let start_ns = members.iter().map(|member| member.start_ns).filter(|ns| *ns > 0).min().unwrap_or(0);
        let end_ns = members.iter().map(|member| member.end_ns).max().unwrap_or(0);
        let is_helper = |index: usize| {
            let before = index.checked_sub(1).map(|before| &members[before]);
            members[index].rank.is_some() && before.is_some_and(|before| before.rank == members[index].rank)
        };
        let of_ranks = |index: usize| rows(&members[index], world_size, is_helper(index));
        let matrix: Vec<RankRow> = (0..members.len()).flat_map(of_ranks).collect();
        let helpers = (0..members.len()).filter(|&index| is_helper(index)).count() as u64;
        let hosts = host_curves(&members, start_ns, end_ns);
        let mut most_bytes = vec![0u64; PIECES];
        for host in &hosts {
            most_bytes.iter_mut().zip(&host.most_bytes).for_each(|(sum, bytes)| *sum = sum.saturating_add(*bytes));
        }
        let mut out_of_memory: Vec<RankOutOfMemory> = members.iter().filter_map(|member| failed(member)).collect();
        out_of_memory.sort_by_key(|failed| failed.failure.first_ns);
        let leaks = sites(&members, |member| &member.leaks);
        let call_sites_at_peak = sites(&members, |member| &member.at_peak);
        Self {
            command: first.map_or(String::new(), |member| member.command.clone()),
            world_size,
            processes: members.len() as u64,
            helpers,
            host_count: hosts.len() as u64,
            missing_ranks: missing_ranks(&members, world_size),
            start_ns,
            duration_ns: end_ns.saturating_sub(start_ns),
            outliers: find_outliers(&matrix, &members),
            stages: groups(&matrix, |row| row.stage),
            tensor_groups: groups(&matrix, |row| row.tensor_group),
            matrix,
            leaks: largest(leaks),
            call_sites_at_peak: largest(call_sites_at_peak),
            hosts,
            most_bytes,
            out_of_memory,
            id,
        }
    }
}

fn rows(member: &Member, world_size: Option<u32>, is_helper: bool) -> Vec<RankRow> {
    let place = member.rank.zip(world_size);
    let row = |device: Option<&DeviceUse>| {
        let numbers = device.map(|device| &device.numbers);
        let number = |of: fn(&PoolNumbers) -> u64| numbers.map_or(0, of);
        let device_name = numbers.map_or("", |numbers| &numbers.device);
        let leaks = member.leaks.iter().filter(|leak| leak.kind != "possible_leak" && leak.device == device_name);
        RankRow {
            path: member.path.clone(),
            rank: member.rank,
            process_id: member.process_id,
            host: member.host.clone(),
            device: device_name.to_owned(),
            pool: numbers.map_or(String::new(), |numbers| numbers.pool.clone()),
            peak_bytes: number(|numbers| numbers.peak_bytes),
            peak_step: number(|numbers| numbers.peak_step),
            end_bytes: number(|numbers| numbers.end_bytes),
            unused_bytes: number(|numbers| numbers.reserved_bytes.saturating_sub(numbers.peak_bytes)),
            driver_bytes: device.map_or(0, |device| device.driver_bytes),
            growth_bytes_per_step: numbers.and_then(|numbers| numbers.growth_bytes_per_step),
            leaked_bytes: leaks.map(|leak| leak.bytes).fold(0, u64::saturating_add),
            allocations: number(|numbers| numbers.allocations),
            steps: member.steps,
            ran_out: member.ran_out.is_some(),
            state: member.state,
            lost_events: member.lost_events,
            stage: place.and_then(|(rank, world_size)| member.division.stage(rank, world_size)),
            tensor_group: place.and_then(|(rank, world_size)| member.division.tensor_group(rank, world_size)),
            is_helper,
            is_one_of_several: member.devices.len() > 1,
        }
    };
    match member.devices.is_empty() {
        true => vec![row(None)],
        false => member.devices.iter().map(|device| row(Some(device))).collect(),
    }
}

fn failed(member: &Member) -> Option<RankOutOfMemory> {
    let failure = member.ran_out.clone()?;
    Some(RankOutOfMemory { rank: member.rank, process_id: member.process_id, host: member.host.clone(), failure })
}

fn missing_ranks(members: &[Arc<Member>], world_size: Option<u32>) -> Vec<u32> {
    let mut there: Vec<u32> = members.iter().filter_map(|member| member.rank).collect();
    there.sort_unstable();
    match world_size.filter(|size| *size <= LARGEST_WORLD && !there.is_empty()) {
        Some(size) => (0..size).filter(|rank| there.binary_search(rank).is_err()).collect(),
        None => Vec::new(),
    }
}

fn find_outliers(matrix: &[RankRow], members: &[Arc<Member>]) -> Vec<Outlier> {
    // Ranks are compared with those of their stage; processes without device memory say nothing.
    let mut by_stage: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for (index, row) in matrix.iter().enumerate().filter(|(_, row)| !row.is_helper) {
        by_stage.entry(row.stage).or_default().push(index);
    }
    if by_stage.values().any(|rows| rows.len() < FEWEST_OF_STAGE) {
        by_stage = BTreeMap::from([(None, by_stage.into_values().flatten().collect())]);
    }
    let mut found: BTreeMap<usize, Vec<Difference>> = BTreeMap::new();
    for (rows, measure) in by_stage.values().flat_map(|rows| Measure::ALL.map(|measure| (rows, measure))) {
        let values: Option<Vec<Value>> = rows.iter().map(|&row| matrix[row].value(measure)).collect();
        for (index, difference) in outliers(measure, &values.unwrap_or_default()) {
            found.entry(rows[index]).or_default().push(difference);
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let medians = Medians::of(members);
    let mut outliers: Vec<Outlier> = found
        .into_iter()
        .map(|(row, mut differences)| {
            differences.sort_by_key(|difference| difference.measure);
            Outlier { row, because_of: cause(&matrix[row], &differences, members, &medians), differences }
        })
        .collect();
    let far = |outlier: &Outlier| {
        let difference = &outlier.differences[0];
        let distance = (difference.value - difference.median).abs();
        (difference.measure, Reverse((distance / difference.median.abs().max(1.0) * 1000.0) as u64))
    };
    outliers.sort_by_key(far);
    outliers
}

/// Medians over all processes of the bytes of call sites, by pool and line.
struct Medians<'a> {
    leaks: FxHashMap<(&'a str, &'a str), u64>,
    at_peak: FxHashMap<(&'a str, &'a str), u64>,
}

impl<'a> Medians<'a> {
    fn of(members: &'a [Arc<Member>]) -> Self {
        let medians = |list: fn(&Member) -> &Vec<SiteNumbers>| {
            let mut by_line: FxHashMap<(&'a str, &'a str), Vec<f64>> = FxHashMap::default();
            for site in members.iter().flat_map(|member| list(member)) {
                by_line.entry((&site.pool, &site.line)).or_default().push(site.bytes as f64);
            }
            let with_nothing = |(site, mut bytes): (_, Vec<f64>)| {
                bytes.resize(bytes.len().max(members.len()), 0.0);
                (site, median(&mut bytes) as u64)
            };
            by_line.into_iter().map(with_nothing).collect()
        };
        Self { leaks: medians(|member| &member.leaks), at_peak: medians(|member| &member.at_peak) }
    }
}

/// The call site on which a rank that has more than others differs most from them.
fn cause(row: &RankRow, differences: &[Difference], members: &[Arc<Member>], medians: &Medians<'_>) -> Option<Cause> {
    let has_more = differences.iter().any(|difference| difference.value > difference.median);
    let is_meant =
        |member: &&Arc<Member>| (member.rank, member.process_id, &member.host) == (row.rank, row.process_id, &row.host);
    let member = members.iter().find(is_meant).filter(|_| has_more)?;
    let lists = [(&member.leaks, &medians.leaks, true), (&member.at_peak, &medians.at_peak, false)];
    lists.into_iter().find_map(|(sites, medians, is_leak)| {
        let of_row = sites.iter().filter(|site| site.device == row.device && site.pool == row.pool);
        let causes = of_row.map(|site| {
            let median_bytes = medians.get(&(site.pool.as_str(), site.line.as_str())).copied().unwrap_or(0);
            Cause { line: site.line.clone(), bytes: site.bytes, median_bytes, is_leak }
        });
        let worth_naming = |cause: &Cause| cause.bytes > cause.median_bytes.saturating_mul(11) / 10;
        causes.filter(worth_naming).max_by_key(|cause| cause.bytes - cause.median_bytes)
    })
}

fn sites(members: &[Arc<Member>], list: impl Fn(&Member) -> &Vec<SiteNumbers>) -> Vec<FleetSite> {
    let mut by_line: FxHashMap<(&str, &str), FleetSite> = FxHashMap::default();
    for member in members {
        // Several devices of a process, or several stacks of a line, are one for its rank.
        let mut own: FxHashMap<(&str, &str), (u64, u64, &str)> = FxHashMap::default();
        for site in list(member) {
            let (bytes, growth, held_by) = own.entry((&site.pool, &site.line)).or_default();
            *bytes = bytes.saturating_add(site.bytes);
            let is_growing = member.steps > 0 && site.kind != AFTER_FINALIZE;
            *growth = growth.saturating_add(if is_growing { site.bytes_per_step } else { 0 });
            *held_by = if held_by.is_empty() { &site.held_by } else { held_by };
        }
        for ((pool, line), (bytes, growth, held_by)) in own {
            let site = by_line.entry((pool, line)).or_insert_with(|| FleetSite {
                pool: pool.to_owned(),
                line: line.to_owned(),
                processes: 0,
                ranks: Vec::new(),
                bytes: 0,
                most_bytes: 0,
                most_on: None,
                bytes_per_step: 0,
                is_growing: false,
                held_by: held_by.to_owned(),
            });
            site.is_growing |= growth > 0;
            // Processes of one rank follow each other.
            if member.rank.is_none() || site.ranks.last() != member.rank.as_ref() {
                site.processes += 1;
                site.ranks.extend(member.rank);
            }
            site.bytes = site.bytes.saturating_add(bytes);
            site.bytes_per_step = site.bytes_per_step.saturating_add(growth);
            if bytes > site.most_bytes {
                (site.most_bytes, site.most_on) = (bytes, member.rank);
            }
        }
    }
    by_line.into_values().collect()
}

fn largest(mut sites: Vec<FleetSite>) -> Vec<FleetSite> {
    sites.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.line.cmp(&right.line)));
    sites.truncate(MOST_SITES);
    sites
}

/// Ranks by stage or group; nothing if there is only one.
fn groups(matrix: &[RankRow], number: impl Fn(&RankRow) -> Option<u32>) -> Vec<GroupUse> {
    let mut by_number: BTreeMap<u32, Vec<&RankRow>> = BTreeMap::new();
    for row in matrix.iter().filter(|row| !row.is_helper) {
        if let Some(number) = number(row) {
            by_number.entry(number).or_default().push(row);
        }
    }
    if by_number.len() < 2 {
        return Vec::new();
    }
    let group = |(number, rows): (u32, Vec<&RankRow>)| {
        let mut peaks: Vec<f64> = rows.iter().map(|row| row.peak_bytes as f64).collect();
        let mut ranks: Vec<u32> = rows.iter().filter_map(|row| row.rank).collect();
        ranks.dedup();
        let median_peak_bytes = median(&mut peaks) as u64;
        let (least, most) = (peaks.first(), peaks.last());
        GroupUse {
            number,
            ranks,
            median_peak_bytes,
            least_peak_bytes: least.map_or(0, |bytes| *bytes as u64),
            most_peak_bytes: most.map_or(0, |bytes| *bytes as u64),
        }
    };
    by_number.into_iter().map(group).collect()
}

/// The curves of all hosts, on the clock of the job.
fn host_curves(members: &[Arc<Member>], start_ns: u64, end_ns: u64) -> Vec<HostCurve> {
    let duration_ns = end_ns.saturating_sub(start_ns).max(1);
    let mut hosts: BTreeMap<&str, HostCurve> = BTreeMap::new();
    for member in members {
        let host = hosts.entry(&member.host).or_insert_with(|| HostCurve {
            host: member.host.clone(),
            processes: 0,
            most_bytes: vec![0; PIECES],
        });
        host.processes += 1;
        for curve in member.devices.iter().map(|device| &device.numbers.curve).filter(|curve| !curve.is_empty()) {
            let own_ns = member.end_ns.saturating_sub(member.start_ns);
            let after_ns = member.start_ns.saturating_sub(start_ns);
            let piece_of = |index: usize| {
                let at_ns = u128::from(after_ns) + u128::from(own_ns) * index as u128 / curve.len() as u128;
                ((at_ns * PIECES as u128 / u128::from(duration_ns)) as usize).min(PIECES - 1)
            };
            let mut own = [0u64; PIECES];
            for (index, bytes) in curve.iter().enumerate() {
                let last = piece_of(index + 1).max(piece_of(index));
                own[piece_of(index)..=last].iter_mut().for_each(|most| *most = (*most).max(*bytes));
            }
            host.most_bytes.iter_mut().zip(own).for_each(|(sum, bytes)| *sum = sum.saturating_add(bytes));
        }
    }
    hosts.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32, peak_bytes: u64) -> Member {
        let mut summary = Summary::default();
        summary.identity.rank = Some(rank);
        summary.identity.world_size = Some(8);
        summary.identity.host = format!("host{}", rank / 4);
        summary.identity.process_id = 100 + rank;
        (summary.identity.start_ns, summary.identity.end_ns) = (1000, 2000);
        summary.pools = vec![PoolNumbers {
            device: (rank % 4).to_string(),
            pool: "HAL".to_owned(),
            peak_bytes,
            curve: vec![peak_bytes / 2, peak_bytes],
            ..PoolNumbers::default()
        }];
        let site = |line: &str, bytes| SiteNumbers {
            device: (rank % 4).to_string(),
            pool: "HAL".to_owned(),
            line: line.to_owned(),
            bytes,
            ..SiteNumbers::default()
        };
        summary.call_sites_at_peak = vec![site("a.c:1 f", 100), site("b.c:2 g", peak_bytes - 100)];
        Member::of(PathBuf::new(), summary)
    }

    #[test]
    fn the_rank_that_differs_is_found_with_its_line() {
        let members = (0..8).map(|rank| member(rank, if rank == 5 { 3000 } else { 1000 })).map(Arc::new).collect();
        let job = JobReport::of(None, members);
        assert_eq!(job.outliers.len(), 1);
        let outlier = &job.outliers[0];
        assert_eq!(job.matrix[outlier.row].rank, Some(5));
        let expected = Cause { line: "b.c:2 g".to_owned(), bytes: 2900, median_bytes: 900, is_leak: false };
        assert_eq!(outlier.because_of, Some(expected));
        assert_eq!(outlier.differences[0].measure, Measure::Peak);
        assert_eq!((outlier.differences[0].equal, outlier.differences[0].among), (7, 8));
        let site = &job.call_sites_at_peak[0];
        assert_eq!((site.line.as_str(), site.processes, site.bytes, site.most_on), ("b.c:2 g", 8, 9200, Some(5)));
    }

    #[test]
    fn without_steps_nothing_grows_with_them() {
        let leak = |steps, kind: &str| {
            let mut member = member(0, 1000);
            let (kind, line) = (kind.to_owned(), "a.c:1 f".to_owned());
            member.steps = steps;
            member.leaks = vec![SiteNumbers { kind, line, bytes: 70, bytes_per_step: 70, ..SiteNumbers::default() }];
            let job = JobReport::of(None, vec![Arc::new(member)]);
            (job.leaks[0].is_growing, job.leaks[0].bytes_per_step)
        };
        assert_eq!(leak(0, "leak"), (false, 0));
        assert_eq!(leak(5, AFTER_FINALIZE), (false, 0));
        assert_eq!(leak(5, "leak"), (true, 70));
    }

    #[test]
    fn curves_of_a_host_add_up() {
        let job = JobReport::of(None, (0..8).map(|rank| member(rank, 1000)).map(Arc::new).collect());
        assert_eq!(job.hosts.len(), 2);
        assert_eq!((job.hosts[0].most_bytes[0], job.hosts[0].most_bytes[PIECES - 1]), (2000, 4000));
        assert_eq!((job.most_bytes[0], job.most_bytes[PIECES - 1]), (4000, 8000));
        assert!(job.outliers.is_empty() && job.missing_ranks.is_empty());
    }

    #[test]
    fn ranks_are_compared_within_their_stage() {
        let stage = |rank: u32| if rank < 4 { 4000 } else { 1000 };
        let mut members: Vec<Member> =
            (0..8).map(|rank| member(rank, if rank == 6 { 2000 } else { stage(rank) })).collect();
        for member in &mut members {
            member.division.pipeline_parallel_size = Some(2);
        }
        let job = JobReport::of(None, members.into_iter().map(Arc::new).collect());
        assert_eq!(job.outliers.iter().map(|outlier| outlier.row).collect::<Vec<_>>(), [6]);
        let peaks: Vec<_> = job.stages.iter().map(|stage| stage.median_peak_bytes).collect();
        assert_eq!(peaks, [4000, 1000]);
    }
}
