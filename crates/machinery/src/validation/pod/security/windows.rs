//! What pods on Windows can and cannot have.

use serde_json::{Value, json};

use super::super::{
    super::parts::{Path, flag, invalid_each, object, text},
    each_container,
};
use crate::{field_error::Cause, gotext, names, resource::Tree};

const MAX_CREDENTIAL_KIB: usize = 64;
const MAX_DOMAIN: usize = 256;
const MAX_USER: usize = 104;
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_ON_LINUX: &str = "windows options cannot be set for a linux pod";

pub fn options(context: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(options) = object(context, "windowsOptions") else { return Vec::new() };
    let path = path.child("windowsOptions");
    let mut causes = Vec::new();
    let given = |key: &str| options.get(key).and_then(Value::as_str);
    if let Some(name) = given("gmsaCredentialSpecName") {
        let reasons = names::is_dns1123_subdomain(name);
        causes.extend(invalid_each(&path.child("gmsaCredentialSpecName"), name, reasons));
    }
    if let Some(spec) = given("gmsaCredentialSpec") {
        let detail = match spec.len() {
            0 => Some("gmsaCredentialSpec cannot be an empty string".to_owned()),
            len if len > MAX_CREDENTIAL_KIB * 1024 => {
                Some(format!("gmsaCredentialSpec size must be under {MAX_CREDENTIAL_KIB} KiB"))
            }
            _ => None,
        };
        let spec_path = path.child("gmsaCredentialSpec");
        causes.extend(detail.map(|it| Cause::invalid_text(&spec_path, &gotext::json(spec), &it)));
    }
    if let Some(name) = given("runAsUserName") {
        let name_path = path.child("runAsUserName");
        let shown = gotext::json(name);
        causes.extend(user_name(name).iter().map(|it| Cause::invalid_text(&name_path, &shown, it)));
    }
    causes
}

/// `DOMAIN\user`
fn user_name(name: &str) -> Vec<String> {
    let one = |reason: &str| vec![format!("runAsUserName {reason}")];
    if name.is_empty() {
        return one("cannot be an empty string");
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return one("cannot contain control characters");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, user)) if user.contains('\\') => return one("cannot contain more than one backslash"),
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut reasons = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= MAX_DOMAIN) {
        reasons.push(format!("runAsUserName's Domain length must be under {MAX_DOMAIN} characters"));
    }
    if domain.is_some_and(|domain| !is_net_bios_name(domain) && !is_dns_name(domain)) {
        reasons.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    if user.is_empty() {
        reasons.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > MAX_USER {
        reasons.push(format!("runAsUserName's User length must not be longer than {MAX_USER} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        reasons.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let reason = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        reasons.push(reason.to_owned());
    }
    reasons
}

fn is_net_bios_name(name: &str) -> bool {
    let odd = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    (1..=15).contains(&name.chars().count()) && !name.starts_with('.') && !name.contains(odd)
}

fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

fn host_process_of(context: Option<&Tree>) -> Option<bool> {
    let options = context.and_then(|context| object(context, "windowsOptions"))?;
    options.get("hostProcess").and_then(Value::as_bool)
}

/// Containers that are processes of the node: all of a pod, and on the node's network.
pub fn host_process(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let of_pod = host_process_of(object(spec, "securityContext"));
    let mut all = 0;
    let mut of_host = 0;
    for (container, kind, at) in each_container(spec) {
        all += 1;
        let own = host_process_of(object(container, "securityContext"));
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            let field = format!("{path}.{kind}[{at}].securityContext.windowsOptions.hostProcess");
            causes.push(Cause::invalid(field, &json!(own), &detail));
        }
        of_host += usize::from(own.or(of_pod).unwrap_or(false));
    }
    if of_host == 0 {
        return causes;
    }
    if of_host != all {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        causes.push(Cause::invalid(path, &json!(""), detail));
    }
    if !flag(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        causes.push(Cause::invalid(&path.child("hostNetwork"), &json!(false), detail));
    }
    causes
}

/// What a pod that says it is for Linux may not have.
fn linux(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let has_options = |holder: &Tree| {
        object(holder, "securityContext").is_some_and(|context| context.contains_key("windowsOptions"))
    };
    if has_options(spec) {
        causes.push(Cause::forbidden(&path.child("securityContext").child("windowsOptions"), NOT_ON_LINUX));
    }
    for (container, kind, at) in each_container(spec) {
        if has_options(container) {
            let field = format!("{path}.{kind}[{at}].securityContext.windowsOptions");
            causes.push(Cause::forbidden(field, NOT_ON_LINUX));
        }
    }
    causes
}

/// What a pod that says it is for Windows may not have.
fn windows(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const OF_POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const OF_CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let mut causes = Vec::new();
    let set = ["hostUsers", "shareProcessNamespace"].into_iter().filter(|key| spec.contains_key(*key));
    let set = set.chain(["hostPID", "hostIPC"].into_iter().filter(|key| flag(spec, key)));
    causes.extend(set.map(|key| Cause::forbidden(&path.child(key), NOT_ON_WINDOWS)));
    if let Some(context) = object(spec, "securityContext") {
        let context_path = path.child("securityContext");
        let set = OF_POD.into_iter().filter(|key| context.contains_key(*key));
        causes.extend(set.map(|key| Cause::forbidden(&context_path.child(key), NOT_ON_WINDOWS)));
    }
    for (container, kind, at) in each_container(spec) {
        let Some(context) = object(container, "securityContext") else { continue };
        let set = OF_CONTAINER.into_iter().filter(|key| context.contains_key(*key));
        causes.extend(set.map(|key| {
            Cause::forbidden(format!("{path}.{kind}[{at}].securityContext.{key}"), NOT_ON_WINDOWS)
        }));
    }
    causes
}

/// Which system a pod is for, and what that forbids.
pub fn operating_system(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(os) = object(spec, "os") else { return Vec::new() };
    let os_path = path.child("os");
    match text(os, "name") {
        "" => vec![Cause::required(&os_path.child("name"), "")],
        "linux" => linux(spec, path),
        "windows" => windows(spec, path),
        other => vec![Cause::not_supported(&os_path, &json!(other), &["linux", "windows"])],
    }
}
