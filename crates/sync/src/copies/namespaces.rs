//! The namespaces of a member, and which of them stands for one of a workspace.

use std::collections::HashMap;

use compact_str::{CompactString, format_compact};
use serde::Deserialize;

/// The longest name that a namespace can have.
const LONGEST: usize = 63;

/// A namespace of the member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The workspace that it is labelled with, and the name it has there if that is another.
    pub workspace: Option<CompactString>,
    pub namespace: Option<CompactString>,
    pub deleting: bool,
}

/// All of them.
#[derive(Default)]
pub struct Namespaces {
    /// They were listed once.
    pub complete: bool,
    there: HashMap<CompactString, Namespace>,
    listing: HashMap<CompactString, Namespace>,
}

/// The namespace of a workspace that one of the member stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `None`: that of the cluster.
    pub workspace: Option<CompactString>,
    pub namespace: CompactString,
}

impl Told {
    fn of(name: &str, namespace: &Namespace) -> Told {
        let own = namespace.namespace.clone().unwrap_or_else(|| name.into());
        Told { workspace: namespace.workspace.clone(), namespace: own }
    }
}

/// A namespace of a workspace, and how it stands to the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub workspace: &'a str,
    pub namespace: &'a str,
    /// The cluster is of this very workspace.
    pub own: bool,
    /// The cluster wants the workspace before the name.
    pub prefixed: bool,
    /// The user wants namespaces of that name to be taken over.
    pub adopt: bool,
}

/// Where the objects of a namespace go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Into a namespace that Hanse makes; `ready`: it is there.
    Made { name: CompactString, ready: bool },
    /// Into one that was there before, and stays as it is.
    AsItIs { name: CompactString },
}

impl Home {
    pub fn name(&self) -> &CompactString {
        let (Home::Made { name, .. } | Home::AsItIs { name }) = self;
        name
    }

    pub fn is_ready(&self) -> bool {
        !matches!(self, Home::Made { ready: false, .. })
    }
}

/// Why there is no place for a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHome {
    #[error(
        "the namespace would be called {0} in the cluster, which is longer than {LONGEST} characters: give it a shorter \
         name, or use a cluster where it can keep its own"
    )]
    TooLong(CompactString),
    #[error(
        "the cluster has a namespace {0} already that is not of this workspace: delete or rename it there, or set the \
         annotation hanse.io/adopt: \"true\" on the namespace to take it over"
    )]
    Taken(CompactString),
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: CompactString,
    #[serde(default)]
    labels: HashMap<CompactString, CompactString>,
    deletion_timestamp: Option<CompactString>,
}

fn read(object: &[u8]) -> Option<(CompactString, Namespace)> {
    let Wire { metadata } = serde_json::from_slice(object).ok()?;
    let label = |key: &str| metadata.labels.get(key).filter(|value| !value.is_empty()).cloned();
    let namespace = Namespace {
        workspace: label(api::WORKSPACE_LABEL),
        namespace: label(api::NAMESPACE_LABEL),
        deleting: metadata.deletion_timestamp.is_some(),
    };
    Some((metadata.name, namespace))
}

fn is_reserved(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

impl Namespaces {
    pub fn begin_list(&mut self) {
        self.listing.clear();
    }

    pub fn listed_one(&mut self, object: &[u8]) {
        self.listing.extend(read(object));
    }

    /// The workspaces' namespaces for which something is another now.
    pub fn end_list(&mut self) -> Vec<Told> {
        self.complete = true;
        let before = std::mem::replace(&mut self.there, std::mem::take(&mut self.listing));
        let mut changed = Vec::new();
        for (name, namespace) in &self.there {
            if before.get(name) != Some(namespace) {
                changed.push(Told::of(name, namespace));
            }
        }
        let gone = before.iter().filter(|(name, _)| !self.there.contains_key(*name));
        changed.extend(gone.map(|(name, namespace)| Told::of(name, namespace)));
        changed
    }

    /// As [`Namespaces::end_list`], of one.
    pub fn put(&mut self, object: &[u8]) -> Option<Told> {
        let (name, namespace) = read(object)?;
        let before = self.there.insert(name.clone(), namespace.clone());
        (before.as_ref() != Some(&namespace)).then(|| Told::of(&name, &namespace))
    }

    /// Also while it is being deleted.
    pub fn is_there(&self, name: &str) -> bool {
        self.there.contains_key(name)
    }

    pub fn remove(&mut self, object: &[u8]) -> Option<Told> {
        let (name, _) = read(object)?;
        let namespace = self.there.remove(&name)?;
        Some(Told::of(&name, &namespace))
    }

    fn is_of(&self, name: &str, asked: &Asked<'_>) -> bool {
        self.there.get(name).map(|it| Told::of(name, it)).is_some_and(|it| {
            it.workspace.as_deref() == Some(asked.workspace) && it.namespace == asked.namespace
        })
    }

    fn made(&self, name: CompactString) -> Home {
        let ready = self.there.get(&name).is_some_and(|it| !it.deleting);
        Home::Made { name, ready }
    }

    /// Where the objects of a namespace go.
    pub fn home(&self, asked: &Asked<'_>) -> Result<Home, NoHome> {
        let same = CompactString::from(asked.namespace);
        let mapped = format_compact!("{}-{}", asked.workspace, asked.namespace);
        // Whatever was chosen once stays.
        for name in [&same, &mapped] {
            if self.is_of(name, asked) {
                return Ok(self.made(name.clone()));
            }
        }
        let is_mapped = asked.prefixed || (is_reserved(asked.namespace) && !asked.own);
        if !is_mapped {
            match self.there.get(&same) {
                None => return Ok(self.made(same)),
                Some(it) if it.workspace.is_none() && asked.own => return Ok(Home::AsItIs { name: same }),
                Some(_) => {}
            }
        }
        if mapped.len() > LONGEST {
            return Err(NoHome::TooLong(mapped));
        }
        match self.there.get(&mapped) {
            Some(it) if it.workspace.is_some() || !asked.adopt => Err(NoHome::Taken(mapped)),
            Some(_) => Ok(Home::Made { name: mapped, ready: false }),
            None => Ok(self.made(mapped)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(namespaces: &[(&str, Option<&str>, Option<&str>)]) -> Namespaces {
        let mut all = Namespaces { complete: true, ..Namespaces::default() };
        for (name, workspace, namespace) in namespaces {
            let mut labels = json!({});
            if let Some(workspace) = workspace {
                labels[api::WORKSPACE_LABEL] = json!(workspace);
            }
            if let Some(namespace) = namespace {
                labels[api::NAMESPACE_LABEL] = json!(namespace);
            }
            all.put(json!({"metadata": {"name": name, "labels": labels}}).to_string().as_bytes());
        }
        all
    }

    fn asked<'a>(namespace: &'a str, own: bool, prefixed: bool) -> Asked<'a> {
        Asked { workspace: "team", namespace, own, prefixed, adopt: false }
    }

    #[test]
    fn a_namespace_keeps_its_name_unless_it_is_taken() {
        let made = |name: &str, ready| Ok(Home::Made { name: name.into(), ready });
        let as_it_is = |name: &str| Ok(Home::AsItIs { name: name.into() });
        let rows = [
            (vec![], asked("web", false, false), made("web", false)),
            (vec![], asked("web", true, false), made("web", false)),
            (vec![], asked("web", true, true), made("team-web", false)),
            (vec![("web", None, None)], asked("web", true, false), as_it_is("web")),
            (vec![("web", None, None)], asked("web", false, false), made("team-web", false)),
            (vec![("web", Some("other"), None)], asked("web", true, false), made("team-web", false)),
            (vec![("web", Some("team"), None)], asked("web", false, false), made("web", true)),
            (vec![("web", Some("team"), None)], asked("web", false, true), made("web", true)),
            (vec![("web", Some("team"), Some("odd"))], asked("web", true, false), made("team-web", false)),
            (
                vec![("web", Some("other"), None), ("team-web", Some("team"), Some("web"))],
                asked("web", true, false),
                made("team-web", true),
            ),
            (vec![("default", None, None)], asked("default", true, false), as_it_is("default")),
            (vec![("default", None, None)], asked("default", false, false), made("team-default", false)),
            (vec![], asked("kube-thing", false, false), made("team-kube-thing", false)),
            (
                vec![("web", None, None), ("team-web", None, None)],
                asked("web", false, false),
                Err(NoHome::Taken("team-web".into())),
            ),
        ];
        for (there, asked, home) in rows {
            assert_eq!(with(&there).home(&asked), home, "{there:?} {asked:?}");
        }
    }

    #[test]
    fn a_name_that_would_be_too_long_is_refused_with_what_to_do() {
        let long = "n".repeat(60);
        let refused = with(&[]).home(&asked(&long, false, true)).expect_err("it is too long");
        assert!(refused.to_string().contains("give it a shorter name"), "{refused}");
        assert!(with(&[]).home(&asked(&long, false, false)).is_ok());
    }

    #[test]
    fn one_that_is_being_deleted_is_not_ready() {
        let mut all = with(&[]);
        let labels = json!({api::WORKSPACE_LABEL: "team"});
        let metadata = json!({"name": "web", "labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let told = all.put(json!({"metadata": metadata}).to_string().as_bytes());
        assert_eq!(told, Some(Told { workspace: Some("team".into()), namespace: "web".into() }));
        assert_eq!(
            all.home(&asked("web", false, false)),
            Ok(Home::Made { name: "web".into(), ready: false })
        );
    }
}
