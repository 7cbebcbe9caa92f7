//! Query parameters of the API, read and checked as upstream does.

use std::time::Duration;

use machinery::{
    Revision,
    field_error::Cause,
    schema::parse_duration,
    selector::{FieldSelector, LabelSelector},
    status::Status,
};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A query string, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: Option<&str>) -> Result<Query, Status> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded: Result<Vec<_>, Status> = pairs
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(key)?, decode(value)?))
            })
            .collect();
        decoded.map(Query)
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.0.push((key.to_owned(), value.to_owned()));
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// As Go's conversion reads booleans: `watch`, `watch=true` and `watch=1` are yes.
    pub fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or(false)
    }

    pub fn optional_flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// How long the client is ready to wait, if it says so and means less than `most`.
    pub fn timeout(&self, most: Duration) -> Result<Option<Duration>, Status> {
        let Some(text) = self.get("timeout").filter(|text| !text.is_empty()) else { return Ok(None) };
        let nanos = parse_duration(text).map_err(|error| {
            Status::bad_request(format!("invalid timeout specified in the request URL - {error}"))
        })?;
        let asked = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
        Ok(Some(asked).filter(|asked| !asked.is_zero() && *asked < most))
    }

    pub fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }
}

fn decode(text: &str) -> Result<String, Status> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| Status::bad_request("the query is not UTF-8"))
}

/// How the revision of a list is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The latest commit there is.
    MostRecent,
    /// Whatever is at hand.
    Any,
    NotOlderThan(Revision),
    Exact(Revision),
}

/// What `list`, `watch` and `deletecollection` may be told.
#[derive(Clone, Debug)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub at: At,
    pub resource_version: String,
    pub limit: usize,
    pub continue_token: Option<String>,
    pub timeout: Option<Duration>,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    pub fn read(query: &Query, watch: bool) -> Result<ListOptions, Status> {
        let labels = query.get("labelSelector").unwrap_or_default();
        let fields = query.get("fieldSelector").unwrap_or_default();
        let labels = LabelSelector::parse(labels).map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(fields).map_err(|error| Status::bad_request(error.to_string()))?;
        let revision_text = query.get("resourceVersion").unwrap_or_default();
        let matching = query.get("resourceVersionMatch").unwrap_or_default();
        let continue_token = query.get("continue").filter(|token| !token.is_empty()).map(str::to_owned);
        let send_initial_events = query.optional_flag("sendInitialEvents");
        let limit = query.number("limit")?.unwrap_or(0).max(0) as usize;
        let causes = if watch {
            check_watch(matching, send_initial_events, continue_token.is_some())
        } else {
            check_list(matching, revision_text, continue_token.is_some(), send_initial_events)
        };
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes));
        }
        let revision = parse_revision(revision_text)?;
        let at = match (revision_text, matching, revision) {
            ("", _, _) => At::MostRecent,
            (_, "Exact", revision) => At::Exact(revision),
            ("0", _, _) => At::Any,
            // A page size with a revision and no rule for matching: the old API took it exactly.
            (_, "", revision) if limit > 0 && !watch => At::Exact(revision),
            (_, _, revision) => At::NotOlderThan(revision),
        };
        Ok(ListOptions {
            labels,
            fields,
            at,
            resource_version: revision_text.to_owned(),
            limit,
            continue_token,
            timeout: query
                .number("timeoutSeconds")?
                .filter(|s| *s > 0)
                .map(|s| Duration::from_secs(s as u64)),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
        })
    }
}

pub fn parse_revision(text: &str) -> Result<Revision, Status> {
    if text.is_empty() {
        return Ok(Revision::ZERO);
    }
    Revision::parse(text).ok_or_else(|| {
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: \
             invalid syntax"
        ))
    })
}

fn forbidden(field: &str, detail: &str) -> Cause {
    Cause::forbidden(field, detail)
}

fn check_match_value(matching: &str, valid: &[&str]) -> Option<Cause> {
    (!matching.is_empty() && !valid.contains(&matching))
        .then(|| Cause::not_supported("resourceVersionMatch", &Value::from(matching), valid))
}

fn check_list(matching: &str, revision: &str, continuing: bool, initial_events: Option<bool>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if initial_events.is_some() {
        causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        return causes;
    }
    if !matching.is_empty() {
        if revision.is_empty() {
            causes.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if continuing {
            causes.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        causes.extend(check_match_value(matching, &["Exact", "NotOlderThan", ""]));
        if matching == "Exact" && revision == "0" {
            causes.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    causes
}

fn check_watch(matching: &str, initial_events: Option<bool>, continuing: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    match initial_events {
        Some(_) if matching.is_empty() => causes.push(forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        Some(_) => {
            if matching != "NotOlderThan" {
                causes.push(forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            causes.extend(check_match_value(matching, &["NotOlderThan"]));
        }
        None if !matching.is_empty() => causes.push(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        None => {}
    }
    if continuing {
        let why = "resourceVersionMatch is forbidden when continue is provided";
        causes.push(forbidden("resourceVersionMatch", why));
    }
    causes
}
