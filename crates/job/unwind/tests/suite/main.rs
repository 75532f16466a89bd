//! Stacks equal the truth: C and C++ programs take `backtrace()` beside ours and compare.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Flags that change how functions lay out their frames.
const FRAME_FLAGS: [&[&str]; 5] = [
    &["-O0"],
    &["-O1", "-fno-omit-frame-pointer"],
    &["-O2", "-fomit-frame-pointer"],
    &["-O3", "-march=native", "-fomit-frame-pointer"],
    &["-Os", "-fno-plt"],
];

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The directory of the probe library, which is built once.
fn probe_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--package",
                "msmemscope-unwind",
                "--example",
                "unwind_probe",
                "--profile",
                profile,
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the probe library builds");
        let test = std::env::current_exe().expect("known");
        let directory = test.ancestors().nth(2).expect("target/profile/deps/test").join("examples");
        assert!(directory.join("libunwind_probe.so").exists());
        directory
    })
}

fn compile(compiler: &str, arguments: &[&str], inputs: &[PathBuf], output: &Path) {
    let result = Command::new(compiler)
        .args(["-g1", "-Wall", "-I"])
        .arg(programs())
        .args(arguments.iter().filter(|argument| !argument.starts_with("-l")))
        .args(inputs)
        .args(arguments.iter().filter(|argument| argument.starts_with("-l")))
        .arg("-o")
        .arg(output)
        .output()
        .expect("a compiler is installed");
    assert!(result.status.success(), "{compiler}: {}", String::from_utf8_lossy(&result.stderr));
}

/// Compiles a program against the probe library.
fn program(directory: &Path, source: &str, flags: &[&str], more: &[PathBuf]) -> PathBuf {
    let output = directory.join(source.replace('.', "_"));
    let library_path = format!("-L{}", probe_directory().display());
    let run_path = format!("-Wl,-rpath,{}", probe_directory().display());
    let mut arguments = flags.to_vec();
    arguments.extend([&*library_path, &*run_path, "-rdynamic", "-lunwind_probe", "-ldl", "-lpthread"]);
    let mut inputs = vec![programs().join(source)];
    inputs.extend_from_slice(more);
    compile(if source.ends_with(".cpp") { "g++" } else { "gcc" }, &arguments, &inputs, &output);
    output
}

/// Runs a program and returns what it printed.
fn run(command: &mut Command) -> String {
    let result = command.output().expect("runs");
    let errors = String::from_utf8_lossy(&result.stderr);
    let errors = errors.get(..errors.len().min(6000)).unwrap_or(&errors);
    assert!(result.status.success(), "{command:?}: {}\n{errors}", result.status);
    String::from_utf8_lossy(&result.stdout).into_owned()
}

fn random_calls(flags: &[&str], trees: u32, threads: u32, walk: bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let object = directory.path().join("archive.o");
    compile("gcc", &["-O2", "-fno-omit-frame-pointer", "-c"], &[programs().join("archive.c")], &object);
    let archive = directory.path().join("libarchive_unit.a");
    run(Command::new("ar").arg("rcs").arg(&archive).arg(&object));
    let plugin = directory.path().join("libplugin.so");
    compile("gcc", &["-O2", "-fomit-frame-pointer", "-shared", "-fPIC"], &[programs().join("plugin.c")], &plugin);
    let program = program(directory.path(), "random_calls.c", flags, &[archive]);
    let mut command = Command::new(&program);
    command.arg(&plugin).args([trees.to_string(), threads.to_string()]);
    if walk {
        command.env("MSMEMSCOPE_PROBE_WALK", "1");
    }
    let printed = run(&mut command);
    assert!(printed.starts_with(&format!("ok {} trees", trees * (threads + 1))), "{printed}");
}

#[test]
fn random_call_trees_of_eight_threads_without_frame_pointers() {
    random_calls(&["-O2", "-fomit-frame-pointer"], 12_500, 8, false);
}

#[test]
fn random_call_trees_of_all_builds() {
    for flags in FRAME_FLAGS {
        random_calls(flags, 1_000, 2, false);
    }
}

#[test]
fn random_call_trees_of_a_program_at_a_fixed_address() {
    random_calls(&["-O2", "-no-pie"], 1_000, 2, false);
}

#[test]
fn random_call_trees_where_the_linker_must_be_walked() {
    random_calls(&["-O2"], 1_000, 4, true);
}

fn simple(source: &str, arguments: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    for flags in FRAME_FLAGS {
        let program = program(directory.path(), source, flags, &[]);
        for walk in [false, true] {
            let mut command = Command::new(&program);
            command.args(arguments);
            if walk {
                command.env("MSMEMSCOPE_PROBE_WALK", "1");
            }
            assert!(run(&mut command).starts_with("ok"));
        }
    }
}

#[test]
fn recursion_two_thousand_deep_and_every_limit() {
    simple("recursion.c", &[]);
}

#[test]
fn signal_handlers_at_any_instruction_and_on_alternative_stacks() {
    simple("signals.c", &["600"]);
}

#[test]
fn coroutine_stacks_beside_unreadable_memory() {
    simple("coroutines.c", &[]);
}

#[test]
fn destructors_and_catch_blocks() {
    simple("exceptions.cpp", &[]);
}

#[test]
fn children_of_a_fork_define_everything_again() {
    simple("forked.c", &[]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn generated_code_is_walked_through_or_ends_the_stack() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = program(directory.path(), "gaps.c", &["-O1", "-fno-omit-frame-pointer"], &[]);
    for walk in ["0", "1"] {
        let mut command = Command::new(&program);
        if walk == "1" {
            command.env("MSMEMSCOPE_PROBE_WALK", walk);
        }
        assert_eq!(run(&mut command), "ok\n");
    }
}

#[test]
fn functions_without_tables_are_walked_by_frame_pointer() {
    let directory = tempfile::tempdir().expect("a directory");
    let object = directory.path().join("untabled.o");
    let flags = ["-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-c"];
    compile("gcc", &flags, &[programs().join("untabled.c")], &object);
    let flags = ["-O1", "-fno-omit-frame-pointer"];
    let program = program(directory.path(), "untabled_main.c", &flags, &[object]);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}

#[test]
fn a_program_without_an_index_of_its_tables() {
    let directory = tempfile::tempdir().expect("a directory");
    let object = directory.path().join("tabled.o");
    compile("gcc", &["-O1", "-fomit-frame-pointer", "-c"], &[programs().join("untabled.c")], &object);
    let flags = ["-O1", "-fomit-frame-pointer", "-Wl,--no-eh-frame-hdr"];
    let program = program(directory.path(), "untabled_main.c", &flags, &[object]);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}

#[test]
fn libraries_replaced_at_the_same_address() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut variants = Vec::new();
    for (variant, build_id) in [("1", "sha1"), ("2", "sha1"), ("3", "sha1"), ("2", "none"), ("3", "none")] {
        let output = directory.path().join(format!("variant_{variant}_{build_id}.so"));
        let define = format!("-DVARIANT={variant}");
        let build_id = format!("-Wl,--build-id={build_id}");
        compile("gcc", &["-O2", "-shared", "-fPIC", &define, &build_id], &[programs().join("reloaded.c")], &output);
        variants.push(output);
    }
    let program = program(directory.path(), "reload.c", &["-O2"], &[]);
    for walk in [false, true] {
        let mut command = Command::new(&program);
        command.arg(directory.path()).args(&variants);
        if walk {
            command.env("MSMEMSCOPE_PROBE_WALK", "1");
        }
        let printed = run(&mut command);
        assert!(printed.starts_with("ok"), "{printed}");
    }
}
