//! Is it alive, is it ready, which version is it, what has it done.

use http::{HeaderValue, Response, StatusCode, header};
use machinery::status::Status;
use serde_json::json;

use crate::{
    body::{self, Body},
    hub::{Hub, root_id},
    metrics::text,
    options::Query,
    space::Space,
    usage,
};

/// The release of Kubernetes whose API this server speaks.
pub const KUBERNETES_VERSION: (&str, &str, &str) = ("1", "36", "v1.36.4");

type Check = (&'static str, fn(&Hub) -> Result<(), String>);

const LIVE: &[Check] = &[("ping", |_| Ok(())), ("log", |_| Ok(()))];
const READY: &[Check] = &[("ping", |_| Ok(())), ("store", store_answers), ("shutdown", not_stopping)];

fn store_answers(hub: &Hub) -> Result<(), String> {
    // Reading is in memory, but a store that other servers share may be out of reach.
    let _ = hub.store.head(&root_id());
    hub.store.is_well()
}

fn not_stopping(hub: &Hub) -> Result<(), String> {
    if hub.is_stopping() { Err("process is shutting down".into()) } else { Ok(()) }
}

/// `None`: no such path.
pub fn answer(hub: &Hub, space: &Space, path: &str, query: &Query) -> Option<Result<Response<Body>, Status>> {
    match path.trim_end_matches('/') {
        "/version" => Some(Ok(body::json(StatusCode::OK, &version()))),
        // They tell of every workspace.
        "/metrics" if *space.id() != root_id() => {
            let why = "the metrics are of the whole server, and shown in the workspace root only: ask for /metrics \
                       without /clusters/<name>";
            Some(Err(Status::forbidden_path(why)))
        }
        "/metrics" => Some(Ok(metrics_of(hub))),
        "/usage" if *space.id() == root_id() => Some(usage::answer(hub, query)),
        "" => Some(Ok(body::json(
            StatusCode::OK,
            &json!({"paths": [
                "/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version",
            ]}),
        ))),
        path => {
            let (root, check) = path.strip_prefix('/')?.split_once('/').unwrap_or((&path[1..], ""));
            let checks = match root {
                "livez" | "healthz" => LIVE,
                "readyz" => READY,
                _ => return None,
            };
            report(hub, root, checks, check, query).map(Ok)
        }
    }
}

fn report(hub: &Hub, root: &str, checks: &[Check], only: &str, query: &Query) -> Option<Response<Body>> {
    if !only.is_empty() {
        let (_, check) = checks.iter().find(|(name, _)| *name == only)?;
        return Some(match check(hub) {
            Ok(()) => body::text(StatusCode::OK, "ok".into()),
            Err(why) => {
                body::text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
            }
        });
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for (name, check) in checks {
        let line = match (excluded.contains(name), check(hub)) {
            (true, _) => format!("[+]{name} excluded: ok\n"),
            (false, Ok(())) => format!("[+]{name} ok\n"),
            (false, Err(why)) => {
                failed = true;
                format!("[-]{name} failed: {why}\n")
            }
        };
        lines.push_str(&line);
    }
    Some(match (failed, query.get("verbose")) {
        (true, _) => body::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{root} check failed\n")),
        (false, Some(_)) => body::text(StatusCode::OK, format!("{lines}{root} check passed\n")),
        (false, None) => body::text(StatusCode::OK, "ok".into()),
    })
}

fn metrics_of(hub: &Hub) -> Response<Body> {
    let mut response = body::text(StatusCode::OK, hub.metrics.encode(hub));
    let content_type = HeaderValue::from_static(text::CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

pub fn version() -> serde_json::Value {
    let (major, minor, git) = KUBERNETES_VERSION;
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": "35",
        "gitVersion": format!("{git}+hanse-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    })
}

/// Architectures by the names Kubernetes gives them.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
