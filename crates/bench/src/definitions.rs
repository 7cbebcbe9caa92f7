//! How soon a new kind can be used: from the answer to its definition to the answer to its first object.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use http::Method;
use tokio::time::sleep;

use crate::client::{self, Connection, Endpoint};

const JSON: &str = "application/json";
/// How many kinds are made; the median counts.
const ROUNDS: usize = 9;
const PAUSE: Duration = Duration::from_micros(500);
const PATIENCE: Duration = Duration::from_secs(30);

fn definition(round: usize) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{{"name":"things{round}.bench.hanse.io"}},
        "spec":{{"group":"bench.hanse.io","scope":"Cluster",
            "names":{{"plural":"things{round}","singular":"thing{round}","kind":"Thing{round}"}},
            "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{
                "type":"object","properties":{{"spec":{{"type":"object","properties":{{
                    "size":{{"type":"integer","minimum":0,"default":1}},"label":{{"type":"string"}}}}}}}}}}}}}}]}}}}"#
    )
}

fn object(round: usize) -> String {
    format!(
        r#"{{"apiVersion":"bench.hanse.io/v1","kind":"Thing{round}","metadata":{{"name":"first"}},"spec":{{"size":3}}}}"#
    )
}

/// The median of several kinds.
pub async fn until_first_object(endpoint: &Endpoint, connection: &mut Connection) -> Result<Duration> {
    let mut found = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        found.push(one(endpoint, connection, round).await?);
    }
    found.sort_unstable();
    Ok(found[ROUNDS / 2])
}

async fn one(endpoint: &Endpoint, connection: &mut Connection, round: usize) -> Result<Duration> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let body = Bytes::from(definition(round));
    connection.call(client::with_body(Method::POST, endpoint.uri(path)?, JSON, body)).await?;
    let started = Instant::now();
    let uri = endpoint.uri(&format!("/apis/bench.hanse.io/v1/things{round}"))?;
    while started.elapsed() < PATIENCE {
        let request = client::with_body(Method::POST, uri.clone(), JSON, Bytes::from(object(round)));
        if connection.call(request).await.is_ok() {
            return Ok(started.elapsed());
        }
        sleep(PAUSE).await;
    }
    bail!("the first object was refused for {} seconds", PATIENCE.as_secs())
}
