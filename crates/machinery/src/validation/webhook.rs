//! How the API server reaches a webhook.

use serde_json::{Value, json};

use super::{
    members::{count, set},
    parts::{Path, object, text},
};
use crate::{field_error::Cause, gourl::Url, names, resource::Tree};

const FORM: &str = "; desired format: https://host[/path]";

/// Checks `clientConfig` of an admission webhook.
pub fn client(config: &Tree, path: &Path<'_>) -> Vec<Cause> {
    match (set(config, "url").and_then(Value::as_str), object(config, "service")) {
        (Some(address), None) => url(address, &path.child("url")),
        (None, Some(reference)) => service(reference, &path.child("service")),
        _ => vec![Cause::required(path, "exactly one of url or service is required")],
    }
}

fn url(address: &str, path: &Path<'_>) -> Vec<Cause> {
    let url = match Url::parse(address) {
        Ok(url) => url,
        Err(error) => return vec![Cause::required(path, &format!("url must be a valid URL: {error}{FORM}"))],
    };
    let mut causes = Vec::new();
    let mut wrong = |value: &str, detail: &str| causes.push(Cause::invalid(path, &json!(value), detail));
    if url.scheme != "https" {
        wrong(&url.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        wrong(&url.host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = &url.user {
        wrong(user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        wrong(&url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        wrong(&url.query, "query parameters are not permitted in the URL");
    }
    causes
}

fn service(reference: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    // Upstream takes the one for the other here.
    for (missing, told) in [("namespace", "name"), ("name", "namespace")] {
        if text(reference, missing).is_empty() {
            causes.push(Cause::required(&path.child(told), ""));
        }
    }
    let port = count(reference, "port");
    let reasons = names::is_port_number(port);
    if !reasons.is_empty() {
        let detail = format!("port is not valid: {}", reasons.join(", "));
        causes.push(Cause::invalid(&path.child("port"), &json!(port), &detail));
    }
    causes.extend(service_path(text(reference, "path"), &path.child("path")));
    causes
}

fn service_path(value: &str, path: &Path<'_>) -> Vec<Cause> {
    let wrong = |detail: String| Cause::invalid(path, &json!(value), &detail);
    match value {
        "" | "/" => return Vec::new(),
        "//" => return vec![wrong("segment[0] may not be empty".to_owned())],
        _ => {}
    }
    let mut causes = Vec::new();
    if !value.starts_with('/') {
        causes.push(wrong("must start with a '/'".to_owned()));
    }
    // Upstream cuts off the first byte, whatever it is.
    let rest: String = match value.strip_prefix('/') {
        Some(rest) => rest.to_owned(),
        None => value.chars().skip(1).collect(),
    };
    let rest = rest.strip_suffix('/').unwrap_or(&rest);
    for (at, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            causes.push(wrong(format!("segment[{at}] may not be empty")));
            continue;
        }
        let reasons = names::is_dns1123_subdomain(step);
        causes.extend(reasons.iter().map(|reason| wrong(format!("segment[{at}]: {reason}"))));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(config: Value) -> Vec<String> {
        let empty = Tree::new();
        let causes = client(config.as_object().unwrap_or(&empty), &Path::new("c"));
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn a_webhook_is_reached_by_a_url_or_a_service() {
        let service = json!({"namespace": "n", "name": "s", "port": 443});
        for (config, problems) in [
            (json!({"url": "https://example.com/x"}), vec![]),
            (json!({"service": service}), vec![]),
            (json!({}), vec!["c: Required value: exactly one of url or service is required"]),
            (
                json!({"url": "https://a", "service": service}),
                vec!["c: Required value: exactly one of url or service is required"],
            ),
            (
                json!({"url": "http://u@example.com?q#f"}),
                vec![
                    "c.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
                    "c.url: Invalid value: \"u\": user information is not permitted in the URL",
                    "c.url: Invalid value: \"f\": fragments are not permitted in the URL",
                    "c.url: Invalid value: \"q\": query parameters are not permitted in the URL",
                ],
            ),
            (
                json!({"service": {"name": "s", "port": 0, "path": "a//b"}}),
                vec![
                    "c.service.name: Required value",
                    "c.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                    "c.service.path: Invalid value: \"a//b\": must start with a '/'",
                    "c.service.path: Invalid value: \"a//b\": segment[0] may not be empty",
                    "c.service.path: Invalid value: \"a//b\": segment[1] may not be empty",
                ],
            ),
        ] {
            assert_eq!(told(config), problems);
        }
    }
}
