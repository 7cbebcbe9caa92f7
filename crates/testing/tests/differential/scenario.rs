//! Scenarios as text.
//!
//! ```text
//! === config maps are replaced                         a scenario: runs in a namespace of its own, `<ns>`
//! --- one to begin with                                a row of it
//! keep rv /metadata/resourceVersion                    directives: remembers a value of each server's answer
//! POST /api/v1/namespaces/<ns>/configmaps              the request
//! Content-Type: application/json                       headers, if any
//!                                                      an empty line
//! {"metadata": {"name": "a", "resourceVersion": "<rv>"}}
//! ```
//!
//! Directives, each on a line of its own before the request:
//!
//! - `as USER[,GROUP…]`: who asks; `as nobody` brings no certificate. The default is an admin.
//! - `keep NAME POINTER`: later rows may say `<NAME>`.
//! - `until CODE`: asks again until the answer has this code (permissions take effect after a while).
//! - `only POINTER KEY VALUE,VALUE…`: of the array there (`*` in the pointer is every element), compares only the
//!   elements whose KEY has one of the values. For documents that list more than Hanse serves so far.
//! - `sort POINTER`: the array there is in no order.
//! - `open NAME`: the request is a watch that stays open; `EVENTS NAME COUNT` (or `EVENTS NAME end`) reads from it.
//!
//! `FORGET` asks the servers to drop their history up to now; see `Memory`.
//!
//! `MERGE`, `STRATEGIC`, `JSONPATCH` and `APPLY` are PATCH with the content type of that language. `<repeat:TEXT:N>` is the
//! text N times. A body that begins with `protobuf` is encoded, see `protobuf.rs`.

use anyhow::{Context, Result, anyhow, bail};
use http::Method;

pub struct Scenario {
    pub file: String,
    pub title: String,
    pub rows: Vec<Row>,
}

pub struct Row {
    /// `file/title`: unique, and how `accepted.txt` names the row.
    pub id: String,
    /// A user and its groups; `None` is nobody.
    pub user: Option<Vec<String>>,
    /// Names and JSON pointers.
    pub keep: Vec<(String, String)>,
    pub until: Option<u16>,
    pub only: Vec<Only>,
    /// JSON pointers.
    pub sort: Vec<String>,
    pub open: Option<String>,
    pub action: Action,
}

pub struct Only {
    pub pointer: String,
    pub key: String,
    pub values: Vec<String>,
}

pub enum Action {
    Request(Request),
    /// Reads events of an open watch; without a count, to its end.
    Events {
        stream: String,
        count: Option<usize>,
    },
    /// History up to now goes, soon.
    Forget,
}

#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

const ADMIN: [&str; 2] = ["admin", "system:masters"];

pub fn parse(file: &str, text: &str) -> Result<Vec<Scenario>> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("=== ") {
            scenarios.push(Scenario { file: file.into(), title: title.trim().into(), rows: Vec::new() });
        } else if let Some(title) = line.strip_prefix("--- ") {
            let mut body = Vec::new();
            while let Some(line) = lines.next_if(|line| !is_heading(line)) {
                body.push(line);
            }
            let id = format!("{file}/{}", title.trim());
            let row = parse_row(&id, &body).with_context(|| format!("row {title:?}"))?;
            if scenarios.iter().flat_map(|it| &it.rows).any(|other| other.id == row.id) {
                bail!("there are two rows {id:?}");
            }
            scenarios.last_mut().context("a row before the first scenario")?.rows.push(row);
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            bail!("neither a scenario nor a row: {line:?}");
        }
    }
    Ok(scenarios)
}

fn is_heading(line: &str) -> bool {
    line.starts_with("=== ") || line.starts_with("--- ")
}

fn parse_row(id: &str, lines: &[&str]) -> Result<Row> {
    let mut row = Row {
        id: id.to_owned(),
        user: Some(ADMIN.map(str::to_owned).into()),
        keep: Vec::new(),
        until: None,
        only: Vec::new(),
        sort: Vec::new(),
        open: None,
        action: Action::Events { stream: String::new(), count: None },
    };
    let mut rest = lines.iter();
    for line in rest.by_ref() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["as", "nobody"] => row.user = None,
            ["as", user] => row.user = Some(user.split(',').map(str::to_owned).collect()),
            ["keep", name, pointer] => row.keep.push((name.into(), pointer.into())),
            ["until", code] => row.until = Some(code.parse()?),
            ["sort", pointer] => row.sort.push(pointer.into()),
            ["open", name] => row.open = Some(name.into()),
            ["only", pointer, key, values] => row.only.push(Only {
                pointer: pointer.into(),
                key: key.into(),
                values: values.split(',').map(str::to_owned).collect(),
            }),
            ["EVENTS", stream, count] => {
                let count = if count == "end" { None } else { Some(count.parse()?) };
                row.action = Action::Events { stream: stream.into(), count };
                return Ok(row);
            }
            ["FORGET"] => {
                row.action = Action::Forget;
                return Ok(row);
            }
            _ => {
                row.action = Action::Request(parse_request(line, rest)?);
                return Ok(row);
            }
        }
    }
    bail!("it has no request")
}

fn parse_request<'a>(line: &str, rest: impl Iterator<Item = &'a &'a str>) -> Result<Request> {
    let (verb, path) = line.split_once(' ').ok_or_else(|| anyhow!("not a request: {line:?}"))?;
    let patch = |language: &str| (Method::PATCH, Some(format!("application/{language}+json")));
    let (method, mut content_type) = match verb {
        "MERGE" => patch("merge-patch"),
        "STRATEGIC" => patch("strategic-merge-patch"),
        "JSONPATCH" => patch("json-patch"),
        "APPLY" => (Method::PATCH, Some("application/apply-patch+yaml".to_owned())),
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => (verb.parse()?, None),
        _ => bail!("neither a directive nor a request: {line:?}"),
    };
    let mut headers = Vec::new();
    let mut body = Vec::new();
    let mut in_body = false;
    for line in rest {
        if in_body {
            body.push(*line);
        } else if line.trim().is_empty() {
            in_body = true;
        } else {
            let (name, value) = line.split_once(": ").ok_or_else(|| anyhow!("not a header: {line:?}"))?;
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
    let body = body.join("\n").trim_end().to_owned();
    if headers.iter().all(|(name, _)| name != "content-type") {
        if content_type.is_none() && !body.is_empty() {
            let protobuf = body.starts_with("protobuf ");
            let media = if protobuf { "application/vnd.kubernetes.protobuf" } else { "application/json" };
            content_type = Some(media.into());
        }
        headers.extend(content_type.map(|media| ("content-type".to_owned(), media)));
    }
    Ok(Request { method, path: path.trim().to_owned(), headers, body })
}
