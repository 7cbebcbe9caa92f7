//! Files of a volume that hide each other.

use super::super::super::parts::{items, object, text};
use crate::{gotext, resource::Tree};

/// With how many others a file is compared, and how much is said at most; of more nobody would want to know.
const MOST: usize = 100;

/// A file, and what it comes from where a volume has several sources.
#[derive(Clone, PartialEq, Eq)]
struct File {
    path: String,
    source: String,
}

impl File {
    fn shown(&self) -> String {
        let path = gotext::quote(&self.path);
        if self.source.is_empty() { path } else { format!("{path} ({})", self.source) }
    }

    fn overlaps(&self, other: &File) -> bool {
        let (own, others) = (format!("{}/", self.path), format!("{}/", other.path));
        !self.path.is_empty()
            && !other.path.is_empty()
            && (self == other || own.starts_with(&others) || others.starts_with(&own))
    }
}

fn files(source: &Tree, name: &str) -> Vec<File> {
    items(source, "items").map(|(_, item)| file(text(item, "path"), name)).collect()
}

fn file(path: &str, source: &str) -> File {
    File { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
}

pub fn overlaps(spec: &Tree) -> Vec<String> {
    let mut warnings = Vec::new();
    for (_, volume) in items(spec, "volumes") {
        for (key, kind, name_key) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let Some(source) = object(volume, key) else { continue };
            let what = match name_key {
                "" => kind.to_owned(),
                _ => format!("{kind} {}", gotext::quote(text(source, name_key))),
            };
            warnings.extend(meetings(text(volume, "name"), &what, files(source, "")));
        }
        if let Some(projected) = object(volume, "projected") {
            warnings.extend(of_projected(text(volume, "name"), projected));
        }
    }
    warnings
}

fn meetings(volume: &str, what: &str, files: Vec<File>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (at, file) in files.iter().enumerate() {
        if warnings.len() >= MOST {
            break;
        }
        let before = files.iter().take(at.min(MOST)).filter(|other| file.overlaps(other));
        warnings.extend(before.map(|other| {
            let (volume, own, other) = (gotext::quote(volume), file.shown(), other.shown());
            format!("volume {volume} ({what}): overlapping paths: {own} with {other}")
        }));
    }
    warnings
}

/// Upstream says of a source without content that there is none, before what it finds in those after it.
fn of_projected(volume: &str, projected: &Tree) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut before: Vec<File> = Vec::new();
    for (_, source) in items(projected, "sources") {
        if source.is_empty() {
            warnings.push(format!("volume {} (Projected) has no sources provided", gotext::quote(volume)));
            continue;
        }
        for file in files_of_source(source) {
            if warnings.len() >= MOST {
                return warnings;
            }
            let meeting = before.iter().take(MOST).filter(|other| file.overlaps(other));
            warnings.extend(meeting.map(|other| {
                let (volume, own, other) = (gotext::quote(volume), file.shown(), other.shown());
                format!("volume {volume} (Projected): overlapping paths: {own} with {other}")
            }));
            before.push(file);
        }
    }
    warnings
}

fn files_of_source(source: &Tree) -> Vec<File> {
    for (key, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        if let Some(files_of) = object(source, key).filter(|it| it.contains_key("items")) {
            return files(files_of, &format!("{kind} {}", gotext::quote(text(files_of, "name"))));
        }
    }
    if let Some(downward) = object(source, "downwardAPI").filter(|it| it.contains_key("items")) {
        return files(downward, "DownwardAPI");
    }
    let token = object(source, "serviceAccountToken");
    token.map(|token| file(text(token, "path"), "ServiceAccountToken")).into_iter().collect()
}
