//! Recording without our program in front: LD_PRELOAD by hand, `env`, the installed launcher.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Bench, assert_success, column, copy_program, job, recordings, release, run, stderr, stdout};

const LIBRARIES: [&str; 5] = [
    "libleaks_ascend_hal_hook.so",
    "libascend_mstx_hook.so",
    "libascend_kernel_hook.so",
    "libatb_abi_0_hook.so",
    "libatb_abi_1_hook.so",
];
const SCRIPT: &str = "init device:0 alloc:1000 start alloc:2000 pool:300 mark:here stop alloc:4000 say:done fini";

/// An installation as packages make it: bin with launcher and program, lib64 with the libraries.
fn install(home: &Path) -> PathBuf {
    let (bin, libraries) = (home.join("bin"), home.join("lib64"));
    std::fs::create_dir_all(&bin).expect("directory");
    std::fs::create_dir_all(&libraries).expect("directory");
    for name in LIBRARIES {
        std::fs::copy(release().join(name), libraries.join(name)).expect("library");
    }
    copy_program(&release().join("msmemscope"), &bin.join("msmemscope.bin"));
    let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/msmemscope");
    copy_program(&launcher, &bin.join("msmemscope"));
    for name in ["msmemscope", "msmemscope.bin"] {
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).expect("mode");
    }
    home.to_owned()
}

fn preload(directory: &Path, names: &[&str]) -> OsString {
    let paths: Vec<String> = names.iter().map(|name| directory.join(name).display().to_string()).collect();
    paths.join(":").into()
}

/// Rows of the one recording below the default output directory of the test.
fn sizes_of_default_output(bench: &Bench) -> Vec<String> {
    let all = recordings(&bench.path("memscopeDumpResults"));
    let [recorded] = &all[..] else { panic!("one recording, not {all:?}") };
    let rows = recorded.events("MALLOC");
    rows.iter().map(|row| format!("{} {}", row[column::TYPE], row[column::ATTRIBUTES])).collect()
}

#[test]
fn the_preload_lines_of_the_manual_record_between_start_and_stop() {
    let bench = Bench::new();
    let home = install(&bench.path("tool"));
    let mut command = bench.command(job());
    let standin = standin_testing::home().join("lib64");
    command
        .args(SCRIPT.split_whitespace())
        .env("LD_PRELOAD", preload(&home.join("lib64"), &LIBRARIES))
        .env("LD_LIBRARY_PATH", format!("{}/:{}", home.join("lib64").display(), standin.display()));
    let output = run(command);
    assert_success(&output);
    assert_eq!(stdout(&output), "done\n", "the finisher's words do not go to the job's standard output");
    assert!(stderr(&output).contains("Driver (HAL)"), "the finisher's report: {}", stderr(&output));
    let rows = sizes_of_default_output(&bench);
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows[0].contains("size:1000") && rows[0].contains("shadow:true"), "alive before the start: {rows:?}");
    assert!(rows[1].contains("size:2000") && rows[2].starts_with("PTA "), "{rows:?}");
}

#[test]
fn without_a_start_nothing_is_left_behind() {
    let bench = Bench::new();
    let mut command = bench.command(job());
    command.args(["alloc:10", "free", "alloc:20"]).env("LD_PRELOAD", preload(release(), &LIBRARIES));
    let output = run(command);
    assert_success(&output);
    assert_eq!(stderr(&output), "");
    assert!(recordings(&bench.path("memscopeDumpResults")).is_empty());
}

#[test]
fn a_single_library_says_what_it_cannot_see() {
    let bench = Bench::new();
    let mut command = bench.command(job());
    command.args(SCRIPT.split_whitespace()).env("LD_PRELOAD", preload(release(), &LIBRARIES[..1]));
    let output = run(command);
    assert_success(&output);
    let said = stderr(&output);
    assert_eq!(said.matches("will not report their memory pools").count(), 1, "{said}");
    assert!(sizes_of_default_output(&bench).iter().any(|row| row.contains("size:2000")));
}

#[test]
fn a_recording_that_nobody_can_finish_is_named() {
    let bench = Bench::new();
    let lonely = bench.path("lonely");
    std::fs::create_dir(&lonely).expect("directory");
    std::fs::copy(release().join(LIBRARIES[2]), lonely.join(LIBRARIES[2])).expect("library");
    let mut command = bench.command(job());
    command.args(SCRIPT.split_whitespace()).env("LD_PRELOAD", lonely.join(LIBRARIES[2]));
    let output = run(command);
    assert_success(&output);
    assert!(stderr(&output).contains("msmemscope finish '"), "{}", stderr(&output));
    let all = recordings(&bench.path("memscopeDumpResults"));
    assert_success(&run(bench.msmemscope(["finish".as_ref(), all[0].0.as_os_str()])));
    assert_eq!(all[0].events("MALLOC").len(), 3);
}

#[test]
fn eval_of_env_sets_up_the_shell_once() {
    let bench = Bench::new();
    let mut command = bench.command("bash");
    let program = release().join("msmemscope");
    let script = format!(
        "eval \"$({0} env)\"; first=$LD_PRELOAD:$LD_LIBRARY_PATH; eval \"$({0} env)\"\n\
         [ \"$first\" = \"$LD_PRELOAD:$LD_LIBRARY_PATH\" ] && echo unchanged\n{1} {SCRIPT}",
        program.display(),
        job().display()
    );
    let output = run({
        command.args(["-c", &script]);
        command
    });
    assert_success(&output);
    assert_eq!(stdout(&output), "unchanged\ndone\n");
    assert_eq!(sizes_of_default_output(&bench).len(), 3);
}

fn bash(bench: &Bench, script: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-c", script]).current_dir(bench.home.path());
    command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH").env_remove("MSMEMSCOPE_LIB_PATH");
    let output = run(command);
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn the_launcher_must_be_sourced_for_its_environment_options() {
    let bench = Bench::new();
    let home = install(&bench.path("my tool"));
    let launcher = home.join("bin/msmemscope");
    for option in ["--load-api-env", "--unload-api-env"] {
        let (status, _, said) = bash(&bench, &format!("'{}' {option}", launcher.display()));
        assert_eq!(status, Some(1));
        assert!(said.to_lowercase().contains("must be sourced"), "{said}");
    }
    let (status, text, _) = bash(&bench, &format!("'{}' --version", launcher.display()));
    assert_eq!((status, text.starts_with("msmemscope version ")), (Some(0), true));
    let (status, _, said) = bash(&bench, &format!("'{}' --level=x job", launcher.display()));
    assert_eq!(status, Some(2), "{said}");
}

#[test]
fn sourcing_the_launcher_loads_and_unloads_only_its_own() {
    let bench = Bench::new();
    let home = install(&bench.path("tool")).canonicalize().expect("installed");
    let (launcher, libraries) = (home.join("bin/msmemscope"), home.join("lib64"));
    let script = format!(
        "export LD_LIBRARY_PATH=/usr/local/lib:/opt/cann/lib64\n\
         source {0} --load-api-env >/dev/null || exit 9\n\
         echo \"$LD_LIBRARY_PATH|$LD_PRELOAD|$MSMEMSCOPE_LIB_PATH\"\n\
         source {0} --load-api-env\n\
         LD_PRELOAD=$LD_PRELOAD:/opt/other/hook.so\n\
         source {0} --unload-api-env >/dev/null\n\
         echo \"$LD_LIBRARY_PATH|$LD_PRELOAD|$MSMEMSCOPE_LIB_PATH|$(declare -F | grep -c msmemscope)\"\n\
         source {0} --unload-api-env >/dev/null; echo $?",
        launcher.display()
    );
    let (status, text, said) = bash(&bench, &script);
    assert_eq!(status, Some(0), "{text}{said}");
    let lines: Vec<&str> = text.lines().collect();
    let loaded: Vec<&str> = lines[0].split('|').collect();
    assert_eq!(loaded[0], format!("{}:/usr/local/lib:/opt/cann/lib64", libraries.display()));
    let order: Vec<PathBuf> = LIBRARIES.iter().rev().map(|name| libraries.join(name)).collect();
    assert_eq!(loaded[1].split(':').map(PathBuf::from).collect::<Vec<_>>(), order);
    assert_eq!(Path::new(loaded[2]), libraries);
    assert!(text.contains("nothing to do"), "the second time changes nothing: {text}");
    assert_eq!(lines[lines.len() - 2], "/usr/local/lib:/opt/cann/lib64|/opt/other/hook.so||0");
    assert_eq!(lines[lines.len() - 1], "0", "unloading again is no error");
}

#[test]
fn an_incomplete_installation_says_so() {
    let bench = Bench::new();
    let home = install(&bench.path("tool"));
    std::fs::remove_dir_all(home.join("lib64")).expect("removed");
    let (status, _, said) = bash(&bench, &format!("source {}/bin/msmemscope --load-api-env", home.display()));
    assert_eq!(status, Some(1));
    assert_eq!(said.matches("[msmemscope] ERROR: ").count(), 2, "{said}");
    let (status, _, said) = bash(&bench, &format!("{}/bin/msmemscope true", home.display()));
    assert_eq!((status, said.contains("libascend_kernel_hook.so")), (Some(2), true), "{said}");
}
