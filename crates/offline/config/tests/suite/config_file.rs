//! The text of `config.json`.

use std::path::Path;

use msmemscope_config::config_json;

use crate::run_with;
use testkit::golden;

#[test]
fn defaults() {
    let (settings, _) = run_with(&[]).expect("no options");
    let text = config_json(&settings, Path::new("/data/projects/memscopeDumpResults"), false);
    golden!("tests/golden/config-default.json", &text);
}

#[test]
fn everything_set() {
    let (settings, _) = run_with(&[
        "--steps=3,1",
        "--device=npu:2,npu:7,cpu",
        "--level=op,kernel",
        "--events=launch,traceback",
        "--analysis=decompose,oom:5",
        "--call-stack=c:20,python:0",
        "--collect-mode=deferred",
        "--data-format=csv,db",
        "--watch=op\"0\":out1,op1,full-content",
        "--log-level=debug",
    ])
    .expect("valid options");
    let text = config_json(&settings, Path::new("/data/a \"b\"\n内存"), true);
    golden!("tests/golden/config-full.json", &text);
}

#[test]
fn keys_are_sorted() {
    let (settings, _) = run_with(&[]).expect("no options");
    let text = config_json(&settings, Path::new("/out"), false);
    let keys: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("    \""))
        .map(|line| line.trim_start().split('"').nth(1).expect("a key"))
        .collect();
    assert_eq!(keys.len(), 20);
    assert!(keys.is_sorted());
}
