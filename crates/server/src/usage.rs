//! Which workspaces hold or ask for most: told when somebody asks, for series of metrics would be as many as workspaces.
//!
//! `GET /clusters/root/usage?by=bytes&limit=20`

use std::cmp::Reverse;

use http::{Response, StatusCode};
use machinery::status::Status;
use serde_json::{Value, json};
use store::{Usage, WorkspaceId};

use crate::{
    body::{self, Body},
    hub::{Hub, default_id, root_id},
    options::Query,
};

const DEFAULT_LIMIT: usize = 20;
const MOST: usize = 1000;

/// What workspaces are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Objects,
    Bytes,
    Watches,
    /// Since the workspace was last asleep.
    Requests,
}

impl By {
    fn read(text: Option<&str>) -> Result<By, Status> {
        match text {
            None | Some("bytes") => Ok(By::Bytes),
            Some("objects") => Ok(By::Objects),
            Some("watches") => Ok(By::Watches),
            Some("requests") => Ok(By::Requests),
            Some(_) => Err(Status::bad_request("by: it is one of objects, bytes, watches and requests")),
        }
    }
}

pub fn answer(hub: &Hub, query: &Query) -> Result<Response<Body>, Status> {
    let by = By::read(query.get("by"))?;
    let limit = match query.get("limit") {
        None => DEFAULT_LIMIT,
        Some(text) => {
            let number = text.parse::<usize>().ok().filter(|number| (1..=MOST).contains(number));
            number.ok_or_else(|| Status::bad_request(format!("limit: it is between 1 and {MOST}")))?
        }
    };
    let items: Vec<Value> =
        highest(hub, by, limit).iter().filter_map(|workspace| describe(hub, workspace)).collect();
    let list = json!({"kind": "WorkspaceUsageList", "apiVersion": api::API_VERSION, "items": items});
    Ok(body::json(StatusCode::OK, &list))
}

fn highest(hub: &Hub, by: By, limit: usize) -> Vec<WorkspaceId> {
    let stored = |amount: fn(Usage) -> u64| {
        let all = hub.store.workspaces().into_iter();
        top(all.map(|id| (amount(hub.store.usage(&id)), id)).collect(), limit)
    };
    match by {
        By::Objects => stored(|usage| usage.objects),
        By::Bytes => stored(|usage| usage.bytes),
        By::Watches => hub.shares.watches.highest(limit).into_iter().map(|(id, _)| id).collect(),
        By::Requests => top(hub.requests(), limit),
    }
}

/// Those with the highest number, the highest first.
fn top(mut all: Vec<(u64, WorkspaceId)>, limit: usize) -> Vec<WorkspaceId> {
    let order = |(amount, id): &(u64, WorkspaceId)| (Reverse(*amount), id.clone());
    if all.len() > limit {
        all.select_nth_unstable_by_key(limit, order);
        all.truncate(limit);
    }
    all.sort_unstable_by_key(order);
    all.into_iter().map(|(_, id)| id).collect()
}

/// `None`: it is gone.
fn describe(hub: &Hub, id: &WorkspaceId) -> Option<Value> {
    let name = match *id == root_id() || *id == default_id() {
        true => id.0.clone(),
        false => hub.name_of(id)?,
    };
    let Usage { objects, bytes } = hub.store.usage(id);
    Some(json!({
        "name": name,
        "objects": objects,
        "bytes": bytes,
        "watches": hub.shares.watches.of(id),
        "requests": hub.requests_of(id),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_first_and_no_more_than_asked_for() {
        let all =
            || [(3, "c"), (9, "a"), (1, "d"), (9, "b")].map(|(n, id)| (n, WorkspaceId(id.into()))).to_vec();
        let names = |ids: Vec<WorkspaceId>| ids.iter().map(|id| id.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(top(all(), 3)), "a b c");
        assert_eq!(names(top(all(), 9)), "a b c d");
        assert_eq!(names(top(all(), 1)), "a");
    }
}
