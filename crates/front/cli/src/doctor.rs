//! `msmemscope doctor [-- program]`: explains what would not be recorded here, and why.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use msmemscope_config::Invocation;
use msmemscope_trace::writer::maps_files_in;

use crate::analyzing::print_json;
use crate::exit_status::ExitStatus;
use crate::libraries::{self, PRELOAD_LIBRARIES, RECORDER};
use crate::{Outcome, preload, print_text, program};

/// One thing that was looked at.
struct Finding {
    fine: bool,
    text: String,
    advice: &'static str,
}

/// `doctor [-- program]`: looks at everything and reports. The status says whether all is well.
pub fn examine(invocation: &Invocation) -> Outcome {
    let findings = findings(&invocation.operands);
    let all_fine = findings.iter().all(|finding| finding.fine);
    if invocation.has_flag("json") {
        let values: Vec<_> = findings.iter().map(json).collect();
        print_json(&serde_json::json!({ "findings": values, "all_fine": all_fine }))?;
    } else {
        print_text(&text(&findings, all_fine))?;
    }
    Ok(if all_fine { ExitStatus::Success } else { ExitStatus::Broken })
}

fn findings(program: &[OsString]) -> Vec<Finding> {
    let mut findings = Vec::new();
    examine_libraries(&mut findings);
    examine_environment(&mut findings);
    examine_place(Path::new("."), file_size_limit(), &mut findings);
    if let Some(name) = program.first() {
        examine_program(name, &mut findings);
        examine_python(name, &mut findings);
    }
    findings
}

fn json(finding: &Finding) -> serde_json::Value {
    let advice = (!finding.fine).then_some(finding.advice);
    serde_json::json!({ "fine": finding.fine, "text": finding.text, "advice": advice })
}

fn text(findings: &[Finding], all_fine: bool) -> String {
    let mut report = String::new();
    for finding in findings {
        let mark = if finding.fine { "ok  " } else { "LOOK" };
        let _ = writeln!(report, "{mark}  {}", finding.text);
        if !finding.fine {
            let _ = writeln!(report, "      {}", finding.advice);
        }
    }
    let conclusion = if all_fine {
        "Nothing stands in the way of a complete recording."
    } else {
        "Lines marked LOOK say what may be missing from a recording."
    };
    let _ = writeln!(report, "\n{conclusion}");
    report
}

fn fine(text: String) -> Finding {
    Finding { fine: true, text, advice: "" }
}

fn suspicious(text: String, advice: &'static str) -> Finding {
    Finding { fine: false, text, advice }
}

fn examine_libraries(findings: &mut Vec<Finding>) {
    let directory = match libraries::library_directory() {
        Ok(directory) => directory,
        Err(problem) => {
            findings.push(suspicious(problem, "Nothing can be recorded. Install the tool again."));
            return;
        }
    };
    findings.push(fine(format!("{RECORDER} is in {}", directory.display())));
    for name in PRELOAD_LIBRARIES.iter().filter(|name| !directory.join(name).is_file()) {
        findings.push(suspicious(
            format!("{name} is missing"),
            "Only recording by hand with that name in LD_PRELOAD is affected.",
        ));
    }
    if !preload::can_carry(&directory) {
        findings.push(suspicious(
            format!("the path {} has a colon or white space in it", directory.display()),
            "LD_PRELOAD cannot carry it: recording by hand is impossible, with the tool in front it works.",
        ));
    }
}

fn examine_environment(findings: &mut Vec<Finding>) {
    match std::env::var_os("ASCEND_HOME_PATH") {
        None => findings.push(suspicious(
            "ASCEND_HOME_PATH is not set".to_owned(),
            "torch_npu then sends no pool events (PTA). Source CANN's set_env.sh first.",
        )),
        Some(home) => {
            let library = Path::new(&home).join("lib64/libms_tools_ext.so");
            findings.push(if library.is_file() {
                fine(format!("{} is there", library.display()))
            } else {
                suspicious(
                    format!("{} is missing", library.display()),
                    "torch_npu then sends no pool events (PTA). Install CANN 8.2 or later.",
                )
            });
        }
    }
    if let Some(path) = std::env::var_os("MSTX_INJECTION_PATH") {
        findings.push(suspicious(
            format!("MSTX_INJECTION_PATH is set to {}", path.to_string_lossy()),
            "Marks, steps and pool events go to that tool instead. Unset it while recording.",
        ));
    }
    if std::env::var_os("ASAN_OPTIONS").is_some_and(|options| demands_link_order(options.as_bytes())) {
        findings.push(suspicious(
            "ASAN_OPTIONS has verify_asan_link_order=1".to_owned(),
            "Programs built with -fsanitize=address will not start behind the recorder. Leave that option out.",
        ));
    }
    if let Some(preload) = std::env::var_os("LD_PRELOAD").filter(|preload| !preload.is_empty()) {
        examine_preload(&preload, findings);
    }
}

/// Where recordings go unless another place is asked for, and what a job can meet there.
fn examine_place(directory: &Path, file_size_limit_bytes: Option<u64>, findings: &mut Vec<Finding>) {
    let shown = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let shown = shown.display();
    findings.push(if maps_files_in(directory) {
        fine(format!(
            "recordings below {shown} outlive a kill; do not cut one short while its job runs: that ends the job (SIGBUS)"
        ))
    } else {
        suspicious(
            format!("{shown} is on a network or user-space file system"),
            "Recordings there are buffered: a job that is killed loses its last events. Better use a local --output.",
        )
    });
    if let Some(limit) = file_size_limit_bytes {
        findings.push(suspicious(
            format!("files may have at most {limit} bytes here (ulimit -f)"),
            "A recording stops there, and results that are larger are not written. Raise the limit.",
        ));
    }
}

/// The most bytes that a file of this process may have, if there is a limit.
fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    (is_known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Programs that start another one with other rights, or with another view of the files.
const STEPS_ASIDE: [&str; 10] =
    ["su", "sudo", "runuser", "setpriv", "chroot", "bwrap", "firejail", "singularity", "apptainer", "docker"];

/// Whether options of the address sanitizer demand that it is the first library of all.
fn demands_link_order(options: &[u8]) -> bool {
    let words = options.split(|byte| matches!(byte, b':' | b',' | b' '));
    let mut values = words.filter_map(|word| word.strip_prefix(b"verify_asan_link_order="));
    values.next_back().is_some_and(|value| matches!(value, b"1" | b"true" | b"yes"))
}

/// What is preloaded already: by hand, by another installation, or something else altogether.
fn examine_preload(preload_value: &OsStr, findings: &mut Vec<Finding>) {
    let entries = preload::entries(preload_value);
    let missing = entries.iter().filter(|entry| entry.components().count() > 1 && !entry.exists());
    let missing: Vec<String> = missing.map(|entry| entry.display().to_string()).collect();
    if !missing.is_empty() {
        findings.push(suspicious(
            format!("LD_PRELOAD names files that do not exist: {}", missing.join(", ")),
            "The loader will complain about them in every process of the job.",
        ));
    }
    let is_named = |entry: &&&Path, name: &str| entry.file_name() == Some(OsStr::new(name));
    let recorder = entries.iter().find(|entry| is_named(entry, RECORDER) && entry.exists());
    let is_companion = |entry: &&Path| PRELOAD_LIBRARIES.iter().any(|name| is_named(&entry, name));
    match recorder.map(|entry| (entry, entry.canonicalize())) {
        Some((entry, Ok(real))) if real.file_name() != Some(OsStr::new(RECORDER)) => findings.push(suspicious(
            format!("{} leads to {}; frameworks look at the real name", entry.display(), real.display()),
            "PyTorch and MindSpore will not report their memory pools. Preload the library itself.",
        )),
        Some((entry, real)) => {
            let ours = libraries::library_directory().ok().map(|directory| directory.join(RECORDER));
            findings.push(if real.ok() == ours {
                fine("LD_PRELOAD names our recorder: it is recorded by hand or through the Python API".to_owned())
            } else {
                suspicious(
                    format!("LD_PRELOAD names {}, the recorder of another installation", entry.display()),
                    "Two recorders disturb each other. Remove it from LD_PRELOAD.",
                )
            });
        }
        None if entries.iter().any(is_companion) => findings.push(suspicious(
            format!("LD_PRELOAD does not name {RECORDER}"),
            "Recorded by hand like this, PyTorch and MindSpore will not report their memory pools.",
        )),
        None if missing.is_empty() => {
            let (first, behind): (Vec<&Path>, Vec<&Path>) =
                entries.iter().copied().partition(|entry| preload::is_sanitizer_runtime(entry));
            for (entries, place) in [(first, "first, as it must be"), (behind, "behind ours")] {
                if !entries.is_empty() {
                    let names: Vec<_> = entries.iter().map(|entry| entry.to_string_lossy()).collect();
                    findings.push(fine(format!("LD_PRELOAD already has {}; it is kept {place}", names.join(":"))));
                }
            }
        }
        None => {}
    }
}

fn examine_program(name: &OsStr, findings: &mut Vec<Finding>) {
    let Some(path) = program::find(name) else {
        findings.push(suspicious(
            format!("the program '{}' was not found", name.to_string_lossy()),
            "Check its name and PATH.",
        ));
        return;
    };
    let file_name = path.file_name().and_then(OsStr::to_str);
    if file_name.is_some_and(|name| STEPS_ASIDE.contains(&name)) {
        findings.push(suspicious(
            format!("{} starts programs with other rights or another view of the files", path.display()),
            "Where they cannot open the recording by its name, their events are lost, counted; with a seccomp filter that \
             kills on open they are ended. Put msmemscope behind it instead.",
        ));
    }
    let Ok(metadata) = path.metadata() else { return };
    if metadata.permissions().mode() & 0o111 == 0 {
        findings.push(suspicious(format!("{} is not executable", path.display()), "Make it executable with chmod +x."));
    }
    // SAFETY: plain system call.
    let foreign_setuid = metadata.mode() & 0o4000 != 0 && metadata.uid() != unsafe { libc::geteuid() };
    if foreign_setuid || metadata.mode() & 0o2000 != 0 {
        findings.push(suspicious(
            format!("{} runs with other privileges (setuid or setgid)", path.display()),
            "The loader ignores LD_PRELOAD for it, so nothing of it is recorded.",
        ));
    }
    match std::fs::read(&path) {
        Ok(bytes) => examine_image(&path, &bytes, findings),
        Err(error) => findings.push(suspicious(
            format!("{} cannot be read: {error}", path.display()),
            "Whether it can be recorded is not known.",
        )),
    }
}

/// A Python program without our package sees memory, but not who uses it.
fn examine_python(name: &OsStr, findings: &mut Vec<Finding>) {
    let is_python = Path::new(name).file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
    match libraries::python_package_directory() {
        Some(directory) => findings.push(fine(format!("the Python package is in {}", directory.display()))),
        None if is_python => findings.push(suspicious(
            "the Python package is not installed beside this program".to_owned(),
            "Operators, accesses, CPU tensors and Python calls are not recorded; memory events are. To get it, in the \
             source tree: make wheel, then pip install dist/*.whl",
        )),
        None => {}
    }
}

/// Machine number of the ELF files this recorder can be loaded into.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

fn examine_image(path: &Path, bytes: &[u8], findings: &mut Vec<Finding>) {
    let shown = path.display();
    if bytes.starts_with(b"#!") {
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        findings.push(fine(format!("{shown} is a script ({})", String::from_utf8_lossy(line))));
    } else if !bytes.starts_with(b"\x7fELF") || bytes.len() < 64 {
        findings.push(suspicious(format!("{shown} is neither a program nor a script"), "It may not start at all."));
    } else if bytes[4] != 2 || u16::from_le_bytes([bytes[18], bytes[19]]) != MACHINE {
        findings.push(suspicious(
            format!("{shown} is built for another machine"),
            "The recorder cannot be loaded into it.",
        ));
    } else if has_interpreter(bytes) {
        findings.push(fine(format!("{shown} is dynamically linked")));
    } else {
        findings.push(suspicious(
            format!("{shown} is statically linked"),
            "LD_PRELOAD has no effect on it; programs it starts are recorded.",
        ));
    }
}

/// Whether the program headers name a dynamic loader.
fn has_interpreter(image: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |offset: usize, length: usize| {
        let bytes = image.get(offset..offset + length)?;
        Some(bytes.iter().rev().fold(0usize, |number, &byte| number << 8 | usize::from(byte)))
    };
    let (Some(table), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else { return false };
    (0..count).any(|index| number(table.saturating_add(index * size), 4) == Some(PT_INTERP as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_on(path: &Path) -> String {
        let mut findings = Vec::new();
        examine_program(path.as_os_str(), &mut findings);
        findings.iter().map(|finding| format!("{} {}\n", finding.fine, finding.text)).collect()
    }

    #[test]
    fn what_the_address_sanitizer_demands_is_seen() {
        assert!(demands_link_order(b"detect_leaks=0:verify_asan_link_order=1"));
        assert!(!demands_link_order(b"verify_asan_link_order=1 verify_asan_link_order=0"));
        assert!(!demands_link_order(b"detect_leaks=1"));
    }

    #[test]
    fn programs_are_told_apart() {
        let home = tempfile::tempdir().expect("temporary directory");
        let script = home.path().join("script");
        std::fs::write(&script, "#!/bin/sh\ntrue\n").expect("script");
        assert!(report_on(&script).contains("false") && report_on(&script).contains("is not executable"));
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("mode");
        assert!(report_on(&script).contains("is a script (#!/bin/sh)"));
        let garbage = home.path().join("garbage");
        std::fs::write(&garbage, "nothing").expect("file");
        assert!(report_on(&garbage).contains("neither a program nor a script"));
        assert!(report_on(Path::new("/bin/cat")).contains("true /bin/cat is dynamically linked"));
        assert!(report_on(&home.path().join("absent")).contains("was not found"));
        let su = home.path().join("su");
        std::os::unix::fs::symlink("/bin/cat", &su).expect("a link");
        assert!(report_on(&su).contains("false") && report_on(&su).contains("with other rights"));
    }

    #[test]
    fn places_that_limit_recordings_are_named() {
        let home = tempfile::tempdir().expect("temporary directory");
        let report = |directory: &Path, limit| {
            let mut findings = Vec::new();
            examine_place(directory, limit, &mut findings);
            findings.iter().map(|finding| format!("{} {}\n", finding.fine, finding.text)).collect::<String>()
        };
        let local = report(home.path(), None);
        assert!(local.starts_with("true ") && local.contains("SIGBUS") && local.lines().count() == 1, "{local}");
        assert!(report(home.path(), Some(4096)).contains("false files may have at most 4096 bytes here"));
        // Where nothing is known, nothing is promised.
        assert!(report(Path::new("/nonexistent"), None).contains("false /nonexistent is on a network"));
    }
}
