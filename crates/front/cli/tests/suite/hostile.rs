//! Bad surroundings: strange names, long paths, full disks, foreign owners, others in the same place.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{
    Bench, assert_success, attribute, column, copy_program, job, recordings, release, run, stderr, stdout,
};

fn is_root() -> bool {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() == 0 }
}

const NAMES: [&str; 6] = ["with space", "it's \"quoted\"", "new\nline", "训练 结果", "semi;colon$(date)", "-dash"];

#[test]
fn strange_directory_names_work_and_can_be_pasted() {
    for name in NAMES {
        let bench = Bench::new();
        let output = bench.path(name);
        let mut command = bench.msmemscope(["--data-format=csv,db", "--output"]);
        command.arg(&output).arg("--").arg(job()).args(["init", "device:0", "alloc:12", "raise:9"]);
        let result = run(command);
        assert!(stderr(&result).contains("Results in"), "{name:?}: {}", stderr(&result));
        let all = recordings(&output);
        assert_eq!(all.len(), 1, "{name:?}");
        assert_eq!(all[0].events("MALLOC").len(), 1);
        assert_eq!(all[0].rows("db").len(), all[0].rows("csv").len());
        std::fs::remove_file(all[0].0.join(".finished")).expect("finished");
        let mut command = bench.msmemscope([OsStr::new("--output"), output.as_os_str()]);
        command.arg("true");
        let said = stderr(&run(command));
        let advice = said.split("no results yet: msmemscope ").nth(1).expect("an advice").lines().next();
        let pasted = format!("{} {}", release().join("msmemscope").display(), advice.expect("a command"));
        assert_success(&run({
            let mut shell = bench.command("bash");
            shell.args(["-c", &pasted]);
            shell
        }));
        assert!(all[0].is_finished(), "{pasted}");
        assert_success(&run(bench.msmemscope([OsStr::new("info"), output.as_os_str()])));
    }
}

#[test]
fn strange_program_names_arguments_and_marks_stay_as_they_are() {
    let bench = Bench::new();
    for name in NAMES {
        let program = bench.path(name);
        copy_program(job(), &program);
        let mut command = bench.msmemscope(["--data-format=csv,db", "--output"]);
        command.arg(bench.output()).arg("--").arg(&program);
        command.args(["init", "device:0", "alloc:1"]).arg(format!("mark:{name},{name}")).arg(format!("say:{name}"));
        let output = run(command);
        assert_success(&output);
        assert_eq!(stdout(&output), format!("{name}\n"));
        let heading = stderr(&output).lines().find(|line| line.starts_with("Process ")).map(str::to_owned);
        assert!(heading.is_some_and(|line| line.ends_with(')')), "the heading stays one line: {}", stderr(&output));
    }
    for recorded in bench.recordings() {
        let marks = recorded.events("MSTX");
        assert!(NAMES.iter().any(|name| marks[0][column::NAME] == format!("{name},{name}")), "{marks:?}");
        let in_database = recorded.rows("db").into_iter().find(|row| row[column::EVENT] == "MSTX").expect("a mark");
        assert_eq!(in_database[column::NAME], marks[0][column::NAME]);
    }
}

#[test]
fn bytes_that_are_no_text_are_kept_in_paths() {
    use std::os::unix::ffi::OsStringExt;
    let bench = Bench::new();
    let output = bench.path(OsString::from_vec(b"out\xff\xfe".to_vec()));
    let mut command = bench.msmemscope(["--output"]);
    command.arg(&output).arg("--").arg(job()).arg("alloc:1");
    assert_success(&run(command));
    assert_eq!(recordings(&output).len(), 1);
}

/// A path of exactly this many bytes below `home`.
fn path_of_length(home: &Path, length: usize) -> PathBuf {
    let mut path = home.as_os_str().to_owned();
    while length - path.len() > 201 {
        path.push("/");
        path.push("d".repeat(199));
    }
    let rest = length - path.len() - 1;
    path.push("/");
    path.push("e".repeat(rest));
    assert_eq!(path.len(), length);
    PathBuf::from(path)
}

#[test]
fn long_paths_work_or_are_refused_before_the_job_starts() {
    let bench = Bench::new();
    let home = bench.home.path().canonicalize().expect("a path");
    for (length, works) in [(3900, true), (4096, false), (4097, false)] {
        let output = path_of_length(&home, length);
        let mut command = bench.msmemscope(["--data-format=csv,db", "--output"]);
        command.arg(&output).arg("--").arg(job()).args(["init", "device:0", "alloc:1", "alloc:2", "say:ran"]);
        let result = run(command);
        if works {
            assert_success(&result);
            let all = recordings(&output);
            assert_eq!(all.len(), 1);
            assert_eq!((all[0].events("MALLOC").len(), all[0].rows("db").len()), (2, all[0].rows("csv").len()));
        } else {
            assert_eq!(result.status.code(), Some(2), "{}", stderr(&result));
            assert_eq!(stdout(&result), "", "the job is not started");
            assert_eq!(stderr(&result).lines().filter(|line| line.contains("Error: ")).count(), 1);
        }
    }
}

#[test]
fn simultaneous_runs_into_one_directory_do_not_disturb_each_other() {
    let bench = Bench::new();
    let runs: Vec<_> = (1..=4u64)
        .map(|number| {
            let mut command = bench.msmemscope(["--data-format=csv,db", "--output"]);
            let job = job().display();
            let script =
                format!("{job} init device:0 alloc:{number} loop:2000 & {job} init device:0 alloc:{number}; wait");
            command.arg(bench.output()).args(["--", "bash", "-c", &script]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("our program starts")
        })
        .collect();
    for child in runs {
        let output = child.wait_with_output().expect("an end");
        assert_success(&output);
        assert_eq!(stderr(&output).matches("Results in").count(), 2, "each tells of its own: {}", stderr(&output));
    }
    let all = bench.recordings();
    assert_eq!(all.len(), 8);
    let mut sizes: Vec<u64> = all
        .iter()
        .map(|recorded| {
            assert_eq!(recorded.rows("db").len(), recorded.rows("csv").len());
            attribute(&recorded.events("MALLOC")[0], "size").and_then(|size| size.parse().ok()).expect("a size")
        })
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 2, 2, 3, 3, 4, 4]);
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf, size: &str) -> Self {
        std::fs::create_dir(&path).expect("a directory");
        let disk = Self(path);
        disk.call(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        disk
    }

    fn enlarge(&self, size: &str) {
        self.call(&["-o", &format!("remount,size={size}")]);
    }

    fn call(&self, arguments: &[&str]) {
        let status = Command::new("mount").args(arguments).arg(&self.0).status().expect("mount runs");
        assert!(status.success(), "mount {arguments:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_job() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let bench = Bench::new();
    let disk = SmallDisk::mount(bench.output(), "2m");
    let output = bench.record(&["--max-trace-size=1GiB"], "init device:0 loop:150000 say:done exit:6");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(6), "done\n"), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains(&format!("msmemscope recover {}", bench.output().display())), "{said}");
    let recorded = bench.recording();
    assert!(recorded.tables("csv").is_empty(), "nothing half is left");
    disk.enlarge("400m");
    let recover = run(bench.msmemscope([OsStr::new("recover"), bench.output().as_os_str()]));
    assert_success(&recover);
    assert!(stdout(&recover).contains("events lost: disk full"), "{}", stdout(&recover));
    assert!(recorded.events("MALLOC").len() > 10_000);
}

/// All events are lost then, and that was said: nobody is told that there were none.
#[test]
fn a_disk_without_room_for_anything_is_named_once() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let bench = Bench::new();
    let _disk = SmallDisk::mount(bench.output(), "8k");
    let output = bench.record(&[], "init device:0 loop:10 say:done exit:6");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(6), "done\n"), "{}", stderr(&output));
    let said = stderr(&output);
    assert_eq!(said.matches("No space left on device").count(), 1, "{said}");
    assert!(said.contains("no memory events were recorded; if no message above says why"), "{said}");
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_the_job_starts() {
    let bench = Bench::new();
    std::fs::write(bench.path("file"), "").expect("a file");
    let mut places = vec![bench.path("file"), bench.path("file/below"), PathBuf::from("/proc/nothing")];
    if !is_root() {
        places.push(PathBuf::from("/usr/out"));
    }
    for place in places {
        let mut command = bench.msmemscope([OsStr::new("--output"), place.as_os_str()]);
        command.arg("--").arg(job()).arg("say:ran");
        let output = run(command);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{}", stderr(&output));
        assert!(stderr(&output).contains("--output: "), "{}", stderr(&output));
    }
}

/// A copy of the tool with given modes.
fn copy_of_tool(directory: &Path) {
    std::fs::create_dir_all(directory).expect("a directory");
    for name in ["msmemscope", "libascend_kernel_hook.so"] {
        copy_program(&release().join(name), &directory.join(name));
    }
}

#[test]
fn a_library_path_that_the_preload_variable_cannot_carry_is_bridged() {
    let bench = Bench::new();
    let temporary = bench.path("tmp");
    std::fs::create_dir(&temporary).expect("a directory");
    for name in ["my tools", "a:b", "tab\there"] {
        let tool = bench.path(name);
        copy_of_tool(&tool);
        let mut command = bench.command(tool.join("msmemscope"));
        command.env("TMPDIR", &temporary).arg("--output").arg(bench.output());
        let script = format!("{} init device:0 alloc:3; realpath $LD_PRELOAD", job().display());
        command.args(["--", "bash", "-c", &script]);
        let output = run(command);
        assert_success(&output);
        let real = tool.join("libascend_kernel_hook.so").canonicalize().expect("the library");
        assert_eq!(stdout(&output).trim_end(), real.to_string_lossy(), "frameworks see the real name");
        assert_eq!(std::fs::read_dir(&temporary).expect("listing").count(), 0, "the link is gone");
        let environment = run({
            let mut command = bench.command(tool.join("msmemscope"));
            command.arg("env");
            command
        });
        assert_eq!(environment.status.code(), Some(2), "{}", stderr(&environment));
        assert!(stderr(&environment).contains("LD_PRELOAD cannot name"));
    }
    assert_eq!(bench.recordings().len(), 3);
}

/// Runs the copy of the tool as another user, who may not be able to read the programs of this test.
fn as_nobody(bench: &Bench, tool: &Path, output: &Path) -> String {
    let mut command = bench.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(tool.join("msmemscope"));
    command.arg("--output").arg(output).args(["--", "true"]);
    let result = run(command);
    assert_success(&result);
    stderr(&result)
}

#[test]
fn files_of_strangers_are_warned_about_and_root_is_told_that_nothing_is_checked() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let bench = Bench::new();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    };
    let own = |path: &Path, user: u32| std::os::unix::fs::chown(path, Some(user), Some(user)).expect("an owner");
    open(bench.home.path(), 0o755);
    let (tool, output) = (bench.path("tool"), bench.output());
    copy_of_tool(&tool);
    let library = tool.join("libascend_kernel_hook.so");
    std::fs::create_dir(&output).expect("a directory");
    own(&output, 65534);
    open(&output, 0o750);

    let said = as_nobody(&bench, &tool, &output);
    assert!(!said.contains("the library") && !said.contains("the output directory"), "{said}");
    open(&library, 0o775);
    let said = as_nobody(&bench, &tool, &output);
    assert!(said.contains(&format!("the library {} can be written by other users", library.display())), "{said}");
    open(&library, 0o755);
    own(&library, 12345);
    let said = as_nobody(&bench, &tool, &output);
    assert!(said.contains("the library ") && said.contains("belongs to another user"), "{said}");
    own(&library, 0);
    open(&tool, 0o777);
    let said = as_nobody(&bench, &tool, &output);
    assert!(said.contains("the library directory ") && said.contains("can be written by other users"), "{said}");
    open(&tool, 0o755);
    open(&output, 0o770);
    let said = as_nobody(&bench, &tool, &output);
    assert!(said.contains("the output directory ") && said.contains("can be written by other users"), "{said}");

    let said = stderr(&bench.record(&[], "alloc:1"));
    assert_eq!(said.matches("running as root").count(), 1, "{said}");
    assert!(!said.contains("can be written"), "{said}");
}
