//! What a recording says about its process before the first event: who it is, how it was started, what it allocates with,
//! and what of it cannot be seen.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use msmemscope_control::SOURCE_POOL;
use msmemscope_courtesy::Descriptor;
use msmemscope_event::{Device, Fact, MEMORY_FRACTION, ProcessInfoKey, StackId};
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;
use msmemscope_trace::writer::Chunk;

use crate::process::existing;
use crate::{clock, errno, message, python_stacks, settings, sources, state, thread};

/// Other threads may be in a memory call that began, and was stamped, this much before the event
/// for which the recording is made.
const LONGEST_CALL_NS: u64 = 10_000_000;

/// Writes what is known about the process itself, as of a moment before all events.
pub fn introduce(chunk: &mut Chunk, event_ns: u64) {
    let introduction_ns = event_ns.saturating_sub(LONGEST_CALL_NS).max(state::last_change_ns());
    let mut put = |fact: Fact<'_>| {
        chunk.append(introduction_ns, StackId::NONE, StackId::NONE, &fact);
    };
    let mut describe = |key, text: &[u8]| {
        put(Fact::ProcessInfo { key, text: &text[..text.len().min(LARGEST_TEXT_BYTES)] });
    };
    describe(ProcessInfoKey::RecorderVersion, env!("CARGO_PKG_VERSION").as_bytes());
    if let Some(arguments) = Descriptor::read_file(c"/proc/self/cmdline") {
        describe(ProcessInfoKey::CommandLine, &arguments);
    }
    if let Ok(path) = std::env::current_exe() {
        describe(ProcessInfoKey::Executable, path.as_os_str().as_bytes());
    }
    if let Ok(path) = std::env::current_dir() {
        describe(ProcessInfoKey::WorkingDirectory, path.as_os_str().as_bytes());
    }
    describe(ProcessInfoKey::Settings, settings::recording().to_environment().as_bytes());
    describe(ProcessInfoKey::HostName, &host_name());
    describe(ProcessInfoKey::AllocatorSettings, &allocator_settings());
    let place = place();
    if !place.is_empty() {
        describe(ProcessInfoKey::Place, &place);
    }
    if let Some(job) = job() {
        describe(ProcessInfoKey::Job, job.as_bytes());
    }
    if let Some(pools) = UNSEEN_POOLS.get() {
        describe(ProcessInfoKey::UnseenPools, pools);
    }
    if let Some(version) = python_stacks::version() {
        describe(ProcessInfoKey::PythonVersion, version.as_bytes());
    }
    if let Some(visible) = std::env::var_os("ASCEND_RT_VISIBLE_DEVICES") {
        put(Fact::DeviceMap { text: visible.as_bytes() });
    }
    put(Fact::ClockAnchor { wall_offset_ns: clock::wall_offset_ns() });
    put(Fact::Recording { state: state::current() });
}

/// What the job has said by calls about how frameworks allocate: device and part of the card's memory.
static MEMORY_FRACTIONS: Mutex<Vec<(Device, f64)>> = Mutex::new(Vec::new());

/// Writes down what part of a card's memory PyTorch's pool may have, now or when the recording begins.
pub fn set_memory_fraction(device: Device, fraction: f64) {
    {
        // Only the interpreter's lock holder comes here, so it is free but in a child forked in between.
        let Ok(mut fractions) = MEMORY_FRACTIONS.try_lock() else { return };
        match fractions.iter_mut().find(|(known, _)| *known == device) {
            Some((_, known)) if *known == fraction => return,
            Some((_, known)) => *known = fraction,
            None => fractions.push((device, fraction)),
        }
    }
    if existing().is_some() && !state::is_disabled() {
        let key = ProcessInfoKey::AllocatorSettings;
        errno::aside(|| thread::record_now(&Fact::ProcessInfo { key, text: &allocator_settings() }));
    }
}

/// What tells frameworks how to allocate: variables of the job, and calls that it made.
fn allocator_settings() -> Vec<u8> {
    const NAMES: [&str; 5] = [
        "PYTORCH_NPU_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_NO_NPU_MEMORY_CACHING",
        "TASK_QUEUE_ENABLE",
        "ASCEND_LAUNCH_BLOCKING",
    ];
    let mut text = Vec::new();
    for (name, value) in NAMES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))) {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    if let Ok(fractions) = MEMORY_FRACTIONS.try_lock() {
        for (device, fraction) in &*fractions {
            text.extend_from_slice(format!("{MEMORY_FRACTION}({device})={fraction}\n").as_bytes());
        }
    }
    text
}

/// Rank and number of ranks, as a guest has learned them from a framework.
static RANK: OnceLock<(u32, u32)> = OnceLock::new();

/// Writes down which rank this process is, now or when the recording begins.
pub fn set_place(rank: u32, world_size: u32) {
    if RANK.set((rank, world_size)).is_ok() && existing().is_some() && !state::is_disabled() {
        thread::record_now(&Fact::ProcessInfo { key: ProcessInfoKey::Place, text: &place() });
    }
}

/// Ranks of the largest communicator that this process has joined, above its own rank there; zero if there is none.
static COMMUNICATOR: AtomicU64 = AtomicU64::new(0);

/// Writes down which rank this process is in a communicator, unless a larger one has said so before, or a framework or
/// launcher says it.
pub fn note_communicator(rank: u32, ranks: u32) {
    let known = COMMUNICATOR.fetch_max(u64::from(ranks) << 32 | u64::from(rank), Ordering::Relaxed);
    let is_news = ranks > (known >> 32) as u32 && RANK.get().is_none() && !tells_rank(&place_of_launcher());
    if is_news && existing().is_some() && !state::is_disabled() {
        errno::aside(|| thread::record_now(&Fact::ProcessInfo { key: ProcessInfoKey::Place, text: &place() }));
    }
}

/// The place of this process among those of its job: as a framework says it, or else launchers, or else the largest
/// communicator.
fn place() -> Vec<u8> {
    let of_launcher = place_of_launcher();
    let of_communicator = || {
        let known = COMMUNICATOR.load(Ordering::Relaxed);
        (known != 0).then_some((known as u32, (known >> 32) as u32))
    };
    let told = RANK.get().copied();
    let seen = || if tells_rank(&of_launcher) { None } else { of_communicator() };
    let Some((rank, world_size)) = told.or_else(seen) else { return of_launcher };
    let local = of_launcher.split_inclusive(|&byte| byte == b'\n').find(|line| line.starts_with(b"local_rank="));
    let mut text = format!("rank={rank}\nworld_size={world_size}\n").into_bytes();
    text.extend_from_slice(local.unwrap_or_default());
    text
}

/// Whether a text says more than the place among the processes of one machine.
fn tells_rank(place: &[u8]) -> bool {
    place.split(|&byte| byte == b'\n').any(|line| line.starts_with(b"rank=") || line.starts_with(b"world_size="))
}

/// What launchers say (torchrun and its likes, MindSpore's, MPI, Slurm).
fn place_of_launcher() -> Vec<u8> {
    const NAMES: [(&str, &[&str]); 3] = [
        ("rank", &["RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]),
        ("local_rank", &["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"]),
        ("world_size", &["WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"]),
    ];
    let mut text = Vec::new();
    for (name, variables) in NAMES {
        let number = |variable: &&str| std::env::var(variable).ok()?.parse::<u32>().ok();
        if let Some(number) = variables.iter().find_map(number) {
            text.extend_from_slice(format!("{name}={number}\n").as_bytes());
        }
    }
    text
}

/// The id of the job: the user's word, or else that of a launcher (torchrun, Slurm, MPI, MindX). torchrun says `none` if
/// nobody gave it one.
fn job() -> Option<std::ffi::OsString> {
    const NAMES: [&str; 5] =
        ["MSMEMSCOPE_JOB_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MINDX_TASK_ID", "OMPI_MCA_ess_base_jobid"];
    let is_id = |id: &std::ffi::OsString| !id.is_empty() && id != "none";
    NAMES.iter().find_map(|name| std::env::var_os(name).filter(is_id))
}

/// Pools of frameworks that cannot be seen here, as a guest said.
static UNSEEN_POOLS: OnceLock<Box<[u8]>> = OnceLock::new();

/// Writes down which pools cannot be seen, now or when the recording begins.
pub fn set_unseen_pools(text: &[u8]) {
    if UNSEEN_POOLS.set(text.into()).is_ok() && existing().is_some() && !state::is_disabled() {
        thread::record_now(&Fact::ProcessInfo { key: ProcessInfoKey::UnseenPools, text });
    }
}

/// Says once that frameworks will not report their pools: they do so only if they find this library,
/// under the name it has, in LD_PRELOAD. Children of a fork have the variable of a later time, when it is no longer
/// needed: they say nothing.
pub fn warn_about_missing_pools() {
    static JUDGED: AtomicBool = AtomicBool::new(false);
    if JUDGED.swap(true, Ordering::Relaxed) || sources::seen() & SOURCE_POOL != 0 {
        return;
    }
    let preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let names_us = |entry: &[u8]| {
        let real_path = std::fs::canonicalize(OsStr::from_bytes(entry));
        real_path.is_ok_and(|path| path.file_name() == Some(OsStr::new("libascend_kernel_hook.so")))
    };
    let reported = preload.as_bytes().split(|byte| matches!(byte, b':' | b' ')).any(names_us);
    if !reported {
        message::say(
            "libascend_kernel_hook.so is not in LD_PRELOAD: PyTorch and MindSpore will not report their memory pools",
        );
    }
}

fn host_name() -> Vec<u8> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length and stays terminated.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    name.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}
