//! Marks and ranges of users, from any number of libraries that embed mstx.

use msmemscope_event::Fact;

use crate::support::{Lab, RECORDER, THIN, count, library, run};

/// Marks of a trace as `domain|device|text`.
fn marks(lab: &Lab) -> Vec<String> {
    let trace = lab.trace();
    let mut marks = Vec::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        if let Fact::Mark { domain, device, message } = record.fact {
            let domain = trace.definitions().string(domain);
            marks.push(format!("{domain}|{device}|{}", String::from_utf8_lossy(message)));
        }
    }
    marks
}

#[test]
fn every_connection_is_served() {
    for injection_path in [None, Some(THIN[1]), Some(RECORDER)] {
        let lab = Lab::new();
        let source = include_str!("../programs/embedded_mstx.c");
        let name = |number: &str| [format!("-DEMBEDDED_NAME={number}"), format!("-DEMBEDDED_TEXT=\"{number}\"")];
        let compile = |number: &str| {
            let definitions = name(number);
            let arguments = [definitions[0].as_str(), definitions[1].as_str()];
            lab.compile_library(&format!("{number}.c"), source, &format!("lib{number}.so"), &arguments)
        };
        let (one, two) = (compile("one"), compile("two"));
        let libraries = ["ascendcl", "ms_tools_ext"];
        let program = lab.compile("marks.c", include_str!("../programs/marks.c"), &libraries);
        let mut command = lab.plain(&program);
        command.arg(&one).arg(&two).env("ASCEND_RT_VISIBLE_DEVICES", "3,5");
        lab.record(&mut command);
        if let Some(path) = injection_path {
            command.env("MSTX_INJECTION_PATH", library(path));
        }
        let output = run(&mut command);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout, "0 0\none: tool there\ntwo: tool there\n0\n", "{output:?}");
        let marks = marks(&lab);
        let expected = ["|1|of the program", "|1|one", "test|1|one in a domain", "|1|two", "test|1|two in a domain"];
        assert_eq!(marks[..5], expected);
        assert_eq!(marks[5], "|0|after another device");
        // A thread that chose no device is asked for once; the stand-in knows, or it does not.
        assert!(marks[6].ends_with("|no device chosen"), "{marks:?}");
        let trace = lab.trace();
        assert_eq!(trace.definitions().device_map(), Some(&b"3,5"[..]));
        assert!(trace.completeness().is_complete());
        assert_eq!(count(&trace, |fact| matches!(fact, Fact::RangeBegin { .. })), 2);
        assert_eq!(count(&trace, |fact| matches!(fact, Fact::RangeEnd { .. })), 2);
    }
}
