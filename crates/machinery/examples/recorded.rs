//! What the rules of the built-in kinds make of requests that a real kube-apiserver has answered.
//!
//! ```text
//!   cargo run -p machinery --example recorded -- FOLDER [KIND [CASE]] [--all]
//! ```
//!
//! FOLDER holds the files that the test `kinds` of the crate `testing` writes; KIND and CASE are parts of names: only
//! those files and lines. Of each sort of difference the first few are shown, or all of them. It is quick, because
//! no server runs: what a server does around the rules is done here in short.

#![allow(clippy::disallowed_methods)] // A tool, not part of the server.

#[path = "recorded/rules.rs"]
mod rules;
#[path = "../../testing/tests/kinds/verdict.rs"]
mod verdict;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
};

use machinery::{
    builtin,
    resource::{Resource, group_version},
};
use serde_json::Value;
use verdict::{Answers, By, Verdict, judge};

type Failure = Box<dyn std::error::Error>;

/// A request and what the real server said.
#[derive(serde::Deserialize)]
struct Line {
    name: String,
    verb: String,
    object: Value,
    old: Option<Value>,
    code: u16,
    warnings: Vec<String>,
    answer: Value,
}

struct Arguments {
    folder: PathBuf,
    kind: String,
    case: String,
    all: bool,
}

/// How many differences of a sort are shown.
const SHOWN: usize = 20;
/// Longest text of a value that is shown.
const SHOWN_TEXT: usize = 700;

fn main() -> Result<(), Failure> {
    let Some(arguments) = arguments() else {
        return Err("usage: recorded FOLDER [KIND [CASE]] [--all]".into());
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&arguments.folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, Failure>>()?;
    paths.retain(|path| path.extension().is_some_and(|it| it == "jsonl"));
    paths.retain(|path| path.to_string_lossy().contains(&arguments.kind));
    paths.sort();
    let mut total = Counts::default();
    for path in paths {
        let kind = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some(resource) = resource(&path)? else {
            print(&format!("{kind}: MISSING, no row serves it\n"));
            continue;
        };
        let (counts, shown) = kind_counts(&path, &resource, &arguments)?;
        print(&format!("{shown}{kind}: {counts}\n"));
        total.add(&counts);
    }
    print(&format!("\nin total: {total}\n"));
    Ok(())
}

/// Whoever reads may stop reading.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn arguments() -> Option<Arguments> {
    let (flags, texts): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|text| text.starts_with("--"));
    let mut texts = texts.into_iter();
    Some(Arguments {
        folder: texts.next()?.into(),
        kind: texts.next().unwrap_or_default(),
        case: texts.next().unwrap_or_default(),
        all: flags.iter().any(|flag| flag == "--all"),
    })
}

/// The row for the objects in a file, if there is one.
fn resource(path: &Path) -> Result<Option<Resource>, Failure> {
    let text = std::fs::read_to_string(path)?;
    let Some(first) = text.lines().next() else { return Ok(None) };
    let line: Line = serde_json::from_str(first)?;
    let serves = |row: &&machinery::resource::Row| {
        line.object["kind"] == row.kind && line.object["apiVersion"] == group_version(row.group, row.version)
    };
    Ok(builtin::rows().find(serves).cloned().map(Resource::new))
}

#[derive(Default)]
struct Counts {
    accepted: usize,
    equal: usize,
    same_warnings: usize,
    refused: usize,
    same_causes: usize,
    same_message: usize,
    refused_only_here: usize,
    accepted_only_here: usize,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.accepted += other.accepted;
        self.equal += other.equal;
        self.same_warnings += other.same_warnings;
        self.refused += other.refused;
        self.same_causes += other.same_causes;
        self.same_message += other.same_message;
        self.refused_only_here += other.refused_only_here;
        self.accepted_only_here += other.accepted_only_here;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let refused = self.refused + self.accepted_only_here;
        let percent = |part: usize, whole: usize| {
            if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
        };
        write!(
            f,
            "accepted by both {} (equal results {} = {:.1} %, same warnings {:.1} %), refused by both {} of \
             {refused} = {:.1} % (same causes {} = {:.1} %, same message {} = {:.1} %), REFUSED ONLY HERE {}",
            self.accepted,
            self.equal,
            percent(self.equal, self.accepted),
            percent(self.same_warnings, self.accepted),
            self.refused,
            percent(self.refused, refused),
            self.same_causes,
            percent(self.same_causes, refused),
            self.same_message,
            percent(self.same_message, refused),
            self.refused_only_here,
        )
    }
}

/// What is shown of differences, by their sort.
struct Shown {
    text: String,
    all: bool,
    left: BTreeMap<&'static str, usize>,
}

impl Shown {
    fn show(&mut self, sort: &'static str, name: &str, lines: &[(&str, String)]) {
        let left = self.left.entry(sort).or_insert(SHOWN);
        if *left == 0 && !self.all {
            return;
        }
        *left = left.saturating_sub(1);
        let _ = writeln!(self.text, "  {sort}: {name}");
        for (label, text) in lines {
            let end = text.char_indices().nth(SHOWN_TEXT).map_or(text.len(), |(end, _)| end);
            let _ = writeln!(self.text, "      {label:7} {}", &text[..end]);
        }
    }
}

fn kind_counts(path: &Path, resource: &Resource, arguments: &Arguments) -> Result<(Counts, String), Failure> {
    let mut counts = Counts::default();
    let mut shown = Shown { text: String::new(), all: arguments.all, left: BTreeMap::new() };
    for text in std::fs::read_to_string(path)?.lines() {
        let line: Line = serde_json::from_str(text)?;
        if !line.name.contains(&arguments.case) {
            continue;
        }
        let ours = rules::answer(resource, &line);
        let answers =
            Answers { sent: &line.object, kube: (line.code, &line.answer), hanse: (ours.code, &ours.body) };
        let verdict = judge(&answers, By::Rules);
        if matches!(verdict, Verdict::Accepted(_)) && ours.warnings != line.warnings {
            let sides = [("kube", format!("{:?}", line.warnings)), ("hanse", format!("{:?}", ours.warnings))];
            shown.show("other warnings", &line.name, &sides);
        } else if matches!(verdict, Verdict::Accepted(_)) {
            counts.same_warnings += 1;
        }
        count(&line, &answers, verdict, &mut counts, &mut shown);
    }
    Ok((counts, shown.text))
}

fn count(line: &Line, answers: &Answers<'_>, verdict: Verdict, counts: &mut Counts, shown: &mut Shown) {
    let (kube, hanse) = (message(answers.kube.1), message(answers.hanse.1));
    let both = [("kube", kube), ("hanse", hanse)];
    match verdict {
        Verdict::NothingToCompare => {}
        Verdict::RefusedOnlyHere => {
            counts.refused_only_here += 1;
            shown.show("REFUSED ONLY HERE", &line.name, &both[1..]);
        }
        Verdict::AcceptedOnlyHere => {
            counts.accepted_only_here += 1;
            shown.show("ACCEPTED ONLY HERE", &line.name, &both[..1]);
        }
        Verdict::Refused { same_causes, same_message } => {
            counts.refused += 1;
            counts.same_causes += usize::from(same_causes);
            counts.same_message += usize::from(same_message);
            match (same_causes, same_message) {
                (false, _) => shown.show("other causes", &line.name, &both),
                (true, false) => shown.show("other message", &line.name, &both),
                (true, true) => {}
            }
        }
        Verdict::Accepted(differences) => {
            counts.accepted += 1;
            counts.equal += usize::from(differences.is_empty());
            if !differences.is_empty() {
                let texts = differences.iter().flat_map(|it| {
                    [("at", it.place.clone()), ("kube", it.kube.clone()), ("hanse", it.hanse.clone())]
                });
                shown.show("other result", &line.name, &texts.collect::<Vec<_>>());
            }
        }
    }
}

fn message(answer: &Value) -> String {
    let code = answer["code"].as_u64().unwrap_or_default();
    format!("{code} {}", answer["message"].as_str().unwrap_or_default())
}
