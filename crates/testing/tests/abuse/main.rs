//! What clients must not get away with: every malformed, oversized or endless request is refused with the right
//! code and a `Status`, changes nothing, and leaves a server that answers everybody else.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod bodies;
mod wire;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result};
use env::random::{Random, SeededRandom};
use http::Method;
use serde_json::{Value, json};
use server::Options;
use store::memory::MemoryStore;
use testing::{
    client::{Answer, Client},
    hub::TestHub,
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const VICTIM: &str = "/api/v1/namespaces/default/configmaps/victim";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A hub with something in it, and what that was.
struct Scene {
    hub: TestHub,
    client: Client,
    before: Vec<Value>,
    /// What was answered in another way than it should be.
    wrong: Mutex<Vec<String>>,
}

impl Scene {
    async fn set(options: Options) -> Result<Scene> {
        let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
        let client = hub.admin().await?;
        let victim = json!({"metadata": {"name": "victim", "labels": {"a": "b"}}, "data": {"key": "value"}});
        assert_eq!(client.post(CONFIG_MAPS, &victim).await?.code, 201);
        let before = everything(&client).await?;
        Ok(Scene { hub, client, before, wrong: Mutex::default() })
    }

    /// Sends it; the answer must be a `Status` with `code` and `reason`.
    async fn refuses(&self, what: &str, ask: Ask<'_>, code: u16, reason: &str) -> Result<()> {
        let answer = ask.send(&self.client).await.with_context(|| what.to_owned())?;
        self.expects(what, &answer, code, reason);
        Ok(())
    }

    fn expects(&self, what: &str, answer: &Answer, code: u16, reason: &str) {
        if !is_status(answer, code, reason) {
            let shown = answer.text().chars().take(300).collect::<String>();
            let wrong = format!("{what}: not {code} {reason}, but {} {shown}", answer.code);
            self.wrong.lock().expect("nobody panics while holding it").push(wrong);
        }
    }

    /// Nothing has changed, the server answers, and it has not swollen.
    async fn ends_unharmed(self) -> Result<()> {
        let wrong = self.wrong.into_inner().expect("nobody panics while holding it");
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(everything(&self.client).await?, self.before);
        assert_eq!(self.hub.nobody().await?.get("/readyz").await?.text(), "ok");
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: usize = line.trim().trim_end_matches(" kB").parse()?;
        assert!(kib < 1 << 20, "{kib} KiB are resident");
        Ok(())
    }
}

/// Every object there is, with the revisions of the lists.
async fn everything(client: &Client) -> Result<Vec<Value>> {
    let paths = [
        "/api/v1/configmaps".to_owned(),
        "/api/v1/secrets".to_owned(),
        "/api/v1/namespaces".to_owned(),
        format!("{RBAC}/clusterroles"),
        format!("{RBAC}/roles"),
        WORKSPACES.to_owned(),
    ];
    let mut all = Vec::new();
    for path in paths {
        all.push(client.get(&path).await?.json());
    }
    Ok(all)
}

/// A request to be refused.
struct Ask<'a> {
    method: Method,
    path: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: Vec<u8>,
}

impl<'a> Ask<'a> {
    fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, headers: Vec::new(), body: Vec::new() }
    }

    fn of(method: Method, path: &'a str, content_type: &'a str, body: impl Into<Vec<u8>>) -> Self {
        Self { method, path, headers: vec![("content-type", content_type)], body: body.into() }
    }

    fn post(path: &'a str, content_type: &'a str, body: impl Into<Vec<u8>>) -> Self {
        Self::of(Method::POST, path, content_type, body)
    }

    fn patch(content_type: &'a str, body: impl Into<Vec<u8>>) -> Self {
        Self::of(Method::PATCH, VICTIM, content_type, body)
    }

    fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    async fn send(self, client: &Client) -> Result<Answer> {
        let sent = client.call(self.method, self.path, &self.headers, self.body);
        tokio::time::timeout(Duration::from_secs(30), sent).await.context("no answer")?
    }
}

fn is_status(answer: &Answer, code: u16, reason: &str) -> bool {
    let status = answer.json();
    answer.code == code
        && status["kind"] == "Status"
        && status["apiVersion"] == "v1"
        && status["status"] == "Failure"
        && status["code"] == code
        && status["reason"] == reason
        && status["message"].as_str().is_some_and(|it| !it.is_empty() && it.len() < 64 << 10)
        && answer.headers.get("content-type").is_some_and(|it| it == "application/json")
}

#[tokio::test]
async fn questions_that_make_no_sense() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let list = |query: &str| format!("{CONFIG_MAPS}?{query}");
    let selectors = [
        "labelSelector=a%20in%20(",
        "labelSelector=a%20in",
        "labelSelector==b",
        "labelSelector=a=b=c",
        "labelSelector=!!a",
        "labelSelector=a%20b",
        "labelSelector=a=b,,",
        "labelSelector=%ff",
        "labelSelector=-=-",
        "fieldSelector=metadata.name",
        "fieldSelector=no.such.field=1",
        "fieldSelector=metadata.name=a%5c",
    ];
    for selector in selectors {
        for watch in ["", "&watch=true"] {
            let path = list(&format!("{selector}{watch}"));
            scene.refuses(&path, Ask::get(&path), 400, "BadRequest").await?;
        }
        // Above all: what cannot be understood does not select everything.
        let path = list(selector);
        let ask = Ask { method: Method::DELETE, ..Ask::get(&path) };
        scene.refuses(&path, ask, 400, "BadRequest").await?;
    }
    let tokens = ["x", "e30", "eyJ2IjoxfQ", "eyJ2IjoyfQ", "%00", "..", "AAAA"];
    let long = format!("continue={}", "A".repeat(20_000));
    for query in tokens.map(|token| format!("continue={token}")).iter().chain([&long]) {
        scene.refuses(query, Ask::get(&list(query)), 400, "BadRequest").await?;
    }
    for query in ["limit=x", "limit=1.5", "timeoutSeconds=x&watch=true", "limit=99999999999999999999"] {
        scene.refuses(query, Ask::get(&list(query)), 400, "BadRequest").await?;
    }
    let revisions = ["x", "-1", "1.5", "0x10", "01", "99999999999999999999", "%D9%A3", "%20"];
    for revision in revisions {
        for rest in ["", "&watch=true", "&resourceVersionMatch=Exact"] {
            let path = list(&format!("resourceVersion={revision}{rest}"));
            let answer = Ask::get(&path).send(&scene.client).await?;
            assert!(matches!(answer.code.as_u16(), 400 | 422), "{path}: {}", answer.text());
        }
    }
    let rules = [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=5&resourceVersionMatch=Nearly",
        "sendInitialEvents=true",
        "sendInitialEvents=true&watch=true",
        "sendInitialEvents=true&watch=true&resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan&watch=true",
    ];
    for query in rules {
        scene.refuses(query, Ask::get(&list(query)), 422, "Invalid").await?;
    }
    scene.ends_unharmed().await
}

#[tokio::test]
async fn deletions_that_were_not_meant() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    fn delete<'a>(path: &'a str, body: &str) -> Ask<'a> {
        Ask::of(Method::DELETE, path, JSON, body)
    }
    for body in ["{", "[]", r#"{"preconditions": 1}"#] {
        scene.refuses(body, delete(VICTIM, body), 400, "BadRequest").await?;
        scene.refuses(body, delete(CONFIG_MAPS, body), 400, "BadRequest").await?;
    }
    let invalid = [
        r#"{"propagationPolicy": "Sideways"}"#,
        r#"{"propagationPolicy": "Orphan", "orphanDependents": true}"#,
        r#"{"dryRun": ["Some"]}"#,
    ];
    for body in invalid {
        scene.refuses(body, delete(VICTIM, body), 422, "Invalid").await?;
    }
    for body in [r#"{"preconditions": {"uid": "other"}}"#, r#"{"preconditions": {"resourceVersion": "5"}}"#] {
        scene.refuses(body, delete(VICTIM, body), 409, "Conflict").await?;
    }
    let everywhere = "/api/v1/configmaps";
    scene.refuses("all namespaces", delete(everywhere, ""), 405, "MethodNotAllowed").await?;
    scene.refuses("namespaces", delete("/api/v1/namespaces", ""), 405, "MethodNotAllowed").await?;
    for name in ["default", "kube-system", "kube-public"] {
        let path = format!("/api/v1/namespaces/{name}");
        scene.refuses(name, delete(&path, ""), 403, "Forbidden").await?;
    }
    scene.ends_unharmed().await
}

#[tokio::test]
async fn paths_and_verbs_that_do_not_exist() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let long = format!("{CONFIG_MAPS}/{}", "a".repeat(20_000));
    let not_found = [
        "/api/v2/configmaps",
        "/apis/no.such.group/v1/things",
        "/api/v1/things",
        "/api/v1/namespaces/default/configmaps/victim/status",
        "/api/v1/namespaces/default/configmaps/victim/log/deeper",
        "/api/v1/namespaces/default/namespaces",
        "/api/v1/configmaps/victim",
        "/api/v1/namespaces/default/configmaps/%2e%2e",
        "/api/v1/namespaces/default/configmaps/a%2f..%2fvictim",
        "/api/v1/namespaces/default%2fconfigmaps/victim",
        "/api/v1/namespaces/-/configmaps/victim",
        "/clusters/nobody/api/v1/configmaps",
        "/clusters/%2e%2e/api/v1/configmaps",
        long.as_str(),
    ];
    // Outside of the API it is not a `Status`, as upstream has it.
    assert_eq!(scene.client.get("/nowhere").await?.code, 404);
    for path in not_found {
        scene.refuses(path, Ask::get(path), 404, "NotFound").await?;
    }
    for path in ["/api/v1/namespaces/default/configmaps/%ff", "/clusters/%ff/version", "/version?a=%ff"] {
        scene.refuses(path, Ask::get(path), 400, "BadRequest").await?;
    }
    for path in ["/api/v1/namespaces/default/configmaps/%zz", "/api/v1/namespaces/default/configmaps/%"] {
        let answer = Ask::get(path).send(&scene.client).await?;
        assert!(matches!(answer.code.as_u16(), 400 | 404), "{path}: {}", answer.text());
    }
    let not_allowed = [
        ("OPTIONS", VICTIM),
        ("TRACE", VICTIM),
        ("PROPFIND", CONFIG_MAPS),
        ("get", VICTIM),
        ("POST", VICTIM),
        ("PUT", CONFIG_MAPS),
        ("PATCH", CONFIG_MAPS),
        ("POST", "/api/v1/configmaps"),
        ("POST", "/version"),
        ("DELETE", "/apis"),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ];
    for (verb, path) in not_allowed {
        let ask = Ask { method: Method::from_bytes(verb.as_bytes())?, ..Ask::get(path) };
        scene.refuses(verb, ask, 405, "MethodNotAllowed").await?;
    }
    for accept in ["application/xml", "text/html", "application/json;as=Table;g=meta.k8s.io;v=v9", "image/*"]
    {
        let ask = Ask::get(CONFIG_MAPS).header("accept", accept);
        scene.refuses(accept, ask, 406, "NotAcceptable").await?;
    }
    scene.ends_unharmed().await
}

#[tokio::test]
async fn credentials_that_are_none() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let nobody = scene.hub.nobody().await?;
    for value in
        ["Bearer nonsense", "Bearer a.b.c", "Bearer a,b", "bearer x", "Bearer eyJhbGciOiJub25lIn0.e30."]
    {
        for path in [CONFIG_MAPS, "/version", "/clusters/root/api", "/clusters/no-such-one/api"] {
            let answer = Ask::get(path).header("authorization", value).send(&nobody).await?;
            scene.expects(value, &answer, 401, "Unauthorized");
        }
    }
    // A certificate of another authority proves nothing, and does not make its holder anonymous.
    let stranger = TestHub::start().await?.peer.authority.client("admin", &["system:masters"])?;
    let identity = (stranger.certificate_pem.as_str(), stranger.key_pem.as_str());
    let ca_pem = scene.hub.peer.authority.certificate_pem();
    let client = Client::connect(&scene.hub.peer.url(), ca_pem, Some(identity)).await?;
    for path in [CONFIG_MAPS, "/version"] {
        let answer = Ask::get(path).send(&client).await?;
        scene.expects("a stranger's certificate", &answer, 401, "Unauthorized");
    }
    scene.ends_unharmed().await
}

#[tokio::test]
async fn noise_is_refused_and_never_an_error_of_the_server() -> Result<()> {
    let seed = std::env::var("HANSE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("HANSE_SEED={seed}");
    let random = SeededRandom::new(seed);
    let scene = Scene::set(Options::default()).await?;
    let good =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "new"}, "data": {"a": "b"}});
    let good = good.to_string().into_bytes();
    for round in 0..1500 {
        let mut body = match round % 3 {
            0 => vec![0; random.below(200) as usize],
            _ => good.clone(),
        };
        if round % 3 == 0 {
            random.fill(&mut body);
        }
        const MARKS: &[u8] = b"{}[]\",:\\\0\n&*- ";
        for _ in 0..random.below(8) {
            let at = random.below(body.len() as u64 + 1) as usize;
            match (random.below(3), at < body.len()) {
                (0, true) => body[at] = random.next_u64() as u8,
                (1, true) => drop(body.remove(at)),
                _ => body.insert(at, MARKS[random.below(MARKS.len() as u64) as usize]),
            }
        }
        if round % 4 == 0 {
            body.splice(0..0, *b"k8s\0");
        }
        let types = [JSON, YAML, PROTOBUF, MERGE, JSON_PATCH, STRATEGIC];
        let content_type = types[random.below(types.len() as u64) as usize];
        let ask = match content_type {
            MERGE | JSON_PATCH | STRATEGIC => Ask::of(Method::PATCH, "", content_type, body.clone()),
            _ => Ask::post("", content_type, body.clone()),
        };
        // Dry, for some of it may be right by accident.
        let path = if ask.method == Method::PATCH { VICTIM } else { CONFIG_MAPS };
        let path = format!("{path}?dryRun=All");
        let answer = Ask { path: &path, ..ask }.send(&scene.client).await?;
        let code = answer.code.as_u16();
        assert!(code < 500, "round {round}: {} after {content_type} {body:?}", answer.text());
        if code >= 400 {
            assert_eq!(answer.json()["code"], code, "round {round}: {}", answer.text());
        }
    }
    scene.ends_unharmed().await
}
