//! Reads what placement needs to know of an object.

mod pods;

use std::collections::BTreeMap;

use machinery::selector::LabelSelector;
use serde_json::Value;

use crate::{
    fields::{at, count, group_version, list, map, text},
    kind::{Kind, MADE_EVERYWHERE, Pods, of},
    types::{ClassKind, Extent, Problem, References, Split, Subject, Target},
};

/// What placement needs to know of an object of a kind that has a row, or else the generic one.
pub fn subject(object: &Value) -> Result<Subject, Problem> {
    let (group, _) = group_version(text(object, "apiVersion"));
    of(group, text(object, "kind")).subject(object)
}

impl Kind {
    /// What placement needs to know of an object of this kind.
    pub fn subject(&self, object: &Value) -> Result<Subject, Problem> {
        let (group, version) = group_version(text(object, "apiVersion"));
        let named = |path: &'static str, what| match text(object, path) {
            "" => Err(Problem::Missing(what)),
            name => Ok(name.to_owned()),
        };
        let mut subject = Subject {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: named("kind", "kind")?,
            namespace: text(object, "metadata.namespace").to_owned(),
            name: named("metadata.name", "name")?,
            uid: text(object, "metadata.uid").to_owned(),
            labels: texts(object, "metadata.labels"),
            annotations: texts(object, "metadata.annotations"),
            replicas: self.wanted(object),
            extent: self.extent(object),
            splits: self.split_of(object),
            stateful: self.stateful,
            every_node: self.every_node,
            ..Subject::default()
        };
        match self.pods {
            Pods::None => {}
            Pods::Itself => pods::read(object, &mut subject),
            Pods::Template(path) => pods::read(at(object, path).unwrap_or(&Value::Null), &mut subject),
        }
        (self.refer)(object, &mut subject)?;
        subject.travel = self.travel(&subject.name);
        for (_, kind, name) in MADE_EVERYWHERE {
            let References { service_accounts, config_maps, .. } = &mut subject.references;
            let named = if kind == "ConfigMap" { config_maps } else { service_accounts };
            named.remove(name);
        }
        Ok(subject)
    }

    /// How many copies of a pod an object asks for.
    pub fn wanted(&self, object: &Value) -> Option<u64> {
        match self.replicas() {
            Some(path) => Some(count(object, path).unwrap_or(1)),
            None if matches!(self.pods, Pods::Itself) => Some(1),
            None => None,
        }
    }

    fn extent(&self, object: &Value) -> Extent {
        match self.split {
            Split::Ordinals => Extent::Ordinals { start: count(object, "spec.ordinals.start").unwrap_or(0) },
            Split::JobCounts => {
                let job = at(object, self.job).unwrap_or(&Value::Null);
                Extent::Job { completions: count(job, "completions"), indexed: is_indexed(job) }
            }
            Split::MinMax => {
                let min = count(object, "spec.minReplicas").unwrap_or(1);
                let max = count(object, "spec.maxReplicas").unwrap_or(min).max(min);
                Extent::Bounds { min, max }
            }
            Split::Whole | Split::Replicas | Split::Budget => Extent::None,
        }
    }

    /// How this object of the kind is divided: a Job whose pods have indexes is not, since every cluster would begin
    /// with index 0.
    pub fn split_of(&self, object: &Value) -> Split {
        match self.split {
            Split::JobCounts if at(object, self.job).is_some_and(is_indexed) => Split::Whole,
            split => split,
        }
    }
}

pub(crate) fn is_indexed(job: &Value) -> bool {
    text(job, "completionMode") == "Indexed"
}

fn texts(object: &Value, path: &str) -> BTreeMap<String, String> {
    let members = map(object, path).into_iter().flatten();
    members.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn add(set: &mut std::collections::BTreeSet<String>, name: &str) {
    if !name.is_empty() {
        set.insert(name.to_owned());
    }
}

const SERVICE_NAME: &str = "kubernetes.io/service-name";

pub(crate) fn refers_to_nothing(_: &Value, _: &mut Subject) -> Result<(), Problem> {
    Ok(())
}

/// Claims that a StatefulSet makes are its own: they name classes, but none of them is there to follow.
pub(crate) fn claim_templates(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    let templates = list(object, "spec.volumeClaimTemplates");
    for template in templates {
        class(subject, ClassKind::StorageClass, text(template, "spec.storageClassName"));
    }
    subject.mounts_volumes |= !templates.is_empty();
    Ok(())
}

fn class(subject: &mut Subject, kind: ClassKind, name: &str) {
    if !name.is_empty() {
        subject.classes.insert((kind, name.to_owned()));
    }
}

pub(crate) fn claim(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    add(&mut subject.references.volumes, text(object, "spec.volumeName"));
    class(subject, ClassKind::StorageClass, text(object, "spec.storageClassName"));
    let source = at(object, "spec.dataSourceRef").or_else(|| at(object, "spec.dataSource"));
    if let Some(source) = source.filter(|source| text(source, "kind") == "PersistentVolumeClaim") {
        add(&mut subject.references.claims, text(source, "name"));
    }
    Ok(())
}

/// An absent selector of a Service selects nothing; its endpoints are somebody else's.
pub(crate) fn service(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    let labels = texts(object, "spec.selector");
    subject.references.pods = (!labels.is_empty()).then(|| {
        LabelSelector::from_labels(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    });
    Ok(())
}

/// The pods of a budget. Since version v1 an empty selector selects every pod of the namespace.
pub(crate) fn budget(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    subject.references.pods = selector(object, "spec.selector")?;
    Ok(())
}

pub(crate) fn network_policy(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    let pods = selector(object, "spec.podSelector")?;
    subject.references.pods = Some(pods.unwrap_or_else(LabelSelector::everything));
    Ok(())
}

fn selector(object: &Value, path: &str) -> Result<Option<LabelSelector>, Problem> {
    let Some(selector) = at(object, path) else { return Ok(None) };
    let read = LabelSelector::from_object(selector);
    read.map(Some).map_err(|reason| Problem::Invalid { field: path.to_owned(), reason })
}

pub(crate) fn autoscaler(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    let Some(target) = at(object, "spec.scaleTargetRef") else { return Ok(()) };
    subject.references.targets.insert(Target {
        group: group_version(text(target, "apiVersion")).0.to_owned(),
        kind: text(target, "kind").to_owned(),
        name: text(target, "name").to_owned(),
    });
    Ok(())
}

pub(crate) fn ingress(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    const OLD_CLASS: &str = "kubernetes.io/ingress.class";
    let old = subject.annotations.get(OLD_CLASS).cloned().unwrap_or_default();
    let new = text(object, "spec.ingressClassName");
    // The annotation may name a controller that has no class, so it makes no cluster infeasible.
    if old.is_empty() {
        class(subject, ClassKind::IngressClass, new);
    }
    let References { services, secrets, .. } = &mut subject.references;
    let backends = list(object, "spec.rules").iter().flat_map(|rule| list(rule, "http.paths"));
    for backend in backends.filter_map(|path| at(path, "backend")).chain(at(object, "spec.defaultBackend")) {
        add(services, text(backend, "service.name"));
    }
    for tls in list(object, "spec.tls") {
        add(secrets, text(tls, "secretName"));
    }
    Ok(())
}

/// Which Service the endpoints are of is said by a label.
pub(crate) fn endpoint_slice(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    let labels = texts(object, "metadata.labels");
    add(&mut subject.references.services, labels.get(SERVICE_NAME).map_or("", String::as_str));
    Ok(())
}

pub(crate) fn service_account(object: &Value, subject: &mut Subject) -> Result<(), Problem> {
    for path in ["secrets", "imagePullSecrets"] {
        for secret in list(object, path) {
            add(&mut subject.references.secrets, text(secret, "name"));
        }
    }
    Ok(())
}
