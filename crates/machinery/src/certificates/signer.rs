//! The signers that Kubernetes brings, and what each signs.

use std::collections::BTreeSet;

use super::Request;
use crate::{
    resource::Tree,
    validation::parts::{object, texts},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Users of the API.
    ApiClient,
    /// Kubelets as users of the API.
    KubeletClient,
    KubeletServing,
    /// Whatever was stored before signers had names.
    LegacyUnknown,
}

impl Signer {
    pub fn named(name: &str) -> Option<Signer> {
        match name {
            "kubernetes.io/kube-apiserver-client" => Some(Signer::ApiClient),
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(Signer::KubeletClient),
            "kubernetes.io/kubelet-serving" => Some(Signer::KubeletServing),
            "kubernetes.io/legacy-unknown" => Some(Signer::LegacyUnknown),
            _ => None,
        }
    }

    /// Why this signer does not sign that.
    pub fn check(self, request: &Request, usages: &[&str]) -> Result<(), String> {
        match self {
            Signer::ApiClient => client_usages(usages),
            Signer::KubeletClient => kubelet_client(request, usages),
            Signer::KubeletServing => kubelet_serving(request, usages),
            Signer::LegacyUnknown => Ok(()),
        }
    }
}

/// `spec.usages` of a CertificateSigningRequest.
pub fn usages_of(tree: &Tree) -> Vec<&str> {
    object(tree, "spec").into_iter().flat_map(|spec| texts(spec, "usages")).collect()
}

fn client_usages(usages: &[&str]) -> Result<(), String> {
    let allowed = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    match usages.contains(&"client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}

fn kubelet_client(request: &Request, usages: &[&str]) -> Result<(), String> {
    let names = &request.names;
    of_nodes(request)?;
    forbid(&names.dns, "DNS subjectAltNames are not allowed")?;
    forbid(&names.emails, "Email subjectAltNames are not allowed")?;
    forbid(&names.addresses, "IP subjectAltNames are not allowed")?;
    forbid(&names.uris, "URI subjectAltNames are not allowed")?;
    of_a_node(request)?;
    exact_usages(usages, "client auth")
}

fn kubelet_serving(request: &Request, usages: &[&str]) -> Result<(), String> {
    let names = &request.names;
    of_nodes(request)?;
    if names.dns.is_empty() && names.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    forbid(&names.emails, "Email subjectAltNames are not allowed")?;
    forbid(&names.uris, "URI subjectAltNames are not allowed")?;
    exact_usages(usages, "server auth")?;
    of_a_node(request)
}

fn of_nodes(request: &Request) -> Result<(), String> {
    match request.subject.organization.as_slice() {
        [only] if only == "system:nodes" => Ok(()),
        _ => Err("subject organization is not system:nodes".to_owned()),
    }
}

fn of_a_node(request: &Request) -> Result<(), String> {
    match request.subject.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".to_owned()),
    }
}

fn forbid<T>(names: &[T], why: &str) -> Result<(), String> {
    if names.is_empty() { Ok(()) } else { Err(why.to_owned()) }
}

/// The one purpose, with or without what only RSA keys need.
fn exact_usages(usages: &[&str], purpose: &str) -> Result<(), String> {
    let given: BTreeSet<&str> = usages.iter().copied().collect();
    let without_rsa = BTreeSet::from(["digital signature", purpose]);
    let mut all = without_rsa.clone();
    all.insert("key encipherment");
    match given == all || given == without_rsa {
        true => Ok(()),
        false => {
            let all: Vec<&str> = all.into_iter().collect();
            Err(format!("usages did not match [{}]", all.join(" ")))
        }
    }
}
