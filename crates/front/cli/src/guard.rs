//! Watches a running job for moments that the user wants to know of: writes out what its flight recorder holds then, and
//! runs the user's commands.
//!
//! Everything happens in a thread of the launcher, from what the job has written: the job knows nothing of it and waits
//! for nothing. Each rule is told once a minute at most of each process; what comes sooner waits.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use msmemscope_config::{Recording, Settings, Trigger};
use msmemscope_report::layout::near_path;
use msmemscope_report::shell::quoted_path;
use msmemscope_results::flight;
use msmemscope_results::following::{Condition, Followed, Following};
use msmemscope_results::recordings::{RecordingDirectory, recordings_of_run};

use crate::judging::{Judge, Sight};
use crate::signals::SignalsAtStart;
use crate::terminal::Terminal;

const INTERVAL: Duration = Duration::from_millis(500);
/// How long to wait for what a job that has ended wrote last.
const LAST_PATIENCE: Duration = Duration::from_secs(20);
/// A rule is told once in this time of a process.
const TIME_BETWEEN: Duration = Duration::from_secs(60);
/// Copies that are made for one job; a disk has an end.
const MOST_COPIES: usize = 16;
/// What a command finds in its environment.
const EVENT_VARIABLE: &str = "MSMEMSCOPE_EVENT";
const PATH_VARIABLE: &str = "MSMEMSCOPE_EVENT_PATH";
const PROCESS_VARIABLE: &str = "MSMEMSCOPE_EVENT_PROCESS";

/// The signal that asks for what the flight recorder holds.
pub const ASKING_SIGNAL: i32 = libc::SIGUSR2;

/// When, and what to do then.
#[derive(Clone, Debug)]
struct Rule {
    trigger: Trigger,
    makes_copy: bool,
    commands: Vec<String>,
}

/// The rules that settings stand for. Commands get a copy where the recording itself forgets.
fn rules(settings: &Settings) -> Vec<Rule> {
    let forgets = settings.flight_recorder_bytes.is_some();
    let triggers = if forgets { settings.triggers.as_slice() } else { &[] };
    let rule = |&trigger| Rule { trigger, makes_copy: true, commands: Vec::new() };
    let mut rules: Vec<Rule> = triggers.iter().map(rule).collect();
    for reaction in &settings.reactions {
        let commands = vec![reaction.command.clone()];
        match rules.iter_mut().find(|rule| rule.trigger == reaction.trigger) {
            Some(rule) => rule.commands.extend(commands),
            None => rules.push(Rule { trigger: reaction.trigger, makes_copy: forgets, commands }),
        }
    }
    rules.retain(|rule| rule.trigger != Trigger::End);
    rules
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that is being watched.
pub struct Guard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    takes_signal: bool,
}

impl Guard {
    /// Starts to watch, if there is anything to watch for.
    pub fn start(recording: &Recording, signals: SignalsAtStart, terminal: &Terminal) -> Self {
        let rules = rules(&recording.settings);
        let shared = Arc::new(Shared::default());
        let takes_signal = rules.iter().any(|rule| rule.trigger == Trigger::Signal);
        let thread = (!rules.is_empty()).then(|| {
            let watch = Watch {
                output: recording.settings.output.clone(),
                run_id: recording.run_id,
                rules,
                signals,
                terminal: *terminal,
                processes: Vec::new(),
                moments: Moments::default(),
                copies: 0,
            };
            let shared = Arc::clone(&shared);
            // Without a thread nothing is told; that is no reason to fail.
            std::thread::Builder::new().name("guard".to_owned()).spawn(move || watch.run(&shared)).ok()
        });
        Self { shared, thread: thread.flatten(), takes_signal }
    }

    /// Takes a signal that is meant for the flight recorder. False if it is for the job.
    pub fn takes(&self, signal: i32) -> bool {
        let takes = self.takes_signal && signal == ASKING_SIGNAL;
        if takes {
            self.shared.lock().is_asked = true;
            self.shared.changed.notify_all();
        }
        takes
    }

    /// The job has ended: judges what it wrote last.
    pub fn end(mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A process of the job.
struct Process {
    following: Following,
    first_seen: Instant,
    judges: Vec<Judge>,
}

/// A rule, and the process that it is about: their places in what is watched.
type RuleAndProcess = (usize, usize);

/// Moments one by one: none is lost, but what came a short time after the last of its kind waits.
#[derive(Default)]
struct Moments {
    told: HashMap<RuleAndProcess, Instant>,
    waiting: Vec<RuleAndProcess>,
}

impl Moments {
    /// Adds new ones and gives those whose time has come; in the end all of them.
    fn due(&mut self, new: Vec<RuleAndProcess>, now: Instant, has_ended: bool) -> Vec<RuleAndProcess> {
        for one in new {
            if !self.waiting.contains(&one) {
                self.waiting.push(one);
            }
        }
        let told = &self.told;
        let is_due = |one: &RuleAndProcess| {
            has_ended || told.get(one).is_none_or(|told| now.saturating_duration_since(*told) >= TIME_BETWEEN)
        };
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (due, waiting): (Vec<_>, Vec<_>) = all.partition(is_due);
        self.waiting = waiting;
        self.told.extend(due.iter().map(|one| (*one, now)));
        due
    }
}

struct Watch {
    output: PathBuf,
    run_id: u64,
    rules: Vec<Rule>,
    signals: SignalsAtStart,
    terminal: Terminal,
    processes: Vec<Process>,
    moments: Moments,
    copies: usize,
}

impl Watch {
    fn run(mut self, shared: &Shared) {
        let mut has_ended = false;
        while !has_ended {
            let state = shared.lock();
            let waited = shared
                .changed
                .wait_timeout_while(state, INTERVAL, |state| !state.has_ended && !state.is_asked)
                .unwrap_or_else(PoisonError::into_inner);
            let mut state = waited.0;
            has_ended = state.has_ended;
            let is_asked = std::mem::take(&mut state.is_asked);
            drop(state);
            self.find_processes();
            if is_asked {
                self.write_out_all();
            }
            self.judge(has_ended);
        }
    }

    fn find_processes(&mut self) {
        for recording in recordings_of_run(&self.output, self.run_id) {
            if !self.processes.iter().any(|process| process.following.recording().path == recording.path) {
                self.processes.push(Process {
                    following: Following::start(recording, INTERVAL),
                    first_seen: Instant::now(),
                    judges: self.rules.iter().map(|rule| Judge::new(rule.trigger)).collect(),
                });
            }
        }
    }

    /// Looks at every process. If the job has ended, waits for what it wrote last.
    fn judge(&mut self, has_ended: bool) {
        let mut moments: Vec<RuleAndProcess> = Vec::new();
        for (number, process) in self.processes.iter_mut().enumerate() {
            let followed = if has_ended { last_sight(&process.following) } else { process.following.now() };
            if followed.condition == Condition::Opening {
                continue; // Nothing is known yet.
            }
            let sight = Sight::of(&followed.picture);
            for (rule, judge) in process.judges.iter_mut().enumerate() {
                if judge.look(process.first_seen.elapsed(), &sight) {
                    moments.push((rule, number));
                }
            }
        }
        for (rule, process) in self.moments.due(moments, Instant::now(), has_ended) {
            let recording = self.processes[process].following.recording().clone();
            self.tell(rule, &recording);
        }
    }

    /// Does what a rule says.
    fn tell(&mut self, rule: usize, recording: &RecordingDirectory) {
        let Rule { trigger, makes_copy, commands } = self.rules[rule].clone();
        let what = trigger.word();
        let copy = if makes_copy { self.write_out(what, std::slice::from_ref(recording)) } else { None };
        let path = copy.unwrap_or_else(|| recording.path.clone());
        for command in commands {
            self.run_command(&command, what, &path, recording.identity.process_id);
        }
    }

    fn write_out_all(&mut self) {
        let recordings: Vec<RecordingDirectory> =
            self.processes.iter().map(|process| process.following.recording().clone()).collect();
        if !recordings.is_empty() {
            self.write_out(Trigger::Signal.word(), &recordings);
        }
    }

    /// Gives the directory with what the flight recorder holds, if it could be written.
    fn write_out(&mut self, what: &str, recordings: &[RecordingDirectory]) -> Option<PathBuf> {
        self.copies += 1;
        if self.copies > MOST_COPIES {
            if self.copies == MOST_COPIES + 1 {
                self.terminal
                    .warning(format!("the flight recorder was written out {MOST_COPIES} times; no more follow"));
            }
            return None;
        }
        match flight::write_out(&self.output, what, recordings) {
            Ok(directory) => {
                let (program, shown) = (self.terminal.program_name(), quoted_path(near_path(&directory)));
                self.terminal.notice(format!("{what}: the flight recorder is written out; {program} analyze {shown}"));
                Some(directory)
            }
            Err(problem) => {
                self.terminal.warning(format!("the flight recorder cannot be written out: {problem}"));
                None
            }
        }
    }

    /// Runs a command of the user and does not wait for it: whoever waits for the job collects it. It has none of our
    /// streams, so that nobody who reads them waits for it either.
    fn run_command(&self, command: &str, what: &str, path: &Path, process_id: u32) {
        let signals = self.signals;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.env(EVENT_VARIABLE, what).env(PATH_VARIABLE, path).env(PROCESS_VARIABLE, process_id.to_string());
        // SAFETY: the closure only makes async-signal-safe system calls.
        unsafe {
            shell.pre_exec(move || {
                libc::setsid(); // A Ctrl-C for the job is none for the command.
                signals.restore()
            })
        };
        if let Err(error) = shell.spawn() {
            self.terminal.warning(format!("{what}: the command cannot be run: {error}"));
        }
    }
}

/// What is known of a process once everything it wrote has been read, or after some time.
fn last_sight(following: &Following) -> Followed {
    let started = Instant::now();
    loop {
        let followed = following.now();
        if followed.condition.is_final() || started.elapsed() > LAST_PATIENCE || following.recording().is_running() {
            return followed;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use msmemscope_config::{Reaction, Variant};

    use super::*;

    #[test]
    fn moments_that_come_too_soon_wait_and_others_do_not() {
        let mut moments = Moments::default();
        let start = Instant::now();
        let mut due = |new: &[RuleAndProcess], seconds, has_ended| {
            moments.due(new.to_vec(), start + Duration::from_secs(seconds), has_ended)
        };
        assert_eq!(due(&[(0, 0)], 0, false), [(0, 0)]);
        assert_eq!(due(&[(0, 0), (1, 0), (0, 1)], 3, false), [(1, 0), (0, 1)], "another rule, another process");
        assert_eq!(due(&[(0, 0)], 59, false), []);
        assert_eq!(due(&[], 60, false), [(0, 0)]);
        assert_eq!(due(&[(0, 0)], 61, false), []);
        assert_eq!(due(&[], 62, true), [(0, 0)], "in the end everything");
        assert_eq!(due(&[], 63, true), []);
    }

    #[test]
    fn commands_join_the_triggers_of_a_flight_recorder() {
        let command = |trigger| Reaction { trigger, command: "true".to_owned() };
        let reactions = vec![command(Trigger::OutOfMemory), command(Trigger::Peak(None))];
        let told = |settings: &Settings| -> Vec<(&str, bool, usize)> {
            rules(settings).iter().map(|rule| (rule.trigger.word(), rule.makes_copy, rule.commands.len())).collect()
        };
        let plain = Settings { reactions, ..Settings::defaults(Variant::Msmemscope) };
        assert_eq!(told(&plain), [("oom", false, 1), ("peak", false, 1)]);
        let flight = Settings { flight_recorder_bytes: Some(1 << 26), ..plain };
        assert_eq!(told(&flight), [("oom", true, 1), ("signal", true, 0), ("peak", true, 1)]);
        let none = Settings { triggers: vec![Trigger::End], reactions: Vec::new(), ..flight };
        assert_eq!(told(&none), []);
    }
}
