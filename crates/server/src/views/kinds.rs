//! The kinds that members' objects are shown of.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use store::Collection;

/// A kind of which members' objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Pods,
    ReplicaSets,
    ControllerRevisions,
    Events,
}

struct Row {
    group: &'static str,
    plural: &'static str,
    api_version: &'static str,
    kind: &'static str,
}

/// What stands in a path as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub fn encoded(segment: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(segment, SEGMENT)
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Pods, Kind::ReplicaSets, Kind::ControllerRevisions, Kind::Events];

    fn row(self) -> &'static Row {
        match self {
            Kind::Pods => &Row { group: "", plural: "pods", api_version: "v1", kind: "Pod" },
            Kind::ReplicaSets => {
                &Row { group: "apps", plural: "replicasets", api_version: "apps/v1", kind: "ReplicaSet" }
            }
            Kind::ControllerRevisions => &Row {
                group: "apps",
                plural: "controllerrevisions",
                api_version: "apps/v1",
                kind: "ControllerRevision",
            },
            Kind::Events => &Row { group: "", plural: "events", api_version: "v1", kind: "Event" },
        }
    }

    /// By the group that its objects are stored under.
    pub fn find(group: &str, plural: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.row().plural == plural && kind.row().group == group)
    }

    pub fn of(collection: &Collection) -> Option<Kind> {
        let (group, plural) = collection.parts();
        Kind::find(group, plural)
    }

    pub fn plural(self) -> &'static str {
        self.row().plural
    }

    pub fn collection(self) -> Collection {
        Collection::new(self.row().group, self.row().plural)
    }

    pub fn api_version(self) -> &'static str {
        self.row().api_version
    }

    /// As `kind` has it.
    pub fn name(self) -> &'static str {
        self.row().kind
    }

    /// Where a member has an object, without its subresource.
    pub fn path(self, namespace: &str, name: &str) -> String {
        let root = if self.row().group.is_empty() { "/api" } else { "/apis" };
        let (namespace, name) = (encoded(namespace), encoded(name));
        format!("{root}/{}/namespaces/{namespace}/{}/{name}", self.api_version(), self.plural())
    }

    /// Whether what is stored here may have copies in members. Events are never sent anywhere.
    pub fn may_be_copied(self) -> bool {
        self != Kind::Events
    }

    /// Whether objects of one divided owner show as one where their names are equal.
    pub fn is_summed(self) -> bool {
        self == Kind::ReplicaSets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_where_they_are_stored() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(&kind.collection()), Some(kind));
        }
        assert_eq!(Kind::find("", "configmaps"), None);
        assert_eq!(Kind::find("events.k8s.io", "events"), None, "they are stored with the core's");
    }

    #[test]
    fn paths_are_those_of_the_member() {
        let rows = [
            (Kind::Pods, "/api/v1/namespaces/shop/pods/web-0"),
            (Kind::ReplicaSets, "/apis/apps/v1/namespaces/shop/replicasets/web-0"),
        ];
        for (kind, path) in rows {
            assert_eq!(kind.path("shop", "web-0"), path);
        }
        assert_eq!(Kind::Pods.path("a/b", "c?d"), "/api/v1/namespaces/a%2Fb/pods/c%3Fd");
    }
}
