//! What the real server answered, written to files: a file for each kind, a line for each request.
//!
//! `{"name", "verb", "object" (as sent), "old" (what an update would replace), "code", "warnings",
//! "answer"}`. The example
//! `recorded` of the crate `machinery` reads them and says what Hanse's rules make of the same requests.

use std::{
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::Result;
use serde_json::json;

use super::{
    run::{Answered, KindRun},
    scope::Kind,
};

pub fn write(folder: &Path, kind: &Kind, run: &KindRun) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = std::fs::File::create(folder.join(format!("{kind}.jsonl")))?;
    let mut file = BufWriter::new(file);
    for Answered { case, old, kube, .. } in &run.answered {
        let mut line = json!({
            "name": case.name,
            "verb": case.verb.as_str(),
            "object": case.object,
            "code": kube.code,
            "warnings": kube.warnings,
            "answer": kube.body,
        });
        if let Some(old) = old {
            line["old"] = old.as_ref().clone();
        }
        writeln!(file, "{line}")?;
    }
    file.flush()?;
    Ok(())
}
