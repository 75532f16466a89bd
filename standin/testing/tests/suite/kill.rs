//! What was completed before a kill is in the log.

use crate::workspace;
use standin_truth::read_directory;
use std::io::Read;
use std::process::Stdio;

const SOURCE: &str = r#"
#include "ascend_hal.h"
#include <pthread.h>
#include <unistd.h>
static void *work(void *unused)
{
    (void)unused;
    for (;;) {
        void *block = NULL;
        if (halMemAlloc(&block, 4096, MEM_TYPE_DEVICE) == 0) (void)!write(1, "a", 1);
        if (halMemFree(block) == 0) (void)!write(1, "f", 1);
    }
    return NULL;
}
int main(void)
{
    pthread_t other;
    pthread_create(&other, NULL, work, NULL);
    work(NULL);
    return 0;
}
"#;

#[test]
fn every_call_that_returned_before_a_kill_is_logged() {
    let directory = workspace();
    let program = standin_testing::compile(directory.path(), "kill.c", SOURCE, &["ascend_hal"]);
    for round in 0..5 {
        let log = directory.path().join(format!("log{round}"));
        std::fs::create_dir(&log).expect("a log directory");
        let mut command = standin_testing::command(&program, Some(&log));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut output = child.stdout.take().expect("a pipe");
        let mut some = vec![0; 1000 + 777 * round];
        output.read_exact(&mut some).expect("the program works");
        child.kill().expect("the program is killed");
        child.wait().expect("the program ends");
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).expect("a closed pipe");
        let returned = some.len() + rest.len();
        let logged = read_directory(&log).expect("a readable log").len();
        assert!((returned..=returned + 2).contains(&logged), "{returned} calls returned, {logged} are logged");
    }
}
