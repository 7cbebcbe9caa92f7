//! What a persistent volume is made of: one of many sources.

use serde_json::{Value, json};

use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    validation::parts::{
        Path, csi_driver_name, dns_label, dns_subdomain, entries, flag, list, number, object, text,
    },
};

type Rule = fn(&Tree, &Path<'_>) -> Vec<Cause>;

/// A source: its key in JSON, its name in a complaint about a second one, its name in other complaints, and its rule.
struct Source(&'static str, &'static str, &'static str, Rule);

/// In the order in which upstream looks for them.
const SOURCES: [Source; 22] = [
    Source("hostPath", "hostPath", "hostPath", host_path),
    Source("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", |it, path| {
        partition(it, "pdName", path)
    }),
    Source("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", |it, path| {
        partition(it, "volumeID", path)
    }),
    Source("glusterfs", "glusterfs", "glusterfs", glusterfs),
    Source("flocker", "flocker", "flocker", flocker),
    Source("nfs", "nfs", "nfs", nfs),
    Source("rbd", "rbd", "rbd", |it, path| {
        [needs_list(it, "monitors", path), needs(it, &["image"], path)].concat()
    }),
    Source("quobyte", "quobyte", "quobyte", quobyte),
    Source("cephfs", "cephFS", "cephfs", |it, path| needs_list(it, "monitors", path)),
    Source("iscsi", "iscsi", "iscsi", |_, _| Vec::new()),
    Source("cinder", "cinder", "cinder", cinder),
    Source("fc", "fc", "fc", fibre_channel),
    Source("flexVolume", "flexVolume", "flexVolume", flex),
    Source("azureFile", "azureFile", "azureFile", azure_file),
    Source("vsphereVolume", "vsphereVolume", "vsphereVolume", |it, path| needs(it, &["volumePath"], path)),
    Source("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", |it, path| {
        needs(it, &["pdID"], path)
    }),
    Source("portworxVolume", "portworxVolume", "portworxVolume", |it, path| needs(it, &["volumeID"], path)),
    Source("azureDisk", "azureDisk", "azureDisk", azure_disk),
    Source("scaleIO", "scaleIO", "scaleIO", |it, path| needs(it, &["gateway", "system", "volumeName"], path)),
    Source("local", "local", "local", local),
    Source("storageos", "storageos", "storageos", storage_os),
    Source("csi", "csi", "csi", csi),
];

/// The source of a volume as it is compared: a driver may be told later how to grow a volume.
pub fn of(spec: &Tree, old: &Tree) -> Tree {
    let mut source: Tree = SOURCES
        .iter()
        .filter_map(|Source(key, ..)| Some(((*key).to_owned(), spec.get(*key)?.clone())))
        .filter(|(_, value)| !value.is_null())
        .collect();
    let had = object(old, "csi").is_some_and(|csi| csi.contains_key("controllerExpandSecretRef"));
    if let Some(csi) = source.get_mut("csi").and_then(Value::as_object_mut).filter(|_| !had) {
        csi.remove("controllerExpandSecretRef");
    }
    source
}

/// Exactly one source, and what is wrong with it.
pub fn validate(spec: &Tree, volume: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut count = 0;
    for Source(key, second, shown, rule) in &SOURCES {
        let Some(source) = object(spec, key) else { continue };
        // Upstream forgot to count before this one.
        if count > 0 && *key != "flexVolume" {
            causes.push(Cause::forbidden(&path.child(second), "may not specify more than 1 volume type"));
            continue;
        }
        count += 1;
        causes.extend(rule(source, &path.child(shown)));
        match *key {
            "iscsi" => causes.extend(iscsi(source, volume, &path.child("iscsi"))),
            "local" if object(spec, "nodeAffinity").is_none() => {
                let detail = "Local volume requires node affinity";
                causes.push(Cause::required(&path.child("nodeAffinity"), detail));
            }
            _ => {}
        }
    }
    if count == 0 {
        causes.push(Cause::required(path, "must specify a volume type"));
    }
    causes
}

fn needs(source: &Tree, keys: &[&str], path: &Path<'_>) -> Vec<Cause> {
    let missing = keys.iter().filter(|key| text(source, key).is_empty());
    missing.map(|key| Cause::required(&path.child(key), "")).collect()
}

fn needs_list(source: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    list(source, key).is_empty().then(|| Cause::required(&path.child(key), "")).into_iter().collect()
}

fn no_backsteps(value: &str, path: &Path<'_>) -> Option<Cause> {
    let has = value.split('/').any(|part| part == "..");
    has.then(|| Cause::invalid(path, &json!(value), "must not contain '..'"))
}

fn host_path(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let directory = text(source, "path");
    if directory.is_empty() {
        return vec![Cause::required(&path.child("path"), "")];
    }
    let mut causes: Vec<Cause> = no_backsteps(directory, &path.child("path")).into_iter().collect();
    let kind = text(source, "type");
    if !TYPES.contains(&kind) {
        causes.push(Cause::not_supported(&path.child("type"), &json!(kind), &TYPES));
    }
    causes
}

fn local(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    match text(source, "path") {
        "" => vec![Cause::required(&path.child("path"), "")],
        directory => no_backsteps(directory, &path.child("path")).into_iter().collect(),
    }
}

fn in_a_byte(source: &Tree, key: &str, path: &Path<'_>) -> Option<Cause> {
    let value = number(source, key).unwrap_or(0);
    let reasons = names::is_in_range(value, 0, 255);
    reasons.first().map(|why| Cause::invalid(&path.child(key), &json!(value), why))
}

fn partition(source: &Tree, id: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = needs(source, &[id], path);
    let number = number(source, "partition").unwrap_or(0);
    // Zero, which is none, is fine.
    if !(0..=255).contains(&number) {
        let detail = "must be between 1 and 255, inclusive";
        causes.push(Cause::invalid(&path.child("partition"), &json!(number), detail));
    }
    causes
}

fn glusterfs(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = needs(source, &["endpoints", "path"], path);
    let namespace_path = path.child("endpointsNamespace");
    match source.get("endpointsNamespace").and_then(Value::as_str) {
        Some("") => {
            let detail = "if the endpointnamespace is set, it must be a valid namespace name";
            causes.push(Cause::invalid(&namespace_path, &json!(""), detail));
        }
        Some(namespace) => causes.extend(dns_label(namespace, &namespace_path)),
        None => {}
    }
    causes
}

fn flocker(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    let mut causes = Vec::new();
    match (name, uuid) {
        ("", "") => causes.push(Cause::required(path, "one of datasetName and datasetUUID is required")),
        ("", _) | (_, "") => {}
        _ => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            causes.push(Cause::invalid(path, &json!("resource"), detail));
        }
    }
    if name.contains('/') {
        causes.push(Cause::invalid(&path.child("datasetName"), &json!(name), "must not contain '/'"));
    }
    causes
}

fn nfs(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = needs(source, &["server", "path"], path);
    let directory = text(source, "path");
    if !directory.starts_with('/') {
        causes.push(Cause::invalid(&path.child("path"), &json!(directory), "must be an absolute path"));
    }
    causes
}

fn quobyte(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    let registry_path = path.child("registry");
    let mut causes = Vec::new();
    if registry.is_empty() {
        causes.push(Cause::required(&registry_path, PAIRS));
    } else if text(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        causes.push(Cause::required(&path.child("tenant"), detail));
    } else {
        let bad = registry.split(',').filter(|pair| !is_host_and_port(pair));
        causes.extend(bad.map(|_| Cause::invalid(&registry_path, &json!(registry), PAIRS)));
    }
    causes.extend(needs(source, &["volume"], path));
    causes
}

/// `host:port`, brackets around a host with colons.
fn is_host_and_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest.split_once(']').is_some_and(|(host, port)| {
            !host.contains('[') && port.strip_prefix(':').is_some_and(|port| !port.contains([':', '[', ']']))
        }),
        None => pair.matches(':').count() == 1 && !pair.contains(['[', ']']),
    }
}

fn cinder(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = needs(source, &["volumeID"], path);
    if let Some(secret) = object(source, "secretRef") {
        causes.extend(needs(secret, &["name", "namespace"], &path.child("secretRef")));
    }
    causes
}

fn fibre_channel(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (names, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    let names_path = path.child("targetWWNs");
    let mut causes = Vec::new();
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            causes.push(Cause::required(&names_path, detail));
        }
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            causes.push(Cause::invalid(&names_path, &json!(names), detail));
        }
        _ => {}
    }
    if !names.is_empty() {
        match number(source, "lun") {
            None => {
                let detail = "lun is required if targetWWNs is specified";
                causes.push(Cause::required(&path.child("lun"), detail));
            }
            Some(_) => causes.extend(in_a_byte(source, "lun", path)),
        }
    }
    causes
}

fn flex(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = needs(source, &["driver"], path);
    let options = path.child("options");
    for (key, _) in entries(source, "options") {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            causes.push(Cause::invalid(&options.key(key), &json!(key), detail));
        }
    }
    causes
}

fn azure_file(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = needs(source, &["secretName", "shareName"], path);
    if source.get("secretNamespace").and_then(Value::as_str) == Some("") {
        causes.push(Cause::required(&path.child("secretNamespace"), ""));
    }
    causes
}

fn azure_disk(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let mut causes = needs(source, &["diskName", "diskURI"], path);
    for (key, valid) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if let Some(value) = source.get(key).and_then(Value::as_str)
            && !valid.contains(&value)
        {
            causes.push(Cause::not_supported(&path.child(key), &json!(value), &valid));
        }
    }
    let uri = text(source, "diskURI");
    let (start, valid) = match source.get("kind").and_then(Value::as_str) {
        Some("Managed") => ("/subscriptions/", MANAGED),
        Some(_) => ("https://", BLOB),
        None => ("", ""),
    };
    if !uri.starts_with(start) {
        causes.push(Cause::not_supported(&path.child("diskURI"), &json!(uri), &[valid]));
    }
    causes
}

fn storage_os(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match text(source, "volumeName") {
        "" => causes.push(Cause::required(&path.child("volumeName"), "")),
        name => causes.extend(dns_label(name, &path.child("volumeName"))),
    }
    let namespace = text(source, "volumeNamespace");
    if !namespace.is_empty() {
        causes.extend(dns_label(namespace, &path.child("volumeNamespace")));
    }
    if let Some(secret) = object(source, "secretRef") {
        causes.extend(needs(secret, &["name", "namespace"], &path.child("secretRef")));
    }
    causes
}

fn csi(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = csi_driver_name(text(source, "driver"), &path.child("driver"));
    causes.extend(needs(source, &["volumeHandle"], path));
    for key in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(secret) = object(source, key) else { continue };
        let path = path.child(key);
        match text(secret, "name") {
            "" => causes.push(Cause::required(&path.child("name"), "")),
            name => causes.extend(dns_subdomain(name, &path.child("name"))),
        }
        match text(secret, "namespace") {
            "" => causes.push(Cause::required(&path.child("namespace"), "")),
            namespace => causes.extend(dns_label(namespace, &path.child("namespace"))),
        }
    }
    causes
}

fn iscsi(source: &Tree, volume: &str, path: &Path<'_>) -> Vec<Cause> {
    const MAX: usize = 64;
    const FORM: &str = "must be valid format";
    let mut causes = needs(source, &["targetPortal"], path);
    let portal = text(source, "targetPortal");
    let initiator = source.get("initiatorName").and_then(Value::as_str);
    if initiator.is_some() && volume.len() + 1 + portal.len() > MAX {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        causes.push(Cause::invalid(&path.child("targetportal"), &json!(portal), detail));
    }
    match text(source, "iqn") {
        "" => causes.push(Cause::required(&path.child("iqn"), "")),
        iqn if !is_iscsi_name(iqn) => causes.push(Cause::invalid(&path.child("iqn"), &json!(iqn), FORM)),
        _ => {}
    }
    causes.extend(in_a_byte(source, "lun", path));
    let secret = object(source, "secretRef");
    if (flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession")) && secret.is_none() {
        causes.push(Cause::required(&path.child("secretRef"), ""));
    }
    if let Some(secret) = secret {
        causes.extend(needs(secret, &["name"], &path.child("secretRef")));
    }
    if let Some(initiator) = initiator.filter(|initiator| !is_iscsi_name(initiator)) {
        causes.push(Cause::invalid(&path.child("initiatorname"), &json!(initiator), FORM));
    }
    causes
}

/// `iqn.2001-04.com.example:storage`, `eui.` or `naa.` and hexadecimal digits.
fn is_iscsi_name(name: &str) -> bool {
    let words = |rest: &str, sizes: &[usize]| {
        let mut rest = rest.chars();
        // Upstream's pattern has any character for the dot.
        let dot = rest.next().is_some_and(|it| it != '\n');
        let rest = rest.as_str();
        dot && sizes.contains(&rest.len()) && rest.bytes().all(|it| it.is_ascii_alphanumeric())
    };
    match (name.strip_prefix("eui"), name.strip_prefix("naa")) {
        (Some(rest), _) => words(rest, &[16]),
        (_, Some(rest)) => words(rest, &[32]),
        _ => name.starts_with("iqn") && name.match_indices("iqn.").any(|(at, _)| is_iqn(&name[at + 4..])),
    }
}

/// What follows `iqn.`: a month, a domain, and what the owner of the domain wants.
fn is_iqn(rest: &str) -> bool {
    let Some((date, rest)) = rest.split_once('.') else { return false };
    let Some((domain, own)) = rest.split_once(':') else { return false };
    let is_date = date.len() == 7
        && date.bytes().enumerate().all(|(at, it)| if at == 4 { it == b'-' } else { it.is_ascii_digit() });
    let is_domain = !domain.is_empty()
        && domain.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.'));
    let is_own =
        |it: char| !matches!(it, ',' | ';' | '*' | '&' | '$' | '|' | '\t' | '\n' | '\x0c' | '\r' | ' ');
    is_date && is_domain && !own.is_empty() && own.chars().all(is_own)
}
