//! Simulated clusters of this process: which there are, and what is done to them.

use std::time::Duration;

use env::BoxFuture;
use http::{Method, Response, StatusCode};
use machinery::{schema::parse_duration, status::Status};
use serde_json::{Value, json};

use crate::{
    body::{self, Body},
    hub::Hub,
    options::Query,
};

const CLUSTERS: &str = "/operate/v1/clusters";

/// What may happen to a simulated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody answers any more; nothing is lost.
    Stop,
    Start,
    /// It is gone, with all that was in it.
    Kill,
    /// Everything takes so much longer to reach it.
    Slow(Duration),
}

/// The program's simulated clusters, if it has any.
pub trait SimulatedClusters: Send + Sync + 'static {
    fn list(&self) -> Vec<Value>;
    fn play(&self, cluster: String, fault: Fault) -> BoxFuture<'static, Result<(), Status>>;
}

/// `None` if the path is not about them.
pub async fn answer(
    hub: &Hub,
    method: &Method,
    path: &str,
    query: &Query,
) -> Option<Result<Response<Body>, Status>> {
    let rest = path.strip_prefix(CLUSTERS)?;
    let Some(clusters) = &hub.options.tools.clusters else {
        return Some(Err(Status::no_such_path()));
    };
    if rest.is_empty() {
        return Some(match *method {
            Method::GET => Ok(body::json(StatusCode::OK, &json!({"clusters": clusters.list()}))),
            _ => Err(Status::method_not_allowed()),
        });
    }
    let (cluster, verb) = rest.strip_prefix('/')?.split_once('/')?;
    if *method != Method::POST {
        return Some(Err(Status::method_not_allowed()));
    }
    let fault = match fault(verb, query) {
        Ok(fault) => fault,
        Err(status) => return Some(Err(status)),
    };
    let played = clusters.play(cluster.to_owned(), fault).await;
    Some(played.map(|()| body::json(StatusCode::OK, &json!({"cluster": cluster, "done": verb}))))
}

fn fault(verb: &str, query: &Query) -> Result<Fault, Status> {
    match verb {
        "stop" => Ok(Fault::Stop),
        "start" => Ok(Fault::Start),
        "kill" => Ok(Fault::Kill),
        "slow" => {
            let text = query.get("by").unwrap_or_default();
            let nanos = parse_duration(text).map_err(|error| Status::bad_request(format!("by: {error}")))?;
            Ok(Fault::Slow(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))))
        }
        _ => Err(Status::no_such_path()),
    }
}
