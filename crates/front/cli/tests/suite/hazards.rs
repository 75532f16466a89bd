//! Jobs that could break a recording, or that a recording could break, as users meet them.

use crate::support::{Bench, assert_success, job, run, stderr};

/// Something of the job writes over the start of its trace: that is said, by everybody who meets it.
#[test]
fn a_header_that_was_overwritten_is_reported() {
    let bench = Bench::new();
    let script = format!(
        "{} alloc:1000; for trace in {}/*/recording.trace; do \
         printf 'epoch 1 loss 0.123456789' | dd of=$trace conv=notrunc status=none; done",
        job().display(),
        bench.output().display()
    );
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).args(["--", "bash", "-c", &script]);
    let recorded = run(command);
    assert_success(&recorded);
    let said = stderr(&recorded);
    assert!(said.contains("not a msmemscope trace: something has overwritten it"), "{said}");
    assert!(!said.contains("no memory events were seen"), "{said}");
    let mut command = bench.msmemscope(["recover"]);
    command.arg(bench.output());
    let recovered = run(command);
    assert!(!recovered.status.success());
    assert!(stderr(&recovered).contains("not a msmemscope trace"), "{}", stderr(&recovered));
    // Another run in the same directory is none the worse for it.
    assert_success(&bench.record(&[], "alloc:1000"));
    let mut command = bench.msmemscope(["recover"]);
    command.arg(bench.output());
    let recovered = run(command);
    assert!(!recovered.status.success(), "there is one that cannot be read");
    assert!(stderr(&recovered).contains("not a msmemscope trace"), "{}", stderr(&recovered));
}
