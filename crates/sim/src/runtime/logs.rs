//! `pods/log`: what containers have written.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use machinery::status::Status;
use serde_json::Value;
use server::{
    body::{self, Body, Endless},
    streams::Ask,
};
use store::Key;

use super::Runtime;
use crate::{kubelet::program, tree};

/// How often somebody who follows looks for lines that come with time.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Which lines, and how.
struct Wanted {
    container: String,
    previous: bool,
    follow: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail: Option<usize>,
    limit: Option<usize>,
}

impl Wanted {
    fn read(ask: &Ask, pod: &Value, now: Timestamp) -> Result<Wanted, Status> {
        let number = |key: &str| -> Result<Option<i64>, Status> {
            let number = ask.query.number(key)?;
            match number.filter(|it| *it < 0) {
                Some(_) => Err(Status::bad_request(format!("{key} must be greater than or equal to 0"))),
                None => Ok(number),
            }
        };
        let seconds = number("sinceSeconds")?;
        let by_seconds = seconds.and_then(|it| now.checked_sub(SignedDuration::from_secs(it)).ok());
        let by_time = ask.query.get("sinceTime").and_then(|text| text.parse().ok());
        let size = |it: i64| usize::try_from(it).unwrap_or(usize::MAX);
        Ok(Wanted {
            container: container_of(ask.query.get("container").unwrap_or_default(), pod)?,
            previous: ask.query.flag("previous"),
            follow: ask.query.flag("follow"),
            timestamps: ask.query.flag("timestamps"),
            since: by_seconds.or(by_time),
            tail: number("tailLines")?.map(size),
            limit: number("limitBytes")?.map(size),
        })
    }
}

/// The container that is meant; if none is named, the only one.
pub fn container_of(named: &str, pod: &Value) -> Result<String, Status> {
    let names = |pointer: &str| -> Vec<String> {
        tree::items(pod, pointer).map(|it| tree::text(it, "/name").to_owned()).collect()
    };
    let (main, init) = (names("/spec/containers"), names("/spec/initContainers"));
    let pod_name = tree::name(pod);
    if named.is_empty() {
        return match main.as_slice() {
            [only] => Ok(only.clone()),
            several => Err(Status::bad_request(format!(
                "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                several.join(" ")
            ))),
        };
    }
    match main.iter().chain(&init).any(|name| name == named) {
        true => Ok(named.to_owned()),
        false => Err(Status::bad_request(format!("container {named} is not valid for pod {pod_name}"))),
    }
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let all = tree::items(pod, "/status/containerStatuses")
        .chain(tree::items(pod, "/status/initContainerStatuses"));
    all.into_iter().find(|it| tree::text(it, "/name") == container)
}

/// When the run that is meant began and ended; `Err`: there was none.
fn span(pod: &Value, wanted: &Wanted) -> Result<(Timestamp, Option<Timestamp>), Status> {
    let (container, name) = (&wanted.container, tree::name(pod));
    let status = status_of(pod, container);
    let at = |pointer: &str| status.and_then(|it| tree::time(it, pointer));
    if wanted.previous {
        let began = at("/lastState/terminated/startedAt");
        return began.map(|began| (began, at("/lastState/terminated/finishedAt"))).ok_or_else(|| {
            Status::bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{name}\" not found"
            ))
        });
    }
    if let Some(began) = at("/state/running/startedAt") {
        return Ok((began, None));
    }
    for ended in ["/state/terminated", "/lastState/terminated"] {
        if let Some(began) = at(&format!("{ended}/startedAt")) {
            return Ok((began, at(&format!("{ended}/finishedAt"))));
        }
    }
    let why = status.map_or("ContainerCreating", |it| tree::text(it, "/state/waiting/reason"));
    match tree::text(pod, "/spec/nodeName") {
        "" => Err(Status::bad_request(format!("pod {name} does not have a host assigned"))),
        _ => Err(Status::bad_request(format!(
            "container \"{container}\" in pod \"{name}\" is waiting to start: {why}"
        ))),
    }
}

/// All that a container has written by `now`.
fn lines(
    runtime: &Runtime,
    pod: &Value,
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Vec<(Timestamp, String)>, Status> {
    let (began, ended) = span(pod, wanted)?;
    let all = tree::items(pod, "/spec/containers").chain(tree::items(pod, "/spec/initContainers"));
    let spec = all.into_iter().find(|it| tree::text(it, "/name") == wanted.container);
    let mut lines: Vec<(Timestamp, String)> = Vec::new();
    let restarts = status_of(pod, &wanted.container).and_then(|it| tree::number(it, "/restartCount"));
    let restarts = restarts.unwrap_or(0).saturating_sub(i64::from(wanted.previous));
    match spec.and_then(|spec| program(pod, spec, restarts)) {
        Some(run) => {
            for (after, text) in run.output {
                let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
                let at = began.checked_add(after).unwrap_or(Timestamp::MAX);
                lines.extend(text.lines().map(|line| (at, line.to_owned())));
            }
        }
        None => {
            let image = spec.map_or("", |it| tree::text(it, "/image"));
            let line = format!("simulated {image} started on {}", tree::text(pod, "/spec/nodeName"));
            lines.push((began, line));
        }
    }
    // Only the first container has ports that others talk to, as far as lines are concerned.
    if tree::text(pod, "/spec/containers/0/name") == wanted.container && !wanted.previous {
        lines.extend(runtime.lines(tree::uid(pod)));
    }
    let until = ended.unwrap_or(now).max(began);
    lines.retain(|(at, _)| *at <= until);
    lines.sort_by_key(|(at, _)| *at);
    Ok(lines)
}

fn render(lines: &[(Timestamp, String)], timestamps: bool) -> String {
    let mut text = String::new();
    for (at, line) in lines {
        if timestamps {
            text.push_str(&format!("{at:.9} "));
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

pub async fn open(runtime: Arc<Runtime>, ask: Ask) -> Result<Response<Body>, Status> {
    let pod = Value::Object(ask.pod.tree().map_err(Status::internal)?);
    let now = runtime.env.clock.now();
    let wanted = Wanted::read(&ask, &pod, now)?;
    let mut first = lines(&runtime, &pod, &wanted, now)?;
    if let Some(since) = wanted.since {
        first.retain(|(at, _)| *at >= since);
    }
    let seen = first.last().map_or(now, |(at, _)| *at).max(now);
    if let Some(tail) = wanted.tail {
        first.drain(..first.len().saturating_sub(tail));
    }
    let mut text = render(&first, wanted.timestamps);
    if let Some(limit) = wanted.limit.filter(|limit| *limit < text.len()) {
        let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        return Ok(body::text(StatusCode::OK, text));
    }
    if !wanted.follow {
        return Ok(body::text(StatusCode::OK, text));
    }
    let mut response = body::text(StatusCode::OK, String::new());
    *response.body_mut() = Body::stream(followed(runtime, ask, wanted, Bytes::from(text), seen));
    response.extensions_mut().insert(Endless);
    Ok(response)
}

struct Following {
    runtime: Arc<Runtime>,
    ask: Ask,
    wanted: Wanted,
    first: Option<Bytes>,
    seen: Timestamp,
    ended: bool,
}

/// What is there, then what comes, until the container has ended.
fn followed(
    runtime: Arc<Runtime>,
    ask: Ask,
    wanted: Wanted,
    first: Bytes,
    seen: Timestamp,
) -> impl futures_util::Stream<Item = Bytes> + Send {
    let following = Following { runtime, ask, wanted, first: Some(first), seen, ended: false };
    stream::unfold(following, |mut it| async move {
        if let Some(first) = it.first.take().filter(|first| !first.is_empty()) {
            return Some((first, it));
        }
        loop {
            if it.ended {
                return None;
            }
            if let Some(text) = it.more() {
                return Some((Bytes::from(text), it));
            }
            let runtime = it.runtime.clone();
            tokio::select! {
                () = runtime.grown.notified() => {}
                () = runtime.env.clock.sleep(LOOK_EVERY) => {}
            }
        }
    })
}

impl Following {
    /// Lines since the last look. A pod that is gone, or another one by now, writes no more.
    fn more(&mut self) -> Option<String> {
        let head = &self.ask.pod.head;
        let key = Key::new("", "pods", &head.namespace, &head.name);
        let now = self.runtime.env.clock.now();
        let pod = self.ask.space.get(&key).filter(|pod| pod.head.uid == head.uid);
        let Some(pod) = pod.and_then(|pod| pod.tree().ok()).map(Value::Object) else {
            self.ended = true;
            return None;
        };
        let status = status_of(&pod, &self.wanted.container);
        self.ended = status.is_none_or(|it| it.pointer("/state/running").is_none());
        let mut new = lines(&self.runtime, &pod, &self.wanted, now).ok()?;
        new.retain(|(at, _)| *at > self.seen);
        self.seen = new.last().map_or(self.seen, |(at, _)| *at);
        (!new.is_empty()).then(|| render(&new, self.wanted.timestamps))
    }
}
