//! Requests of the CLI's own verbs.

use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use env::Env;
use http::{Method, Response, header};
use hyper::body::Incoming;
use serde_json::Value;
use sync::client::{Access, Client, Error, JSON, MAX_ANSWER, request};

/// Some things that a server is told to do take their time.
const LIMIT: Duration = Duration::from_secs(600);

/// A client of a server, or of one workspace of a Hanse.
pub fn client(env: &Env, access: &Access) -> anyhow::Result<Client> {
    Client::new(env.clone(), access, LIMIT).map_err(|error| explained(access, error))
}

/// What can be done about it, where that is known.
fn explained(access: &Access, error: Error) -> anyhow::Error {
    match error {
        Error::Dial(_) => anyhow!(error).context(format!("cannot reach {}; is it running?", access.server)),
        error => anyhow!(error),
    }
}

/// Sends one request and reads the answer; a refusal becomes an error with the server's own message.
pub async fn call(
    env: &Env,
    access: &Access,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let called = client(env, access)?.call(method, path, JSON, body).await;
    called.map_err(|error| explained(access, error))
}

/// As [`call`], for texts.
pub async fn call_text(
    env: &Env,
    access: &Access,
    method: Method,
    path: &str,
    body: String,
) -> anyhow::Result<String> {
    let request = request(method, path, &[(header::CONTENT_TYPE, "text/plain")], body.into())?;
    let answer = client(env, access)?.demand(request, MAX_ANSWER).await;
    let answer = answer.map_err(|error| explained(access, error))?;
    String::from_utf8(answer.bytes.into()).context("the answer is not UTF-8")
}

/// Sends one request; the answer is a success, and still to be read.
pub async fn send(
    env: &Env,
    access: &Access,
    method: Method,
    path: &str,
    content_type: &str,
    body: Bytes,
) -> anyhow::Result<Response<Incoming>> {
    let request = request(method, path, &[(header::CONTENT_TYPE, content_type)], body)?;
    let answer = client(env, access)?.open(request).await;
    answer.map(|answer| answer.response).map_err(|error| explained(access, error))
}
