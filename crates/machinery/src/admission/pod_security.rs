//! Pod security: what a namespace demands of its pods, by level and version of the policy.
//!
//! ```text
//!   labels of the namespace ──> Policy (enforce, audit, warn) ──> evaluate(level, version, pod) ──> violations
//! ```

mod baseline;
mod checks;
mod restricted;

use std::{collections::BTreeMap, fmt};

use serde_json::json;

pub use checks::{Violation, evaluate};

use crate::{
    field_error::Cause,
    resource::Tree,
    validation::parts::{items, object, text},
};

/// Of labels of namespaces that say what pods in them may do.
pub const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much is demanded; each demands what the one before does, and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Result<Level, &'static str> {
        match text {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

/// Which version of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Of Kubernetes 1.x.
    Minor(u64),
    Latest,
}

impl Version {
    fn parse(text: &str) -> Result<Version, &'static str> {
        const WRONG: &str = r#"must be "latest" or "v1.x""#;
        if text == "latest" {
            return Ok(Version::Latest);
        }
        let digits = text.strip_prefix("v1.").ok_or(WRONG)?;
        let is_plain = digits == "0" || !digits.starts_with('0');
        let minor = digits.parse::<u64>().ok().filter(|minor| *minor <= i64::MAX as u64);
        match minor {
            Some(minor) if is_plain && digits.bytes().all(|it| it.is_ascii_digit()) => {
                Ok(Version::Minor(minor))
            }
            _ => Err(WRONG),
        }
    }
}

/// A level of a version: `restricted:v1.30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    pub level: Level,
    pub version: Version,
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.version {
            Version::Minor(minor) => write!(f, ":v1.{minor}"),
            Version::Latest => f.write_str(":latest"),
        }
    }
}

/// What a namespace demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of pods, or they are refused.
    pub enforce: Demand,
    /// Or it is recorded.
    pub audit: Demand,
    /// Or their author is told.
    pub warn: Demand,
}

impl Policy {
    const OPEN: Demand = Demand { level: Level::Privileged, version: Version::Latest };

    /// Where nobody said anything.
    pub const DEFAULT: Policy = Policy { enforce: Policy::OPEN, audit: Policy::OPEN, warn: Policy::OPEN };

    /// Whether it demands nothing.
    pub fn is_open(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|demand| demand.level == Level::Privileged)
    }

    /// What labels ask for, and what is wrong with them. What cannot be read is the strictest where it is enforced and
    /// nothing where it is not.
    pub fn of_labels<'a>(label: impl Fn(&str) -> Option<&'a str>) -> (Policy, Vec<Cause>) {
        let mut policy = Policy::DEFAULT;
        let mut causes = Vec::new();
        let mut enforced = false;
        let mut warned = (false, false);
        for (mode, demand) in
            [("enforce", &mut policy.enforce), ("audit", &mut policy.audit), ("warn", &mut policy.warn)]
        {
            let (level_key, version_key) = (format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version"));
            let (level, version) = (label(&level_key), label(&version_key));
            if let Some(level) = level {
                let read = Level::parse(level);
                let otherwise = if mode == "enforce" { Level::Restricted } else { Level::Privileged };
                demand.level = read.unwrap_or(otherwise);
                enforced |= mode == "enforce" && read.is_ok();
                causes.extend(read.err().map(|why| invalid(&level_key, level, why)));
            }
            if let Some(version) = version {
                let read = Version::parse(version);
                demand.version = read.unwrap_or(Version::Latest);
                causes.extend(read.err().map(|why| invalid(&version_key, version, why)));
            }
            if mode == "warn" {
                warned = (level.is_some(), version.is_some());
            }
        }
        // Who is refused pods should hear it of what makes them, too.
        if !warned.0 && enforced && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !warned.1 {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, causes)
    }
}

fn invalid(label: &str, value: &str, why: &str) -> Cause {
    Cause::invalid(format!("metadata.labels[{label}]"), &json!(value), why)
}

/// `reason (detail), reason`
pub fn details(violations: &[Violation]) -> String {
    let shown = violations.iter().map(|violation| match violation.detail.is_empty() {
        true => violation.reason.to_owned(),
        false => format!("{} ({})", violation.reason, violation.detail),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// `reason, reason`
pub fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

/// Whether an update of a pod can bring in what was not judged: containers or images.
pub fn is_significant(new: &Tree, old: &Tree) -> bool {
    let empty = Tree::new();
    let (new, old) = (object(new, "spec").unwrap_or(&empty), object(old, "spec").unwrap_or(&empty));
    for key in ["containers", "initContainers"] {
        let images = |spec| items(spec, key).map(|(_, it)| text(it, "image").to_owned()).collect::<Vec<_>>();
        if images(new) != images(old) {
            return true;
        }
    }
    items(new, "ephemeralContainers").any(|(_, container)| {
        let name = text(container, "name");
        let was = items(old, "ephemeralContainers").find(|(_, it)| text(it, "name") == name);
        was.is_none_or(|(_, was)| text(was, "image") != text(container, "image"))
    })
}

/// The template of the pods that an object of this kind makes; `None`: it makes none.
pub fn template_of<'a>(group: &str, resource: &str, tree: &'a Tree) -> Option<&'a Tree> {
    let in_spec = |tree: &'a Tree| object(object(tree, "spec")?, "template");
    match (group, resource) {
        ("", "podtemplates") => object(tree, "template"),
        ("", "replicationcontrollers") => in_spec(tree),
        ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets") => in_spec(tree),
        ("batch", "jobs") => in_spec(tree),
        ("batch", "cronjobs") => in_spec(object(object(tree, "spec")?, "jobTemplate")?),
        _ => None,
    }
}

/// What the pods that are there already violate, told in few lines.
#[derive(Default)]
pub struct Survey {
    found: BTreeMap<String, (String, usize)>,
}

impl Survey {
    pub fn add(&mut self, name: &str, violations: &[Violation]) {
        if violations.is_empty() {
            return;
        }
        let (first, count) = self.found.entry(reasons(violations)).or_insert_with(|| (name.to_owned(), 0));
        if name < first.as_str() {
            *first = name.to_owned();
        }
        *count += 1;
    }

    /// `checked` of `total` pods were looked at.
    pub fn warnings(self, namespace: &str, demand: Demand, checked: usize, total: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !self.found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{demand}\""
            ));
        }
        let mut lines: Vec<String> = self
            .found
            .into_iter()
            .map(|(reasons, (name, count))| match count {
                1 => format!("{name}: {reasons}"),
                2 => format!("{name} (and 1 other pod): {reasons}"),
                _ => format!("{name} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        lines.sort();
        warnings.extend(lines);
        warnings
    }
}

#[cfg(test)]
mod tests;
