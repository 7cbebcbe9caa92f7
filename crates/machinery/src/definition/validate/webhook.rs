//! Webhooks that convert.

use crate::{
    definition::{ServiceReference, WebhookClient, conversion::ca_bundle_mistake},
    field_error::Cause,
    gourl::Url,
    names as rules,
    structural::Path,
};

const FORM: &str = "; desired format: https://host[/path]";
const KNOWN_REVIEWS: [&str; 2] = ["v1", "v1beta1"];

pub fn client(config: &WebhookClient, allow_bad_bundle: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = match (&config.url, &config.service) {
        (Some(url), None) => self::url(url, &path.child("url")),
        (None, Some(service)) => self::service(service, &path.child("service")),
        _ => vec![Cause::required(path.to_string(), "exactly one of url or service is required")],
    };
    if !allow_bad_bundle && let Some(why) = ca_bundle_mistake(&config.ca_bundle) {
        let field = path.child("caBundle").to_string();
        causes.push(Cause::invalid(field, &config.ca_bundle.as_str().into(), &why));
    }
    causes
}

fn url(text: &str, path: &Path<'_>) -> Vec<Cause> {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            return vec![Cause::required(
                path.to_string(),
                &format!("url must be a valid URL: {error}{FORM}"),
            )];
        }
    };
    let mut causes = Vec::new();
    let mut refuse = |value: &str, why: &str| {
        causes.push(Cause::invalid(path.to_string(), &value.into(), why));
    };
    if url.scheme != "https" {
        refuse(&url.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        refuse(&url.host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = &url.user {
        refuse(user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        refuse(&url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        refuse(&url.query, "query parameters are not permitted in the URL");
    }
    causes
}

/// Upstream hands over name and namespace in the wrong order: each is missed where the other is.
fn service(service: &ServiceReference, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if service.namespace.is_empty() {
        causes.push(Cause::required(path.child("name").to_string(), ""));
    }
    if service.name.is_empty() {
        causes.push(Cause::required(path.child("namespace").to_string(), ""));
    }
    let problems = rules::is_port_number(service.port);
    if !problems.is_empty() {
        let why = format!("port is not valid: {}", problems.join(", "));
        causes.push(Cause::invalid(path.child("port").to_string(), &service.port.into(), &why));
    }
    if let Some(text) = &service.path {
        causes.extend(url_path(text, &path.child("path")));
    }
    causes
}

fn url_path(text: &str, path: &Path<'_>) -> Vec<Cause> {
    let refusal = |why: &str| Cause::invalid(path.to_string(), &text.into(), why);
    match text {
        "" | "/" => return Vec::new(),
        "//" => return vec![refusal("segment[0] may not be empty")],
        _ => {}
    }
    let mut causes = Vec::new();
    if !text.starts_with('/') {
        causes.push(refusal("must start with a '/'"));
    }
    // Upstream cuts the first byte, whatever it is.
    let segments = text.get(1..).unwrap_or_default();
    let segments = segments.strip_suffix('/').unwrap_or(segments);
    for (at, segment) in segments.split('/').enumerate() {
        if segment.is_empty() {
            causes.push(refusal(&format!("segment[{at}] may not be empty")));
            continue;
        }
        let problems = rules::is_dns1123_subdomain(segment);
        causes.extend(problems.iter().map(|why| refusal(&format!("segment[{at}]: {why}"))));
    }
    causes
}

pub fn is_known_review(version: &str) -> bool {
    KNOWN_REVIEWS.contains(&version)
}

pub fn review_versions(versions: &[String], require_known: bool, path: &Path<'_>) -> Vec<Cause> {
    if versions.is_empty() {
        return vec![Cause::required(path.to_string(), "")];
    }
    let mut causes = Vec::new();
    for (at, version) in versions.iter().enumerate() {
        let field = path.index(at).to_string();
        let value = version.as_str().into();
        if versions[..at].contains(version) {
            causes.push(Cause::invalid(field, &value, "duplicate version"));
            continue;
        }
        let problems = rules::is_dns1035_label(version);
        causes.extend(problems.iter().map(|why| Cause::invalid(field.clone(), &value, why)));
    }
    if require_known && !versions.iter().any(|version| is_known_review(version)) {
        let why = format!("must include at least one of {}", KNOWN_REVIEWS.join(", "));
        causes.push(Cause::invalid(path.to_string(), &serde_json::json!(versions), &why));
    }
    causes
}
