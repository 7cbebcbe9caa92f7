//! The same expressions through this crate and through Kubernetes' own CEL: issues, values, errors, costs and
//! estimates must be equal. Without Go the test is skipped, and says so.

// A test may read files; what it tests may not.
#![allow(clippy::disallowed_methods)]

mod support;

use serde_json::{Value, json};
use support::{Answer, Question, answer, declare, env, generate, oracle, random::Random, schema, value};

/// Hand-written expressions, one a line; lines that begin with `#` are comments, `⏎` stands for a new line.
const CORPUS: &str = include_str!("corpus.txt");

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn generated(count: usize, seed: u64) -> Vec<Question> {
    let mut random = Random(seed);
    (0..count)
        .map(|_| {
            let depth = 1 + random.below(4);
            let mut question = Question::new(&generate::expression(&mut random, generate::Of::Any, depth));
            // Go's maps have no order: with one entry they need none.
            question.self_value["labels"] = json!({"app": "web"});
            question.old_value["labels"] = json!({"app": "web"});
            if random.below(4) == 0 {
                question.limit = random.below(120) as u64;
            }
            if random.below(8) == 0 {
                spoil(&mut random, &mut question.self_value);
            }
            question
        })
        .collect()
}

/// Data that lacks a field or does not fit the schema.
fn spoil(random: &mut Random, value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    let names: Vec<String> = object.keys().cloned().collect();
    let name = random.pick(&names);
    match random.below(4) {
        0 => drop(object.remove(name)),
        1 => drop(object.insert(name.clone(), json!(null))),
        2 => drop(object.insert(name.clone(), json!("x"))),
        _ => drop(object.insert(name.clone(), json!(1.5))),
    }
}

/// Differences that are known and meant.
fn is_known(question: &Question, ours: &Answer, theirs: &Answer) -> bool {
    // Kubernetes' libraries panic where an argument failed; here its failure is the outcome.
    let crashed = theirs.error.starts_with("internal: ");
    let panicked = theirs.error.starts_with("internal error: ");
    // How reading goes on behind a syntax error is the affair of cel-go's generated parser; the first is the same.
    let first = |issues: &str| issues.split("\nERROR").next().unwrap_or("").to_owned();
    let unreadable = ours.issues.contains("Syntax error") && first(&ours.issues) == first(&theirs.issues);
    let failed = !ours.error.is_empty() || !ours.program.is_empty() || !ours.issues.is_empty();
    // Which part of data that does not fit is met first depends on the order of Go's maps, and the end of a message
    // about it is Go's own.
    let unfit = ["Invalid ", "invalid data"];
    let misfit = unfit.iter().any(|unfit| ours.error.starts_with(unfit) && theirs.error.starts_with(unfit))
        || (question.expr.contains("self == oldSelf") && question.self_value != value());
    crashed || (panicked && failed) || unreadable || misfit
}

/// How often Kubernetes is asked again where it answered something else: some answers, such as the order in which a map is
/// gone through, are another each time, and ours must be one of them.
const AGAIN: usize = 32;

fn compare(questions: &[Question]) -> Vec<String> {
    let Some(binary) = oracle::build() else { return Vec::new() };
    let decl = declare(&schema(), "selfType");
    let env = env(&decl);
    let mut open: Vec<(&Question, Answer)> =
        questions.iter().map(|question| (question, answer(&env, &decl, question))).collect();
    let mut differences = Vec::new();
    for _ in 0..=AGAIN {
        let asked: Vec<Question> = open.iter().map(|(question, _)| (*question).clone()).collect();
        let answers = oracle::ask(&binary, &asked);
        assert_eq!(answers.len(), asked.len(), "an answer for every question");
        differences.clear();
        let mut left = Vec::new();
        for ((question, ours), theirs) in open.into_iter().zip(answers) {
            if let Some(difference) = difference(question, &ours, theirs) {
                differences.push(difference);
                left.push((question, ours));
            }
        }
        open = left;
        if open.is_empty() {
            break;
        }
    }
    differences
}

fn difference(question: &Question, ours: &Answer, mut theirs: Answer) -> Option<String> {
    if !theirs.program.is_empty() {
        theirs.uses_old = false;
    }
    if theirs.value.starts_with("quantity ") {
        theirs.value = "quantity".into();
    }
    let differs = *ours != theirs && !is_known(question, ours, &theirs);
    differs.then(|| format!("{}\n  ours   {ours:?}\n  theirs {theirs:?}", question.expr))
}

fn assert_same(questions: &[Question]) {
    let differences = compare(questions);
    let shown: Vec<&String> = differences.iter().take(number("HANSE_SHOW", 20) as usize).collect();
    for difference in &shown {
        println!("{difference}\n");
    }
    assert!(differences.is_empty(), "{} of {} differ", differences.len(), questions.len());
}

/// The answers to the hand-written expressions as they were when Kubernetes agreed: one JSON object a line.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus.golden");

fn written() -> Vec<Question> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Question::new(&line.replace('⏎', "\n"))).collect()
}

/// Without Go the written expressions are still held to what Kubernetes once answered. `HANSE_RECORD=1` records the
/// answers again, after the comparison with Kubernetes has passed.
#[test]
fn written_expressions_keep_their_answers() {
    let decl = declare(&schema(), "selfType");
    let env = env(&decl);
    let lines: Vec<String> =
        written().iter().map(|question| answer(&env, &decl, question).to_line(question)).collect();
    let answers = lines.join("\n") + "\n";
    if number("HANSE_RECORD", 0) == 1 {
        std::fs::write(GOLDEN, answers).expect("the clone can be written to");
        return;
    }
    let golden = std::fs::read_to_string(GOLDEN).expect("the answers are in the clone");
    for (kept, now) in golden.lines().zip(answers.lines()) {
        assert_eq!(kept, now);
    }
    assert_eq!(golden.lines().count(), answers.lines().count(), "expressions and answers; record them again");
}

#[test]
fn written_expressions_are_answered_as_kubernetes_does() {
    let mut questions = written();
    // More expressions to try, from a file.
    if let Ok(path) = std::env::var("HANSE_EXPRESSIONS") {
        let text = std::fs::read_to_string(path).expect("a file of expressions");
        questions.extend(text.lines().map(|line| Question::new(&line.replace('⏎', "\n"))));
    }
    assert_same(&questions);
}

#[test]
fn generated_expressions_are_answered_as_kubernetes_does() {
    let seed = number("HANSE_SEED", 0x5eed);
    println!("HANSE_SEED={seed}");
    assert_same(&generated(number("HANSE_CASES", 4000) as usize, seed));
}
