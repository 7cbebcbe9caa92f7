//! The valid objects as tables: the same columns, the same cells.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use http::HeaderMap;
use serde_json::{Value, json};
use testing::compare::{self, Body, Difference, Relation};

use super::{
    objects::Base,
    server::{Reply, Server},
    translate::Translation,
};

const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");

/// Where the tables of an object differ, with its name.
pub async fn differences(
    kube: &Server,
    hanse: &Server,
    created: &[(Base, Translation)],
) -> Result<Vec<(String, Difference)>> {
    let mut found = Vec::new();
    for (base, translation) in created {
        let (theirs, ours) = tokio::try_join!(kube.get(base, &[TABLE]), hanse.get(base, &[TABLE]))?;
        let (theirs, ours) = (shown(&theirs, Value::clone), shown(&ours, |cell| translation.cell_back(cell)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
        let differences = compare::compare(&mut Relation::default(), now, &theirs, &ours);
        found.extend(differences.into_iter().map(|difference| (base.name.clone(), difference)));
    }
    Ok(found)
}

/// What a person sees: not the descriptions, which are in our own words.
fn shown(reply: &Reply, cell: impl Fn(&Value) -> Value) -> compare::Reply {
    let columns = reply.body["columnDefinitions"].as_array().into_iter().flatten();
    let columns: Vec<Value> = columns
        .map(|column| {
            json!({
                "name": column["name"],
                "type": column["type"],
                "format": column["format"],
                "priority": column["priority"],
            })
        })
        .collect();
    let cells = reply.body.pointer("/rows/0/cells").and_then(Value::as_array).into_iter().flatten();
    let body = json!({"columns": columns, "cells": cells.map(cell).collect::<Vec<_>>()});
    compare::Reply { code: reply.code, headers: HeaderMap::new(), body: Body::Json(body) }
}
