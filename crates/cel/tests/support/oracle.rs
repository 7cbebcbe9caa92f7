//! Kubernetes' own implementation of CEL, asked through a small Go program.

// A test may use files and processes; what it tests may not.
#![allow(clippy::disallowed_methods)]

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::{Value as Json, json};

use super::{Answer, Question};

/// Builds the Go program, once for all tests. `None`, said loudly, where there is no Go.
pub fn build() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build_now).clone()
}

fn build_now() -> Option<PathBuf> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/real/cel");
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("SKIPPED: there is no Go to build Kubernetes' CEL with");
        return None;
    }
    let binary = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cel-oracle");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(source)
        .status()
        .is_ok_and(|status| status.success());
    if !built {
        eprintln!("SKIPPED: Kubernetes' CEL does not build here");
        return None;
    }
    Some(binary)
}

/// Asks all questions, in order.
pub fn ask(binary: &PathBuf, questions: &[Question]) -> Vec<Answer> {
    let mut child = Command::new(binary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle was just built");
    let mut input = child.stdin.take().expect("piped");
    let lines: Vec<String> = questions.iter().map(encode).collect();
    let writer = std::thread::spawn(move || {
        for line in lines {
            writeln!(input, "{line}").expect("the oracle reads");
        }
    });
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let answers = output.lines().map(|line| decode(&line.expect("the oracle writes text"))).collect();
    writer.join().expect("no panic");
    child.wait().expect("the oracle ends with its input");
    answers
}

fn encode(question: &Question) -> String {
    json!({"expr": question.expr, "schema": question.schema, "self": question.self_value,
        "oldSelf": question.old_value, "data": question.data, "limit": question.limit})
    .to_string()
}

fn decode(line: &str) -> Answer {
    let answer: Json = serde_json::from_str(line).expect("the oracle writes JSON");
    let text = |key: &str| answer[key].as_str().unwrap_or("").to_owned();
    let number = |key: &str| answer[key].as_u64().unwrap_or(0);
    let internal = text("internal");
    Answer {
        issues: text("issues"),
        program: text("program"),
        of: text("type"),
        value: text("value"),
        error: if internal.is_empty() { text("error") } else { format!("internal: {internal}") },
        cost: number("cost"),
        min: number("min"),
        max: number("max"),
        uses_old: answer["usesOld"].as_bool().unwrap_or(false),
    }
}
