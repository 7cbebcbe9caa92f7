//! The namespaces of a member, and which of them stands for one of a workspace.

use std::collections::HashMap;

use compact_str::{CompactString, format_compact};

use crate::labels::Claim;

/// The longest name that a namespace can have.
const LONGEST: usize = 63;

/// All of them.
#[derive(Default)]
pub struct Namespaces {
    /// They were listed once.
    pub complete: bool,
    there: HashMap<CompactString, Claim>,
    listing: HashMap<CompactString, Claim>,
}

/// The namespace of a workspace that one of the member stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `None`: that of the cluster.
    pub workspace: Option<CompactString>,
    pub namespace: CompactString,
}

impl Told {
    fn of(name: &str, claim: &Claim) -> Told {
        Told { workspace: claim.workspace.clone(), namespace: claim.name_there(name) }
    }
}

/// A namespace of a workspace, and how it stands to the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub workspace: &'a str,
    pub id: &'a str,
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
    /// Whoever has the cluster decides about its namespaces, and nobody else.
    #[error(
        "the cluster has a namespace {0} already that is not of this workspace: give yours another name, or ask whoever \
         has the cluster to delete it there or to label it for this workspace"
    )]
    Others(CompactString),
    #[error(
        "the namespace would be called {0} in the cluster, a name that is kept for the cluster itself: give it another \
         name, or use a cluster where it can keep its own"
    )]
    Reserved(CompactString),
}

fn is_reserved(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

/// Whether a name with the workspace before it would be one that clusters have for themselves.
fn is_the_clusters(mapped: &str) -> bool {
    mapped == api::SYSTEM_NAMESPACE || mapped.starts_with("kube-")
}

impl Namespaces {
    pub fn begin_list(&mut self) {
        self.listing.clear();
    }

    pub fn listed_one(&mut self, object: &[u8]) {
        self.listing.extend(Claim::read(object));
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
        let (name, namespace) = Claim::read(object)?;
        let before = self.there.insert(name.clone(), namespace.clone());
        (before.as_ref() != Some(&namespace)).then(|| Told::of(&name, &namespace))
    }

    /// What a namespace of the member is called in the workspace that it is of.
    pub fn name_in_workspace(&self, name: &str) -> CompactString {
        self.there.get(name).map_or_else(|| name.into(), |it| it.name_there(name))
    }

    /// Also while it is being deleted.
    pub fn is_there(&self, name: &str) -> bool {
        self.there.contains_key(name)
    }

    pub fn remove(&mut self, object: &[u8]) -> Option<Told> {
        let (name, _) = Claim::read(object)?;
        let namespace = self.there.remove(&name)?;
        Some(Told::of(&name, &namespace))
    }

    fn is_of(&self, name: &str, asked: &Asked<'_>) -> bool {
        self.there.get(name).is_some_and(|it| {
            it.workspace.as_deref() == Some(asked.workspace)
                && it.id.as_deref().is_none_or(|id| id == asked.id)
                && it.name_there(name) == asked.namespace
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
        let is_the_clusters = is_the_clusters(&mapped);
        // Whatever was chosen once stays.
        for name in [Some(&same), Some(&mapped).filter(|_| !is_the_clusters)].into_iter().flatten() {
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
        if is_the_clusters {
            return Err(NoHome::Reserved(mapped));
        }
        match self.there.get(&mapped) {
            None => Ok(self.made(mapped)),
            Some(_) if !asked.own => Err(NoHome::Others(mapped)),
            Some(it) if it.workspace.is_none() && asked.adopt => {
                Ok(Home::Made { name: mapped, ready: false })
            }
            Some(_) => Err(NoHome::Taken(mapped)),
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
        Asked { workspace: "team", id: "0123", namespace, own, prefixed, adopt: false }
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
                Err(NoHome::Others("team-web".into())),
            ),
            (vec![("team-web", None, None)], asked("web", true, true), Err(NoHome::Taken("team-web".into()))),
        ];
        for (there, asked, home) in rows {
            assert_eq!(with(&there).home(&asked), home, "{there:?} {asked:?}");
        }
    }

    #[test]
    fn what_a_workspace_of_that_name_left_is_not_of_the_next() {
        let labelled = |id: &str| json!({api::WORKSPACE_LABEL: "team", api::WORKSPACE_ID_LABEL: id});
        let of = |name: &str, mut labels: serde_json::Value, namespace: Option<&str>| {
            if let Some(namespace) = namespace {
                labels[api::NAMESPACE_LABEL] = json!(namespace);
            }
            json!({"metadata": {"name": name, "labels": labels}}).to_string()
        };
        let mut all = with(&[]);
        all.put(of("web", labelled("0123"), None).as_bytes());
        let own = Home::Made { name: "web".into(), ready: true };
        assert_eq!(all.home(&asked("web", false, false)), Ok(own));
        all.put(of("web", labelled("former"), None).as_bytes());
        let mapped = Home::Made { name: "team-web".into(), ready: false };
        assert_eq!(all.home(&asked("web", false, false)), Ok(mapped));
        all.put(of("team-web", labelled("former"), Some("web")).as_bytes());
        assert_eq!(all.home(&asked("web", false, false)), Err(NoHome::Others("team-web".into())));
    }

    #[test]
    fn only_who_has_the_cluster_takes_over_its_namespaces() {
        let there = [("web", None, None), ("team-web", None, None)];
        let adopting = |own, prefixed| Asked { adopt: true, ..asked("web", own, prefixed) };
        let made = Home::Made { name: "team-web".into(), ready: false };
        assert_eq!(with(&there).home(&adopting(true, true)), Ok(made));
        let refused = with(&there).home(&adopting(false, false)).expect_err("it is another's");
        assert_eq!(refused, NoHome::Others("team-web".into()));
        let labelled = [("team-web", Some("other"), None)];
        let refused = with(&labelled).home(&adopting(true, true)).expect_err("it is another's");
        assert_eq!(refused, NoHome::Taken("team-web".into()));
    }

    #[test]
    fn a_workspace_before_a_name_makes_none_of_the_clusters_own() {
        for (workspace, namespace) in [("kube", "system"), ("kube", "new"), ("hanse", "system")] {
            let mapped = format!("{workspace}-{namespace}");
            let own_label = Some(workspace);
            for there in [vec![], vec![(&*mapped, None, None)], vec![(&*mapped, own_label, Some(namespace))]]
            {
                for own in [false, true] {
                    let asked = Asked { workspace, adopt: true, ..asked(namespace, own, true) };
                    let refused = with(&there).home(&asked).expect_err("it is the cluster's");
                    assert_eq!(refused, NoHome::Reserved((&*mapped).into()), "{there:?}");
                    assert!(refused.to_string().contains("give it another name"), "{refused}");
                }
            }
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
