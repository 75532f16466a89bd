//! What others put into a shared output directory neither destroys nor changes anything of ours, nor makes us wait.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::{Bench, Recorded, assert_success, job, recordings, run, stderr, stdout};

/// Somebody else.
const STRANGER: u32 = 65534;

fn is_root() -> bool {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() == 0 }
}

/// Hands a tree over to somebody else; says whether that can be done here.
fn give_away(path: &Path) -> bool {
    let owner = format!("{STRANGER}:{STRANGER}");
    is_root() && Command::new("chown").args(["-hR", &owner]).arg(path).status().expect("chown").success()
}

fn recover(bench: &Bench, directory: &Path) -> std::process::Output {
    run(bench.msmemscope([OsStr::new("recover"), directory.as_os_str()]))
}

/// A recording without results.
fn unfinished(bench: &Bench) -> Recorded {
    assert_success(&bench.record(&[], "init device:0 alloc:12 free"));
    let recorded = bench.recording();
    std::fs::remove_dir_all(recorded.0.join("device_0")).expect("results");
    std::fs::remove_dir_all(recorded.0.join("msmemscope_logs")).ok();
    std::fs::remove_file(recorded.0.join("config.json")).expect("settings");
    recorded
}

/// Files of somebody who finishes what others recorded.
fn victim(bench: &Bench) -> (std::path::PathBuf, std::path::PathBuf) {
    let home = bench.path("victim");
    std::fs::create_dir(&home).expect("a directory");
    let (settings, accounts) = (home.join("important.conf"), home.join("accounts.csv"));
    std::fs::write(&settings, "precious").expect("a file");
    std::fs::write(&accounts, "a,b\n1,2\n").expect("a file");
    (settings, accounts)
}

fn assert_untouched((settings, accounts): &(std::path::PathBuf, std::path::PathBuf)) {
    assert_eq!(std::fs::read_to_string(settings).expect("still there"), "precious");
    assert_eq!(std::fs::read_to_string(accounts).expect("still there"), "a,b\n1,2\n");
    assert_eq!(std::fs::read_dir(settings.parent().expect("a directory")).expect("listing").count(), 2);
}

#[test]
fn a_manifest_cannot_name_files_of_others() {
    let bench = Bench::new();
    let recorded = unfinished(&bench);
    let files = victim(&bench);
    let manifest = std::fs::read_to_string(recorded.0.join(".finished")).expect("a manifest");
    let options = manifest.lines().find(|line| line.starts_with("options ")).expect("options");
    let listed = |file: &Path, path: &str| {
        let found = file.metadata().expect("a file");
        format!("file {} {} 1 {path}\n", found.size(), found.mtime() * 1_000_000_000 + found.mtime_nsec())
    };
    std::fs::create_dir_all(recorded.0.join("device_0/dump/memscope_dump_x")).expect("directories");
    let climbing = "device_0/dump/memscope_dump_x/../../../../../victim/accounts.csv";
    let forged = format!(
        "msmemscope finished 1\ncomplete no\n{options}\nrecords 1\ntimestamp x/../../../../../victim/accounts\n{}{}",
        listed(&files.0, &files.0.to_string_lossy()),
        listed(&files.1, climbing)
    );
    for forged in
        [forged.clone(), forged.replace("timestamp x/../../../../../victim/accounts", "timestamp 20250101000000")]
    {
        std::fs::write(recorded.0.join(".finished"), forged).expect("a manifest");
        assert_success(&recover(&bench, &bench.output()));
        assert_untouched(&files);
        assert!(recorded.is_finished());
        assert_eq!(recorded.events("MALLOC").len(), 1);
        std::fs::remove_dir_all(recorded.0.join("device_0")).expect("results");
        std::fs::create_dir_all(recorded.0.join("device_0/dump/memscope_dump_x")).expect("directories");
    }
}

#[test]
fn results_are_not_written_through_links() {
    let bench = Bench::new();
    for name in ["device_0", "msmemscope_logs", "config.json", ".pending-device_0.csv", ".pending-manifest"] {
        let bench = Bench::new();
        let recorded = unfinished(&bench);
        std::fs::remove_file(recorded.0.join(".finished")).expect("a manifest");
        let files = victim(&bench);
        let is_directory = ["device_0", "msmemscope_logs"].contains(&name);
        let target = if is_directory { files.0.parent().expect("a directory") } else { &files.0 };
        symlink(target, recorded.0.join(name)).expect("a link");
        let output = recover(&bench, &bench.output());
        assert_untouched(&files);
        if name == "device_0" {
            assert_eq!(output.status.code(), Some(2));
            assert!(stderr(&output).contains("a symbolic link is in the way"), "{}", stderr(&output));
        }
    }
    // A recording that is a link itself is none of this directory; named, it is what it leads to.
    let recorded = unfinished(&bench);
    std::fs::remove_file(recorded.0.join(".finished")).expect("a manifest");
    let shared = bench.path("shared");
    std::fs::create_dir(&shared).expect("a directory");
    symlink(&recorded.0, shared.join("link")).expect("a link");
    assert_eq!(recover(&bench, &shared).status.code(), Some(2));
    assert!(!recorded.is_finished());
    assert_success(&recover(&bench, &shared.join("link")));
    assert!(recorded.is_finished());
}

#[test]
fn recordings_of_others_are_finished_only_if_named() {
    let bench = Bench::new();
    let recorded = unfinished(&bench);
    std::fs::remove_file(recorded.0.join(".finished")).expect("a manifest");
    if !give_away(&recorded.0) {
        eprintln!("skipped: needs root");
        return;
    }
    let said = stderr(&bench.record(&[], "alloc:1"));
    assert!(!said.contains("no results yet"), "not advertised: {said}");
    let output = recover(&bench, &bench.output());
    assert_success(&output);
    assert!(stderr(&output).contains("1 recording of another user is left out"), "{}", stderr(&output));
    assert!(!recorded.is_finished() && !recorded.0.join("device_0").exists());
    assert_success(&run(bench.msmemscope([OsStr::new("info"), bench.output().as_os_str()])));
    let mut named = bench.msmemscope(["finish", "--data-format=csv,db"]);
    named.arg(&recorded.0);
    assert_success(&run(named));
    assert_eq!((recorded.rows("db").len(), recorded.rows("csv").len()), (4, 4));
    assert_eq!(recorded.events("MALLOC").len(), 1);
}

#[test]
fn recordings_of_others_are_removed_only_if_named() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], "init device:0 alloc:12"));
    let recorded = bench.recording();
    if !give_away(&recorded.0) {
        eprintln!("skipped: needs root");
        return;
    }
    let clean = |place: &Path| {
        let mut command = bench.msmemscope(["clean", "--all", "--yes"]);
        command.arg(place);
        run(command)
    };
    let kept = clean(&bench.output());
    assert_success(&kept);
    assert!(stderr(&kept).contains("1 recording of other users in out left alone"), "{}", stderr(&kept));
    assert!(recorded.is_finished());
    assert_success(&clean(&recorded.0));
    assert!(!recorded.0.exists());
}

#[test]
fn pipes_and_taken_names_hold_nobody_up() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], "init device:0 alloc:12"));
    let place = bench.output().join("x");
    std::fs::create_dir(&place).expect("a directory");
    assert!(Command::new("mkfifo").arg(place.join("recording.trace")).status().expect("mkfifo").success());
    let mut command = bench.command("timeout");
    let probes =
        "for pid in $(seq $$ $(($$ + 300))); do mkdir -p \"$1/.msmemscope-probe-$pid\"; done; shift; exec \"$@\"";
    command.args(["60", "sh", "-c", probes, "sh"]).arg(bench.output());
    command.arg(crate::support::release().join("msmemscope")).arg("--output").arg(bench.output());
    command.arg("--").arg(job()).args(["alloc:1", "say:ran"]);
    let output = run(command);
    assert_success(&output);
    assert_eq!(stdout(&output), "ran\n");
    for name in ["info", "recover", "analyze"] {
        let mut command = bench.command("timeout");
        command.arg("60").arg(crate::support::release().join("msmemscope")).arg(name).arg(bench.output());
        assert_success(&run(command));
        let mut command = bench.command("timeout");
        command.arg("60").arg(crate::support::release().join("msmemscope")).arg(name).arg(&place);
        let output = run(command);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", stderr(&output));
    }
}

#[test]
fn no_text_of_a_recording_or_a_path_steers_the_terminal() {
    let bench = Bench::new();
    let evil = "e\u{1b}]0;PWN\u{7}\u{9b}31m\u{202e}\u{85}vil";
    let output = bench.path(evil);
    let mut command = bench.msmemscope(["--output"]);
    command.arg(&output).arg("--").arg(job()).args(["init", "device:0", "alloc:12"]).arg(format!("mark:{evil}"));
    let recorded_job = run(command);
    assert_success(&recorded_job);
    let recorded = recordings(&output).remove(0);
    let table = recorded.tables("csv").into_values().next().expect("a table");
    let mut seen = vec![stderr(&recorded_job), std::fs::read_to_string(&table).expect("a table")];
    let missing = bench.path(format!("missing {evil}"));
    std::fs::write(bench.path(format!("file {evil}")), "").expect("a file");
    let commands: [(&[&str], &Path); 12] = [
        (&["info"], &output),
        (&["list"], &output),
        (&["list", "--json"], &output),
        (&["clean", "--all"], &output),
        (&["analyze"], &output),
        (&["analyze", "--json"], &output),
        (&["analyze"], &missing),
        (&["check", "--no-leaks"], &missing),
        (&["compare", "-o", evil], &missing),
        (&["finish"], &output),
        (&["--"], &missing),
        (&["--output"], &bench.path(format!("file {evil}"))),
    ];
    for (arguments, path) in commands {
        let mut command = bench.msmemscope(arguments);
        command.arg(path);
        if arguments == ["--output"] {
            command.arg("true");
        }
        let done = run(command);
        seen.extend([stdout(&done), stderr(&done)]);
    }
    for text in &seen {
        let steers = |character: char| !['\n', '\t'].contains(&character) && msmemscope_event::is_steering(character);
        assert!(!text.contains(steers), "{text:?}");
    }
    let all = seen.concat();
    assert!(all.contains("\\x1b]0;PWN\\x07"), "it is spelled out: {all}");
    assert_eq!(table.metadata().expect("a table").permissions().mode() & 0o077, 0);
}
