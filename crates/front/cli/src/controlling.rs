//! `msmemscope ctl`: starts, stops and changes the recording of a job that is running, and gets results of it while it
//! goes on.
//!
//! A job is asked through the header page of its own recording, and acts with its next memory event; nothing is sent to
//! it, and it has no thread for this. Only the user who owns recording and process can ask.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use msmemscope_config::{Invocation, Recording, SettingsChange, apply_python_config};
use msmemscope_event::{Place, RecordingState};
use msmemscope_report::layout::near_path;
use msmemscope_report::shell::quoted_path;
use msmemscope_report::units::{bytes, counted};
use msmemscope_results::flight;
use msmemscope_results::recordings::{RecordingDirectory, recording_of_process};
use msmemscope_trace::Trace;
use msmemscope_trace::requests::{Answer, Asked, Command, Condition, Requests, Turn};

use crate::analyzing::print_json;
use crate::exit_status::ExitStatus;
use crate::finishing::{farewell, finish_and_print};
use crate::signals::end_tidily;
use crate::terminal::Terminal;
use crate::top::asked_recordings;
use crate::{Outcome, print_text};

/// How long to wait for a job that uses no memory, if nobody says otherwise.
const USUAL_PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_PATIENCE_SECONDS: f64 = 3600.0;

/// What can be done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Start,
    Stop,
    Step,
    Snapshot,
    Finish,
    Status,
    Set,
}

const VERBS: [(&str, Verb); 7] = [
    ("start", Verb::Start),
    ("stop", Verb::Stop),
    ("step", Verb::Step),
    ("snapshot", Verb::Snapshot),
    ("finish", Verb::Finish),
    ("status", Verb::Status),
    ("set", Verb::Set),
];

impl Verb {
    fn from_word(word: &OsStr) -> Option<Self> {
        VERBS.iter().find(|(name, _)| *name == word).map(|(_, verb)| *verb)
    }

    /// What the job has to do for it.
    fn command(self) -> Option<Command> {
        match self {
            Verb::Start => Some(Command::Start),
            Verb::Stop | Verb::Finish => Some(Command::Stop),
            Verb::Step => Some(Command::Step),
            Verb::Snapshot => Some(Command::Snapshot),
            Verb::Set => Some(Command::Configure),
            Verb::Status => None,
        }
    }

    /// Whether it is worth waiting for: a step at another moment is another step.
    fn may_be_late(self) -> bool {
        matches!(self, Verb::Start | Verb::Stop | Verb::Finish | Verb::Set)
    }

    fn gives_results(self) -> bool {
        matches!(self, Verb::Snapshot | Verb::Finish)
    }
}

/// `ctl [<pid|dir>] <verb> [key=value...]`
pub fn control_jobs(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let (target, verb, arguments) = read_operands(&invocation.operands)?;
    let patience = patience(invocation)?;
    let change = read_changes(verb, arguments)?;
    let jobs = running_jobs(target, terminal)?;
    let answers = match verb.command() {
        Some(command) => ask(&jobs, verb, command, change.as_ref(), patience)?,
        None => vec![Answer::Met; jobs.len()],
    };
    let is_met = answers.iter().all(|answer| *answer == Answer::Met);
    if invocation.has_flag("json") {
        let processes =
            jobs.iter().zip(&answers).map(|(job, answer)| job.json(*answer)).collect::<Result<Vec<_>, _>>()?;
        print_json(&serde_json::json!({ "processes": processes }))?;
    } else {
        let mut lines = String::new();
        for (job, answer) in jobs.iter().zip(&answers) {
            lines.push_str(&format!("{}: {}\n", job.title(), job.outcome(verb, *answer, patience)?));
        }
        print_text(&lines)?;
    }
    if verb.gives_results() {
        let recordings = flight::that_stay(jobs.into_iter().map(|job| job.recording).collect(), "ctl")?;
        end_tidily(farewell("finish", recordings.iter().map(|recording| &*recording.path), terminal));
        let as_json = invocation.has_flag("json");
        if !as_json {
            print_text("\n")?;
        }
        let reports = finish_and_print(&recordings, &SettingsChange::default(), as_json, terminal)?;
        if reports.len() < recordings.len() {
            return Ok(ExitStatus::Failure);
        }
    }
    Ok(if is_met { ExitStatus::Success } else { ExitStatus::Broken })
}

/// Which job, what to do, and the rest.
fn read_operands(operands: &[OsString]) -> Result<(&[OsString], Verb, &[OsString]), String> {
    let words = || VERBS.map(|(word, _)| word).join(", ");
    for position in 0..operands.len().min(2) {
        if let Some(verb) = Verb::from_word(&operands[position]) {
            return Ok((&operands[..position], verb, &operands[position + 1..]));
        }
    }
    match operands.last() {
        Some(last) => Err(format!("ctl: '{}' is none of {}", last.to_string_lossy(), words())),
        None => Err(format!("ctl: say what to do: {}", words())),
    }
}

fn patience(invocation: &Invocation) -> Result<Duration, String> {
    let Some(text) = invocation.flag_value("wait") else { return Ok(USUAL_PATIENCE) };
    let text = text.to_string_lossy();
    match text.parse::<f64>() {
        Ok(number) if (0.0..=LONGEST_PATIENCE_SECONDS).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err(format!("--wait must be seconds from 0 to {LONGEST_PATIENCE_SECONDS}, not '{text}'")),
    }
}

/// The settings that `set` names; other verbs have none.
fn read_changes(verb: Verb, arguments: &[OsString]) -> Result<Option<SettingsChange>, String> {
    if verb != Verb::Set {
        return match arguments.first() {
            Some(extra) => Err(format!("ctl: '{}' is one argument too many", extra.to_string_lossy())),
            None => Ok(None),
        };
    }
    if arguments.is_empty() {
        return Err("ctl set: say what to set, such as call_stack=python:5".to_owned());
    }
    let texts: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let mut pairs = Vec::new();
    for text in &texts {
        let pair = text.trim_start_matches('-').split_once('=');
        pairs.push(pair.ok_or_else(|| format!("ctl set: '{text}' is not of the form key=value"))?);
    }
    let keys: Vec<String> = pairs.iter().map(|(key, _)| key.replace('-', "_")).collect();
    let pairs: Vec<(&str, &str)> = keys.iter().zip(&pairs).map(|(key, (_, value))| (key.as_str(), *value)).collect();
    let change = apply_python_config(&pairs).map_err(|error| error.to_string())?;
    let fixed = [
        (change.output.is_some(), "output"),
        (change.data_formats.is_some(), "data_format"),
        (change.max_trace_size_bytes.is_some(), "max_trace_size"),
        (change.watch.as_ref().is_some_and(Option::is_some), "watch"),
    ];
    match fixed.iter().find(|(is_given, _)| *is_given) {
        Some((_, key)) => Err(format!("ctl set: {key} cannot be changed while the job runs")),
        None => Ok(Some(change)),
    }
}

/// A process that can be asked.
struct Job {
    recording: RecordingDirectory,
    requests: Requests,
    place: Place,
}

/// The running processes of what the user named, or of the latest run.
fn running_jobs(target: &[OsString], terminal: &Terminal) -> Result<Vec<Job>, String> {
    if let [operand] = target {
        check_owner(operand)?;
    }
    let recordings = asked_recordings(target, terminal)?;
    let mut jobs = Vec::new();
    for recording in recordings.into_iter().filter(RecordingDirectory::is_running) {
        let shown = quoted_path(near_path(&recording.path));
        let process_id = recording.identity.process_id;
        check_process_owner(process_id)?;
        let requests = Requests::open(&recording.trace_path()).map_err(|error| format!("{shown}: {error}"))?;
        let place =
            Trace::introduction(&recording.trace_path()).map(|known| known.definitions.place()).unwrap_or_default();
        jobs.push(Job { recording, requests, place });
    }
    match jobs.is_empty() {
        true => Err("none of these processes is running any more".to_owned()),
        false => Ok(jobs),
    }
}

/// A process that the user named by its number.
fn check_owner(operand: &OsStr) -> Result<(), String> {
    match operand.to_str().and_then(|text| text.parse().ok()) {
        Some(process_id) if !Path::new(operand).exists() => check_process_owner(process_id),
        _ => Ok(()),
    }
}

/// Nobody controls the processes of others, not even who may write to their files.
fn check_process_owner(process_id: u32) -> Result<(), String> {
    let Ok(metadata) = std::fs::metadata(format!("/proc/{process_id}")) else { return Ok(()) };
    // SAFETY: plain system call.
    let user_id = unsafe { libc::geteuid() };
    match metadata.uid() == user_id {
        true => Ok(()),
        false => Err(format!("process {process_id} belongs to user {}; only that user can control it", metadata.uid())),
    }
}

/// Asks all jobs at once, and waits for them together.
fn ask(
    jobs: &[Job],
    verb: Verb,
    command: Command,
    change: Option<&SettingsChange>,
    patience: Duration,
) -> Result<Vec<Answer>, String> {
    let deadline = Instant::now() + patience;
    let mut answers = vec![Answer::Occupied(None); jobs.len()];
    let mut asked = Vec::new();
    let mut occupied = Vec::new();
    for (index, turn) in turns(jobs, deadline)? {
        // Those that are free need not wait for the others.
        match in_the_way(&jobs[index], &turn, command, Instant::now())? {
            Some(_) => occupied.push((index, turn)),
            None => asked.push((index, jobs[index].ask(turn, command, change)?)),
        }
    }
    for (index, turn) in occupied {
        match in_the_way(&jobs[index], &turn, command, deadline)? {
            Some(earlier) => answers[index] = Answer::Occupied(Some(earlier)),
            None => asked.push((index, jobs[index].ask(turn, command, change)?)),
        }
    }
    for (index, asked) in asked {
        answers[index] = jobs[index].wait(&asked, verb, deadline)?;
    }
    Ok(answers)
}

/// The right to ask each job, as far as others give it back in time. Everybody takes them in the same order, so that
/// nobody waits for somebody who waits for them.
fn turns(jobs: &[Job], deadline: Instant) -> Result<Vec<(usize, Turn<'_>)>, String> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&index| &jobs[index].recording.path);
    let mut turns = Vec::new();
    for index in order {
        let turn = jobs[index].requests.lock(deadline).map_err(|error| jobs[index].failed(error))?;
        turns.extend(turn.map(|turn| (index, turn)));
    }
    Ok(turns)
}

fn in_the_way(job: &Job, turn: &Turn<'_>, command: Command, deadline: Instant) -> Result<Option<Command>, String> {
    turn.wait_for_earlier(command, deadline).map_err(|error| job.failed(error))
}

impl Job {
    fn title(&self) -> String {
        self.place.title(self.recording.identity.process_id)
    }

    fn failed(&self, error: std::io::Error) -> String {
        format!("{}: {error}", self.title())
    }

    fn condition(&self) -> Result<Condition, String> {
        self.requests.condition().map_err(|error| self.failed(error))
    }

    /// Asks for a command. Settings are those of this moment, in which nobody else can change them.
    fn ask<'j>(&self, turn: Turn<'j>, command: Command, change: Option<&SettingsChange>) -> Result<Asked<'j>, String> {
        let text = change.map(|change| self.changed_settings(change)).transpose()?.unwrap_or_default();
        turn.ask(command, &text).map_err(|error| self.failed(error))
    }

    fn wait(&self, asked: &Asked<'_>, verb: Verb, deadline: Instant) -> Result<Answer, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = asked.wait(left).map_err(|error| self.failed(error))?;
        if answer == Answer::NotYet && self.requests.has_moved().unwrap_or(false) {
            return Ok(self.answer_elsewhere(asked.number()));
        }
        if answer == Answer::NotYet && !verb.may_be_late() {
            return asked.withdraw().map_err(|error| self.failed(error));
        }
        Ok(answer)
    }

    /// The answer of a job whose recording has moved to where its settings want it.
    fn answer_elsewhere(&self, number: u32) -> Answer {
        let moved = recording_of_process(self.recording.identity.process_id);
        let requests = moved.and_then(|recording| Requests::open(&recording.trace_path()).ok());
        requests.and_then(|requests| requests.answer(number).ok()).unwrap_or(Answer::NotYet)
    }

    /// The job's latest settings with a change, in the form in which they are handed over.
    fn changed_settings(&self, change: &SettingsChange) -> Result<Vec<u8>, String> {
        let path = self.recording.trace_path();
        let trace = Trace::open(&path).map_err(|error| format!("{}: {error}", quoted_path(&path)))?;
        let texts = trace.definitions().settings();
        let latest = texts.last().and_then(|latest| std::str::from_utf8(latest.text).ok());
        let recording = latest.and_then(|text| Recording::from_environment(text).ok());
        let Some(recording) = recording else { return Err(format!("{}: its settings are not known", self.title())) };
        let (settings, _) = change.apply_to(&recording.settings);
        Ok(Recording { settings, ..recording }.to_environment().into_bytes())
    }

    /// What became of it, in words.
    fn outcome(&self, verb: Verb, answer: Answer, patience: Duration) -> Result<String, String> {
        let condition = self.condition()?;
        let state = words(condition.state);
        let late = || {
            let seconds = patience.as_secs_f64();
            format!("no memory event in {seconds} s")
        };
        Ok(match (answer, verb) {
            (Answer::Refused(libc::EAGAIN), Verb::Step) => "not recording, so there is no step to end".to_owned(),
            (Answer::Refused(errno), _) => format!("not done: {}", std::io::Error::from_raw_os_error(errno)),
            (Answer::NotYet, Verb::Snapshot) => format!("{}: without counters of the framework", late()),
            (Answer::NotYet, Verb::Step) => format!("{}, so there is no step to end", late()),
            (Answer::NotYet, _) => format!("{}; it will follow with its next one", late()),
            (Answer::Occupied(Some(earlier)), _) => {
                format!("not done: an earlier '{}' still waits for the job's next memory event", verb_of(earlier))
            }
            (Answer::Occupied(None), _) => "not done: another ctl still waits for its answer".to_owned(),
            (Answer::Met, Verb::Step) => format!("step {} ends here", condition.steps),
            (Answer::Met, Verb::Status) => self.status(&state, condition),
            (Answer::Met, Verb::Set) => format!("{state}, with the new settings"),
            (Answer::Met, _) => state,
        })
    }

    fn status(&self, state: &str, condition: Condition) -> String {
        let size = std::fs::metadata(self.recording.trace_path()).map_or(0, |metadata| metadata.len());
        let steps = match condition.steps {
            0 => String::new(),
            steps => format!(", {}", counted(steps, "marked step")),
        };
        format!("{state}{steps}, {} in {}", bytes(size), quoted_path(near_path(&self.recording.path)))
    }

    fn json(&self, answer: Answer) -> Result<serde_json::Value, String> {
        let condition = self.condition()?;
        Ok(serde_json::json!({
            "process_id": self.recording.identity.process_id,
            "rank": self.place.rank,
            "directory": self.recording.path,
            "state": condition.state.map(word),
            "steps": condition.steps,
            "answer": match answer {
                Answer::Met => "done",
                Answer::Refused(_) => "refused",
                Answer::NotYet => "not yet",
                Answer::Occupied(_) => "occupied",
            },
        }))
    }
}

/// The word by which users ask for a command.
fn verb_of(command: Command) -> &'static str {
    let names = |(_, verb): &&(&str, Verb)| verb.command() == Some(command);
    VERBS.iter().find(names).map_or("request", |(word, _)| word)
}

fn word(state: RecordingState) -> &'static str {
    match state {
        RecordingState::On => "recording",
        RecordingState::Shadow => "paused",
        RecordingState::Off => "off",
    }
}

fn words(state: Option<RecordingState>) -> String {
    match state {
        Some(RecordingState::Shadow) => "paused; what is alive is still noted".to_owned(),
        Some(state) => word(state).to_owned(),
        None => "running".to_owned(),
    }
}
