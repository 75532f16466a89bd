//! Names in recordings are data: they come out as they are, and break nothing.

use crate::support::{Dump, Viewer};

#[test]
fn names_of_all_kinds_survive() {
    let names = [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        "\u{202e}txt.exe",
        "a\u{7}b\u{1b}[31m",
        "=HYPERLINK(1)",
        "你好",
    ];
    let mut dump = Dump::new();
    for (index, name) in (0u64..).zip(&names) {
        let stack = format!("/me/{name}.py(3): {name}\n");
        dump.operator(&format!("\"{name}\""), true);
        dump.malloc("PTA", 0x1000 * (index + 1), 100 + index, "", &stack);
        dump.operator(&format!("\"{name}\""), false);
    }
    let long = "y".repeat(60_000);
    dump.malloc("PTA", 0x100_0000, 5, "", &format!("/me/long.py(3): {long}\n"));
    let directory = tempfile::tempdir().unwrap();
    let path = dump.write(directory.path(), "memscope_dump_1.csv");
    let viewer = Viewer::of(&[&path]).ready();
    let flame = viewer.ask("flame?kind=peak&minimum=0");
    let functions: Vec<&str> =
        flame["names"].as_array().unwrap().iter().map(|name| name["function"].as_str().unwrap()).collect();
    for name in names {
        assert!(functions.contains(&name), "{name:?} in {functions:?}");
    }
    assert!(functions.iter().all(|function| function.len() < 5000), "long ones are cut");
    let table = viewer.ask("table/blocks?limit=10").to_string();
    assert!(table.len() < 100_000);
    let (status, head, csv) = viewer.get(&format!("{}/api/table/blocks?format=csv", viewer.path()), "");
    assert!(status == 200 && head.contains("text/csv") && head.contains("attachment"));
    assert!(csv.contains("\"'=HYPERLINK(1)\""), "no formula comes out of it");
    for question in ["tracks", "holds?by=site", "table/events", "findings", "blocks", "curve?by=site"] {
        viewer.ask(question);
    }
}

#[test]
fn nonsense_parameters_are_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = crate::support::training(2).write(directory.path(), "memscope_dump_1.csv");
    let viewer = Viewer::of(&[&path]).ready();
    for (question, expected) in [
        ("curve?t0=x", 400),
        ("curve?t0=5&t1=5", 400),
        ("curve?width=-1", 400),
        ("curve?by=nothing", 400),
        ("curve?device=x", 400),
        ("curve?pool=x", 400),
        ("curve?device=9", 404),
        ("curve?r=99", 404),
        ("curve?r=18446744073709551615", 404),
        ("block", 400),
        ("block?block=99999999999", 404),
        ("flame?kind=x", 400),
        ("flame?kind=difference", 400),
        ("flame?minimum=2", 400),
        ("blocks?y0=5&y1=5", 400),
        ("table/blocks?sort=x", 400),
        ("table/blocks?alive=x", 400),
        ("steps?offset=x", 400),
        ("nothing", 404),
        ("", 404),
    ] {
        let (status, _, body) = viewer.get(&format!("{}/api/{question}", viewer.path()), "");
        assert_eq!(status, expected, "{question}: {body}");
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(answer["error"].as_str().is_some_and(|reason| !reason.contains('\n')), "{question}");
    }
    let last = u64::MAX;
    for question in [
        format!("curve?t0=0&t1={last}&width=4000"),
        format!("blocks?y1={last}&t1={last}"),
        format!("holds?t={last}"),
        format!("table/blocks?offset={last}"),
        format!("table/events?offset={last}"),
        format!("steps?offset={last}"),
        format!("tracks?t0={}&t1={last}", last - 5),
        "pool?t=0".to_owned(),
    ] {
        let (status, _, body) = viewer.get(&format!("{}/api/{question}", viewer.path()), "");
        assert!(status == 200 || status == 400, "{question}: {status} {body}");
    }
}
