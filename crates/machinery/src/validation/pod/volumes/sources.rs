//! Each kind of volume source.

use serde_json::{Value, json};

use super::{
    super::{
        super::parts::{
            Path, claim_template, csi_driver_name, dns_label, entries, flag, invalid_each, list, number,
            object, one_of, quantity_in, text,
        },
        options::Options,
    },
    ONLY_ONE, descending_path, file_mode, keys_to_paths, no_backsteps, projected, require,
};
use crate::{field_error::Cause, gotext, names, quantity::Quantity, resource::Tree};

type Check = fn(&Tree, &Path<'_>, &Options) -> Vec<Cause>;

/// A kind of source.
struct Kind {
    key: &'static str,
    /// Where upstream says that there is one too many.
    shown: &'static str,
    /// Where upstream says what is wrong with it.
    shown_inside: &'static str,
    check: Check,
}

const fn kind(key: &'static str, check: Check) -> Kind {
    Kind { key, shown: key, shown_inside: key, check }
}

/// In upstream's order: of several, the first one counts.
const KINDS: &[Kind] = &[
    kind("emptyDir", empty_dir),
    kind("hostPath", host_path),
    kind("gitRepo", git_repo),
    Kind {
        shown_inside: "persistentDisk",
        ..kind("gcePersistentDisk", |it, path, _| disk(it, "pdName", path))
    },
    kind("awsElasticBlockStore", |it, path, _| disk(it, "volumeID", path)),
    kind("secret", |it, path, _| files(it, "secretName", path)),
    kind("nfs", nfs),
    kind("iscsi", iscsi),
    kind("glusterfs", |it, path, _| require(it, &["endpoints", "path"], path)),
    kind("flocker", flocker),
    kind("persistentVolumeClaim", |it, path, _| require(it, &["claimName"], path)),
    kind("rbd", |it, path, _| monitors(it, path, &["image"])),
    kind("cinder", |it, path, _| with_secret(it, path, require(it, &["volumeID"], path))),
    Kind { shown: "cephFS", ..kind("cephfs", |it, path, _| monitors(it, path, &[])) },
    kind("quobyte", quobyte),
    Kind { shown: "downwarAPI", ..kind("downwardAPI", projected::downward) },
    kind("fc", fibre_channel),
    kind("flexVolume", flex_volume),
    kind("configMap", |it, path, _| files(it, "name", path)),
    kind("azureFile", |it, path, _| require(it, &["secretName", "shareName"], path)),
    kind("vsphereVolume", |it, path, _| require(it, &["volumePath"], path)),
    kind("photonPersistentDisk", |it, path, _| require(it, &["pdID"], path)),
    kind("portworxVolume", |it, path, _| require(it, &["volumeID"], path)),
    kind("azureDisk", azure_disk),
    kind("storageos", storage_os),
    kind("projected", projected::projected),
    kind("scaleIO", |it, path, _| require(it, &["gateway", "system", "volumeName"], path)),
    kind("csi", csi),
    kind("ephemeral", ephemeral),
    kind("image", image),
];

/// Exactly one source, and what is wrong with it.
pub fn source(volume: &Tree, pod_name: &str, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut found = false;
    let name = text(volume, "name");
    for kind in KINDS {
        let Some(source) = object(volume, kind.key) else { continue };
        if found {
            causes.push(Cause::forbidden(&path.child(kind.shown), ONLY_ONE));
        } else {
            found = true;
            causes.extend((kind.check)(source, &path.child(kind.shown_inside), options));
            if kind.key == "ephemeral" {
                causes.extend(claim_name(pod_name, name, path));
            }
        }
        if kind.key == "iscsi" {
            causes.extend(iscsi_name(source, name, path));
        }
    }
    if !found {
        causes.push(Cause::required(path, "must specify a volume type"));
    }
    causes
}

/// The claim that is made for a volume is called after the pod and the volume.
fn claim_name(pod: &str, volume: &str, path: &Path<'_>) -> Vec<Cause> {
    if pod.is_empty() || volume.is_empty() {
        return Vec::new();
    }
    let claim = format!("{pod}-{volume}");
    let reasons = names::subdomain_name(&claim, false).into_iter();
    let details = reasons.map(|reason| format!("PVC name {}: {reason}", gotext::quote(&claim)));
    invalid_each(&path.child("name"), volume, details.collect()).collect()
}

fn iscsi_name(source: &Tree, volume: &str, path: &Path<'_>) -> Option<Cause> {
    let too_long = volume.len() + 1 + text(source, "targetPortal").len() > 64;
    (source.contains_key("initiatorName") && too_long).then(|| {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        Cause::invalid(&path.child("name"), &json!(volume), detail)
    })
}

fn empty_dir(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let is_negative = quantity_in(source, "sizeLimit").is_some_and(|limit| limit < Quantity::ZERO);
    let cause = is_negative.then(|| {
        Cause::forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
    });
    cause.into_iter().collect()
}

fn host_path(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let value = text(source, "path");
    if value.is_empty() {
        return vec![Cause::required(&path.child("path"), "")];
    }
    let kind = text(source, "type");
    let unknown =
        (!TYPES.contains(&kind)).then(|| Cause::not_supported(&path.child("type"), &json!(kind), &TYPES));
    no_backsteps(value, &path.child("path")).into_iter().chain(unknown).collect()
}

fn git_repo(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes = require(source, &["repository"], path);
    causes.extend(descending_path(text(source, "directory"), &path.child("directory")));
    causes
}

/// A disk of a cloud, with its partitions.
fn disk(source: &Tree, name: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = require(source, &[name], path);
    let partition = number(source, "partition").unwrap_or(0);
    if !(0..=255).contains(&partition) {
        let detail = "must be between 1 and 255, inclusive";
        causes.push(Cause::invalid(&path.child("partition"), &json!(partition), detail));
    }
    causes
}

/// A config map or a secret.
fn files(source: &Tree, name: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = require(source, &[name], path);
    causes.extend(file_mode(source, "defaultMode", path));
    causes.extend(keys_to_paths(source, path));
    causes
}

fn nfs(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes = require(source, &["server", "path"], path);
    let value = text(source, "path");
    if !value.starts_with('/') {
        causes.push(Cause::invalid(&path.child("path"), &json!(value), "must be an absolute path"));
    }
    causes
}

fn iscsi(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes = require(source, &["targetPortal", "iqn"], path);
    let iqn = text(source, "iqn");
    if !iqn.is_empty() {
        causes.extend(iscsi_qualified_name(iqn, &path.child("iqn")));
    }
    let lun = number(source, "lun").unwrap_or(0);
    causes.extend(logical_unit(lun, path));
    if (flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession"))
        && !source.contains_key("secretRef")
    {
        causes.push(Cause::required(&path.child("secretRef"), ""));
    }
    if let Some(initiator) = source.get("initiatorName").and_then(Value::as_str) {
        causes.extend(iscsi_qualified_name(initiator, &path.child("initiatorname")));
    }
    causes
}

fn logical_unit(lun: i64, path: &Path<'_>) -> Option<Cause> {
    let is_in_range = (0..=255).contains(&lun);
    (!is_in_range)
        .then(|| Cause::invalid(&path.child("lun"), &json!(lun), "must be between 0 and 255, inclusive"))
}

fn iscsi_qualified_name(name: &str, path: &Path<'_>) -> Option<Cause> {
    let is_alphanumeric =
        |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // After the prefix upstream allows any one character.
    let after = |len: usize| {
        name.char_indices()
            .nth(3)
            .and_then(|(at, c)| name.get(at + c.len_utf8()..))
            .is_some_and(|rest| is_alphanumeric(rest, len))
    };
    let detail = match name.get(..3) {
        Some("iqn") if !is_iqn(name) => "must be valid format",
        Some("eui") if !after(16) => "must be valid format",
        Some("naa") if !after(32) => "must be valid format",
        Some("iqn" | "eui" | "naa") => return None,
        _ => "must be valid format starting with iqn, eui, or naa",
    };
    Some(Cause::invalid(path, &json!(name), detail))
}

/// `iqn.2001-04.com.example:storage`; the beginning may be anything, as upstream's expression is not anchored there.
fn is_iqn(name: &str) -> bool {
    name.match_indices("iqn.").any(|(at, prefix)| {
        let rest = &name.as_bytes()[at + prefix.len()..];
        let Some((date, rest)) = rest.split_at_checked(8) else { return false };
        let is_date = date.iter().enumerate().all(|(at, byte)| match at {
            4 => *byte == b'-',
            7 => *byte == b'.',
            _ => byte.is_ascii_digit(),
        });
        let rest = std::str::from_utf8(rest).unwrap_or_default();
        let authority = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.')));
        let unit = authority.filter(|len| *len > 0).and_then(|len| rest[len..].strip_prefix(':'));
        let is_odd = |c: char| matches!(c, ',' | ';' | '*' | '&' | '$' | '|') || c.is_ascii_whitespace();
        is_date && unit.is_some_and(|unit| !unit.is_empty() && !unit.contains(is_odd))
    })
}

fn flocker(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    let mut causes = Vec::new();
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => causes.push(Cause::required(path, "one of datasetName and datasetUUID is required")),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            causes.push(Cause::invalid(path, &json!("resource"), detail));
        }
        _ => {}
    }
    if name.contains('/') {
        causes.push(Cause::invalid(&path.child("datasetName"), &json!(name), "must not contain '/'"));
    }
    causes
}

fn monitors(source: &Tree, path: &Path<'_>, keys: &[&str]) -> Vec<Cause> {
    let missing = list(source, "monitors").is_empty().then(|| Cause::required(&path.child("monitors"), ""));
    missing.into_iter().chain(require(source, keys, path)).collect()
}

/// The secret that a source names must have a name.
fn with_secret(source: &Tree, path: &Path<'_>, mut causes: Vec<Cause>) -> Vec<Cause> {
    if let Some(secret) = object(source, "secretRef") {
        causes.extend(require(secret, &["name"], &path.child("secretRef")));
    }
    causes
}

fn quobyte(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let mut causes = Vec::new();
    let registry = text(source, "registry");
    if registry.is_empty() {
        causes.push(Cause::required(&path.child("registry"), PAIRS));
    } else if text(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        causes.push(Cause::required(&path.child("tenant"), detail));
    } else {
        let wrong = registry.split(',').filter(|pair| !is_host_and_port(pair));
        causes.extend(wrong.map(|_| Cause::invalid(&path.child("registry"), &json!(registry), PAIRS)));
    }
    causes.extend(require(source, &["volume"], path));
    causes
}

/// As Go splits them: one colon, or an address in brackets before the last.
fn is_host_and_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest.split_once(']').is_some_and(|(host, port)| {
            port.strip_prefix(':').is_some_and(|port| !port.contains([':', '[', ']'])) && !host.contains('[')
        }),
        None => pair
            .split_once(':')
            .is_some_and(|(host, port)| !port.contains([':', '[', ']']) && !host.contains(['[', ']'])),
    }
}

fn fibre_channel(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (names, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    let names_path = path.child("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        causes.push(Cause::required(&names_path, "must specify either targetWWNs or wwids, but not both"));
    }
    if !names.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        causes.push(Cause::invalid(&names_path, &json!(names), detail));
    }
    if !names.is_empty() {
        match number(source, "lun") {
            None => {
                causes
                    .push(Cause::required(&path.child("lun"), "lun is required if targetWWNs is specified"));
            }
            Some(lun) => causes.extend(logical_unit(lun, path)),
        }
    }
    causes
}

fn flex_volume(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes = require(source, &["driver"], path);
    let options = path.child("options");
    for (key, _) in entries(source, "options") {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            causes.push(Cause::invalid(&options.key(key), &json!(key), detail));
        }
    }
    causes
}

fn azure_disk(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    const KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let mut causes = require(source, &["diskName", "diskURI"], path);
    for (key, valid) in [("cachingMode", CACHING), ("kind", KINDS)] {
        let value = source.get(key).and_then(Value::as_str).filter(|value| !valid.contains(value));
        causes.extend(value.map(|it| Cause::not_supported(&path.child(key), &json!(it), &valid)));
    }
    let uri = text(source, "diskURI");
    let wanted = match source.get("kind").and_then(Value::as_str) {
        Some("Managed") if !uri.starts_with("/subscriptions/") => MANAGED,
        Some(kind) if kind != "Managed" && !uri.starts_with("https://") => BLOB,
        _ => return causes,
    };
    causes.push(Cause::not_supported(&path.child("diskURI"), &json!(uri), &[wanted]));
    causes
}

fn storage_os(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes = require(source, &["volumeName"], path);
    for key in ["volumeName", "volumeNamespace"] {
        let value = text(source, key);
        if !value.is_empty() {
            causes.extend(dns_label(value, &path.child(key)));
        }
    }
    with_secret(source, path, causes)
}

fn csi(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes = csi_driver_name(text(source, "driver"), &path.child("driver"));
    if let Some(secret) = object(source, "nodePublishSecretRef") {
        let name = text(secret, "name");
        match name {
            "" => {
                let secret_path = path.child("nodePublishSecretRef");
                causes.push(Cause::required(&secret_path.child("name"), ""));
            }
            _ => causes.extend(invalid_each(&path.child("name"), name, names::subdomain_name(name, false))),
        }
    }
    causes
}

fn ephemeral(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let template_path = path.child("volumeClaimTemplate");
    match object(source, "volumeClaimTemplate") {
        Some(template) => claim_template(template, &template_path),
        None => vec![Cause::required(&template_path, "")],
    }
}

fn image(source: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = if options.is_pod { require(source, &["reference"], path) } else { Vec::new() };
    let policy = text(source, "pullPolicy");
    causes.extend(one_of(policy, &path.child("pullPolicy"), &["Always", "IfNotPresent", "Never"]));
    causes
}
