//! Requests to sign a certificate.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{defaults::conditions, pem};
use crate::{
    certificates::Request,
    field_error::Cause,
    gotext, names,
    resource::Tree,
    validation::parts::{Path, items, list, number, object, text, texts},
};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const LEAST_SECONDS: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Who writes, and so what may change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Creator,
    Approver,
    Signer,
}

/// The main resource changes neither spec nor status, so that an update of it has nothing to check.
pub fn signing_request(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    match old {
        None => whole(new, None),
        Some(old) => change(new, old, Writer::Creator),
    }
}

pub fn approval(new: &Tree, old: &Tree) -> Vec<Cause> {
    change(new, old, Writer::Approver)
}

pub fn signing_status(new: &Tree, old: &Tree) -> Vec<Cause> {
    change(new, old, Writer::Signer)
}

fn whole(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let old_spec = old.and_then(|old| object(old, "spec"));
    let mut causes = Vec::new();
    let request = text(spec, "request");
    if let Err(error) = check_request(&BASE64.decode(request).unwrap_or_default()) {
        let shown = spec.get("request").filter(|_| !request.is_empty()).unwrap_or(&Value::Null);
        causes.push(Cause::invalid(&SPEC.child("request"), shown, &error));
    }
    causes.extend(usages(spec, old_spec));
    let (signer, path) = (text(spec, "signerName"), SPEC.child("signerName"));
    let was_legacy = old_spec.is_some_and(|old| text(old, "signerName") == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !was_legacy {
        let detail = "the legacy signerName is not allowed via this API version";
        causes.push(Cause::invalid(&path, &json!(signer), detail));
    } else {
        causes.extend(signer_name(signer, &path));
    }
    if let Some(seconds) = number(spec, "expirationSeconds").filter(|seconds| *seconds < LEAST_SECONDS) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid(&SPEC.child("expirationSeconds"), &json!(seconds), detail));
    }
    causes.extend(condition_list(new, old));
    let certificate = certificate(new);
    let known = old.is_some_and(|old| {
        let old = self::certificate(old);
        old == certificate || check_certificate(&old).is_err()
    });
    if let Err(error) = check_certificate(&certificate)
        && !known
    {
        causes.push(Cause::invalid(&STATUS.child("certificate"), &json!("<certificate data>"), &error));
    }
    causes
}

fn certificate(tree: &Tree) -> Vec<u8> {
    let encoded = object(tree, "status").map_or("", |status| text(status, "certificate"));
    BASE64.decode(encoded).unwrap_or_default()
}

fn check_request(bytes: &[u8]) -> Result<(), String> {
    Request::verify(bytes).map(drop)
}

fn check_certificate(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut rest = bytes;
    let mut blocks = 0;
    while let Some((block, after)) = pem::decode(rest) {
        if block.label != "CERTIFICATE" {
            let found = gotext::quote(&block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {found}"));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        blocks += 1;
        let mut der = block.bytes.as_slice();
        if der.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        while !der.is_empty() {
            let (left, _) =
                X509Certificate::from_der(der).map_err(|_| "x509: malformed certificate".to_owned())?;
            der = left;
        }
        rest = after;
    }
    if blocks == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}

fn usages(spec: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let path = SPEC.child("usages");
    let mut causes = Vec::new();
    if list(spec, "usages").is_empty() {
        causes.push(Cause::required(&path, ""));
    }
    let had_unknown = old.is_some_and(|old| texts(old, "usages").any(|usage| !USAGES.contains(&usage)));
    for (at, usage) in texts(spec, "usages").enumerate() {
        if !had_unknown && !USAGES.contains(&usage) {
            causes.push(Cause::not_supported(&path.index(at), &json!(usage), &USAGES));
        }
    }
    let had_duplicates = old
        .is_some_and(|old| texts(old, "usages").collect::<BTreeSet<_>>().len() != list(old, "usages").len());
    let mut seen = BTreeSet::new();
    for (at, usage) in texts(spec, "usages").enumerate() {
        if !seen.insert(usage) && !had_duplicates {
            causes.push(Cause::duplicate(&path.index(at), &json!(usage)));
        }
    }
    causes
}

/// `example.com/signer-name`
pub fn signer_name(name: &str, path: &Path<'_>) -> Vec<Cause> {
    const MAX_PATH: usize = names::SUBDOMAIN_MAX + names::LABEL_MAX + 1;
    const MAX_NAME: usize = names::SUBDOMAIN_MAX + MAX_PATH + 1;
    if name.is_empty() {
        return vec![Cause::required(path, "")];
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, rest] = parts.as_slice() else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return vec![Cause::invalid(path, &json!(name), detail)];
    };
    let mut causes = Vec::new();
    if domain.len() > names::SUBDOMAIN_MAX {
        causes.push(Cause::too_long(path, names::SUBDOMAIN_MAX));
    }
    causes.extend(first_bad_label(domain, names::is_dns1123_label, path));
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        causes.push(Cause::invalid(path, &json!(domain), detail));
    }
    causes.extend(first_bad_label(rest, names::is_dns1123_subdomain, path));
    if name.len() > MAX_NAME {
        causes.push(Cause::too_long(path, MAX_NAME));
    }
    causes
}

fn first_bad_label(value: &str, rule: fn(&str) -> Vec<String>, path: &Path<'_>) -> Vec<Cause> {
    let mut labels = value.split('.').map(|label| (label, rule(label)));
    let Some((label, reasons)) = labels.find(|(_, reasons)| !reasons.is_empty()) else { return Vec::new() };
    let told = |reason: &String| {
        let detail = format!("validating label {}: {reason}", gotext::quote(label));
        Cause::invalid(path, &json!(value), &detail)
    };
    reasons.iter().map(told).collect()
}

fn condition_list(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
    let types =
        |tree: &Tree| -> Vec<String> { conditions(tree).map(|it| text(it, "type").to_owned()).collect() };
    let old_types = old.map(types).unwrap_or_default();
    let had = |kind: &str| old_types.iter().any(|it| it == kind);
    let both_allowed = had("Approved") && had("Denied");
    let duplicates_allowed = old_types.iter().collect::<BTreeSet<_>>().len() != old_types.len();
    let path = STATUS.child("conditions");
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, condition) in items(status, "conditions") {
        let (kind, state, path_at) = (text(condition, "type"), text(condition, "status"), path.index(at));
        if kind.is_empty() && !had("") {
            causes.push(Cause::required(&path_at.child("type"), ""));
        }
        let final_kind = matches!(kind, "Approved" | "Denied" | "Failed");
        let allowed: &[&str] = if final_kind { &["True"] } else { &STATUSES };
        if state.is_empty() {
            causes.push(Cause::required(&path_at.child("status"), ""));
        } else if !allowed.contains(&state) {
            causes.push(Cause::not_supported(&path_at.child("status"), &json!(state), allowed));
        }
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "(none)",
        };
        if !both_allowed && seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            causes.push(Cause::invalid(&path, &json!(kind), detail));
        }
        if !seen.insert(kind) && !duplicates_allowed {
            causes.push(Cause::duplicate(&path_at.child("type"), &json!(kind)));
        }
    }
    causes
}

fn change(new: &Tree, old: &Tree, writer: Writer) -> Vec<Cause> {
    let mut causes = whole(new, Some(old));
    let path = STATUS.child("conditions");
    let of = |tree: &Tree, kind: &str| -> Vec<Tree> {
        conditions(tree).filter(|it| text(it, "type") == kind).cloned().collect()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if of(new, kind).len() < of(old, kind).len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            causes.push(Cause::forbidden(&path, &detail));
        }
    }
    for kind in ["Approved", "Denied"].into_iter().filter(|_| writer != Writer::Approver) {
        let (new, old) = (of(new, kind), of(old, kind));
        if new.len() > old.len() {
            let detail = format!("updates may not add a condition of type {kind:?}");
            causes.push(Cause::forbidden(&path, &detail));
        } else if new.len() == old.len() && new != old {
            let detail = format!("updates may not modify a condition of type {kind:?}");
            causes.push(Cause::forbidden(&path, &detail));
        }
    }
    if certificate(new) != certificate(old) {
        let path = STATUS.child("certificate");
        if writer != Writer::Signer {
            causes.push(Cause::forbidden(&path, "updates may not set certificate content"));
        } else if !certificate(old).is_empty() {
            causes.push(Cause::forbidden(&path, "updates may not modify existing certificate content"));
        }
    }
    causes
}
