//! Two answers to the same request: where they differ in what a client can rely on.
//!
//! Values that every server chooses by itself (UIDs, resource versions, generated names) need not be equal, but
//! they must relate in the same way: what is the same on one server is the same on the other, through all rows of
//! a scenario. Times the server sets must be in the same form and be about now.

use std::collections::HashMap;

use http::HeaderMap;
use serde_json::Value;

/// One place where the answers are not the same.
pub struct Difference {
    /// `code KUBE HANSE` (nothing else is compared then), `header NAME`, or a path into the body.
    pub place: String,
    pub kube: String,
    pub hanse: String,
}

/// What a request came back with.
pub struct Reply {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Body,
}

pub enum Body {
    Json(Value),
    Text(String),
}

/// Headers that clients act on.
const HEADERS: [&str; 4] = ["content-type", "retry-after", "warning", "location"];
/// Longest text of a value that is shown.
const SHOWN: usize = 600;

/// Which value of Hanse stands for which of the real server; one to one.
#[derive(Default)]
pub struct Relation {
    to_hanse: HashMap<String, String>,
    to_kube: HashMap<String, String>,
}

impl Relation {
    /// True if the two have always stood for each other, or now begin to.
    fn bind(&mut self, kube: &str, hanse: &str) -> bool {
        match (self.to_hanse.get(kube), self.to_kube.get(hanse)) {
            (Some(known), _) => known == hanse,
            (None, Some(_)) => false,
            (None, None) => {
                self.to_hanse.insert(kube.into(), hanse.into());
                self.to_kube.insert(hanse.into(), kube.into());
                true
            }
        }
    }

    /// A key of the real server, as it would be in Hanse.
    fn translate(&self, key: &str) -> String {
        match key.strip_prefix("k:{\"uid\":\"").and_then(|rest| rest.strip_suffix("\"}")) {
            Some(uid) => match self.to_hanse.get(uid) {
                Some(hanse) => format!("k:{{\"uid\":\"{hanse}\"}}"),
                None => key.to_owned(),
            },
            None => key.to_owned(),
        }
    }

    fn knows(&self, kube: &str, hanse: &str) -> bool {
        self.to_hanse.get(kube).is_some_and(|known| known == hanse)
    }
}

/// Compares the replies to one row, and remembers in `relation` what stands for what.
pub fn compare(relation: &mut Relation, now: i64, kube: &Reply, hanse: &Reply) -> Vec<Difference> {
    let mut walk = Walk { relation, now, differences: Vec::new() };
    if kube.code != hanse.code {
        walk.differ(&format!("code {} {}", kube.code, hanse.code), &kube.body, &hanse.body);
        return walk.differences;
    }
    for name in HEADERS {
        walk.header(name, &kube.headers, &hanse.headers);
    }
    match (&kube.body, &hanse.body) {
        (Body::Json(kube), Body::Json(hanse)) => walk.value("", kube, hanse),
        (Body::Text(kube), Body::Text(hanse)) if walk.same_text(kube, hanse) => {}
        (kube, hanse) => walk.differ("body", kube, hanse),
    }
    walk.differences
}

impl std::fmt::Display for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Body::Json(value) => value.fmt(f),
            Body::Text(text) => write!(f, "{text:?}"),
        }
    }
}

fn are_close(kube: &str, hanse: &str) -> bool {
    let seconds = |text: &str| text.parse::<jiff::Timestamp>().map(|time| time.as_second());
    match (seconds(kube), seconds(hanse)) {
        (Ok(kube), Ok(hanse)) => (kube - hanse).abs() < 10,
        _ => false,
    }
}

/// A token, or the name of one.
fn is_token(text: &str) -> bool {
    text.starts_with("eyJ") && text.split('.').count() == 3 || text.starts_with("JTI=")
}

struct Walk<'a> {
    relation: &'a mut Relation,
    now: i64,
    differences: Vec<Difference>,
}

impl Walk<'_> {
    fn differ(&mut self, place: &str, kube: impl ToString, hanse: impl ToString) {
        let place = if place.is_empty() { "." } else { place };
        self.differences.push(Difference {
            place: place.into(),
            kube: shorten(kube.to_string()),
            hanse: shorten(hanse.to_string()),
        });
    }

    fn header(&mut self, name: &str, kube: &HeaderMap, hanse: &HeaderMap) {
        let values = |headers: &HeaderMap| -> Vec<String> {
            headers
                .get_all(name)
                .iter()
                .map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned())
                .collect()
        };
        let (kube, hanse) = (values(kube), values(hanse));
        let same = kube.len() == hanse.len() && kube.iter().zip(&hanse).all(|(k, h)| self.same_text(k, h));
        if !same {
            self.differ(&format!("header {name}"), format!("{kube:?}"), format!("{hanse:?}"));
        }
    }

    fn value(&mut self, place: &str, kube: &Value, hanse: &Value) {
        match (kube, hanse) {
            (Value::Object(k), Value::Object(h)) => {
                // Items of some lists are named by a UID in `managedFields`.
                let named: Vec<String> = k.keys().map(|key| self.relation.translate(key)).collect();
                for ((key, value), named) in k.iter().zip(&named) {
                    let below = below(place, key);
                    match h.get(named) {
                        Some(other) if is_moment(kube, place, key) => self.moment(&below, value, other),
                        Some(other) => self.value(&below, value, other),
                        None => self.differ(&below, value, "(absent)"),
                    }
                }
                for (key, value) in h.iter().filter(|(key, _)| !named.contains(key)) {
                    self.differ(&below(place, key), "(absent)", value);
                }
            }
            (Value::Array(k), Value::Array(h)) => {
                // Managers are listed by the second in which they wrote, which differs from server to server.
                let by_time = place.ends_with(".managedFields");
                let sorted;
                let (k, h) = match by_time {
                    true => {
                        sorted = (by_manager(k), by_manager(h));
                        (&sorted.0, &sorted.1)
                    }
                    false => (k, h),
                };
                for at in 0..k.len().max(h.len()) {
                    let below = format!("{place}[{at}]");
                    match (k.get(at), h.get(at)) {
                        (Some(kube), Some(hanse)) => self.value(&below, kube, hanse),
                        (Some(kube), None) => self.differ(&below, kube, "(absent)"),
                        (None, Some(hanse)) => self.differ(&below, "(absent)", hanse),
                        (None, None) => {}
                    }
                }
            }
            (Value::String(k), Value::String(h)) => {
                let same = match place.rsplit('.').next() {
                    Some("uid") if !k.is_empty() && !h.is_empty() => k == h || self.relation.bind(k, h),
                    Some("resourceVersion") => self.same_revision(k, h),
                    Some("continue") => k.is_empty() == h.is_empty(),
                    // Some time after the request came, which was not in the same moment.
                    Some("expirationTimestamp") => are_close(k, h),
                    // Signed by each with its own key, and named by an id of its own.
                    _ if is_token(k) && is_token(h) => self.relation.bind(k, h),
                    Some(last) if last.starts_with("cells[") => {
                        self.same_text(k, h) || is_age(k) && is_age(h)
                    }
                    _ => self.same_text(k, h),
                };
                if !same {
                    self.differ(place, kube, hanse);
                }
            }
            (kube, hanse) if kube == hanse => {}
            (kube, hanse) => self.differ(place, kube, hanse),
        }
    }

    fn same_revision(&mut self, kube: &str, hanse: &str) -> bool {
        let chosen = |text: &str| text.parse::<u64>().is_ok_and(|it| it > 0);
        kube == hanse && !chosen(kube) || chosen(kube) && chosen(hanse) && self.relation.bind(kube, hanse)
    }

    /// The revision of a list or a bookmark: some moment not before the last change, so it relates to nothing.
    fn moment(&mut self, place: &str, kube: &Value, hanse: &Value) {
        let is_revision = |value: &Value| value.as_str().is_some_and(|text| text.parse::<u64>().is_ok());
        if !(is_revision(kube) && is_revision(hanse)) {
            self.value(place, kube, hanse);
        }
    }

    /// Equal, but for values in it that stand for each other and for times of about now.
    fn same_text(&mut self, kube: &str, hanse: &str) -> bool {
        if kube == hanse {
            return true;
        }
        let (kube, hanse) = (words(kube), words(hanse));
        kube.len() == hanse.len()
            && kube.iter().zip(&hanse).enumerate().all(|(at, (k, h))| {
                // The revision a server is at belongs to it alone.
                let current = at >= 2 && kube[at - 2] == "current";
                k == h
                    || self.relation.knows(k, h)
                    || are_chosen(k, h) && self.relation.bind(k, h)
                    || time_form(k) == time_form(h) && self.is_about_now(k) && self.is_about_now(h)
                    || current && k.parse::<u64>().is_ok() && h.parse::<u64>().is_ok()
            })
    }

    fn is_about_now(&self, text: &str) -> bool {
        const NEAR_SECONDS: i64 = 180;
        text.parse::<jiff::Timestamp>().is_ok_and(|time| (time.as_second() - self.now).abs() < NEAR_SECONDS)
    }
}

/// Lists, tables and bookmarks stand at a revision of the whole server.
fn is_moment(parent: &Value, place: &str, key: &str) -> bool {
    let in_list = parent.get("resourceVersion").is_some() && parent.get("name").is_none();
    key == "resourceVersion" && in_list && place.ends_with("metadata")
}

fn by_manager(entries: &[Value]) -> Vec<Value> {
    let mut entries = entries.to_vec();
    entries.sort_by_cached_key(|entry| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        ["manager", "operation", "subresource", "apiVersion"].map(text)
    });
    entries
}

fn below(place: &str, key: &str) -> String {
    let plain = key.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '/' | ':'));
    if plain { format!("{place}.{key}") } else { format!("{place}.{key:?}") }
}

/// Runs of what names, numbers and times are made of, and what stands between them.
fn words(text: &str) -> Vec<&str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let mut words = Vec::new();
    let mut start = 0;
    let mut last: Option<bool> = None;
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    for (position, (at, c)) in chars.iter().enumerate() {
        // A colon or a dot between digits belongs to a time.
        let digit = |position: Option<usize>| {
            position.and_then(|it| chars.get(it)).is_some_and(|(_, c)| c.is_ascii_digit())
        };
        let in_time = matches!(c, ':' | '.') && digit(position.checked_sub(1)) && digit(Some(position + 1));
        let here = inside(*c) || in_time;
        if last.is_some_and(|last| last != here) {
            words.push(&text[start..*at]);
            start = *at;
        }
        last = Some(here);
    }
    words.push(&text[start..]);
    words
}

fn is_uid(text: &str) -> bool {
    let hex = |part: &str, len: usize| part.len() == len && part.chars().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split('-').collect();
    parts.len() == 5 && parts.iter().zip([8, 4, 4, 4, 12]).all(|(part, len)| hex(part, len))
}

/// Values that a server chooses by itself: UIDs, hashes of certificates, generated names.
fn are_chosen(kube: &str, hanse: &str) -> bool {
    let is_hash = |text: &str| text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
    is_uid(kube) && is_uid(hanse) || is_hash(kube) && is_hash(hanse) || are_generated(kube, hanse)
}

/// Two names made of one prefix, as `generateName` asks for.
fn are_generated(kube: &str, hanse: &str) -> bool {
    let random = |text: &str| text.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte));
    let split = |text| Some(str::split_at(text, str::len(text).checked_sub(5)?));
    let (Some((prefix, one)), Some((same, other))) = (split(kube), split(hanse)) else { return false };
    !prefix.is_empty() && prefix == same && random(one) && random(other)
}

/// `2026-01-02T03:04:05Z` is `0000-00-00T00:00:00Z`.
fn time_form(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// An age in a table, such as `3s` or `2m10s`.
fn is_age(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h' | 'd' | 'y'))
}

pub fn shorten(mut text: String) -> String {
    if text.len() > SHOWN {
        let end = (0..SHOWN).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_700_000_000; // 2023-11-14T22:13:20Z

    fn places(relation: &mut Relation, kube: Value, hanse: Value) -> Vec<String> {
        let reply = |body| Reply { code: 200, headers: HeaderMap::new(), body: Body::Json(body) };
        let differences = compare(relation, NOW, &reply(kube), &reply(hanse));
        differences.into_iter().map(|it| it.place).collect()
    }

    fn object(name: &str, uid: &str, revision: &str) -> Value {
        json!({"metadata": {"name": name, "uid": uid, "resourceVersion": revision}})
    }

    #[test]
    fn what_the_server_chooses_must_relate_in_the_same_way() {
        let (one, two) = ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222");
        let relation = &mut Relation::default();
        assert_eq!(places(relation, object("a", one, "5"), object("a", two, "900")), [""; 0]);
        assert_eq!(places(relation, object("a", one, "5"), object("a", two, "900")), [""; 0]);
        assert_eq!(
            places(relation, object("a", one, "6"), object("a", two, "900")),
            [".metadata.resourceVersion"]
        );
        let told = |uid: &str, revision: &str| json!({"message": format!("uid {uid} at {revision}, gone")});
        assert_eq!(places(relation, told(one, "5"), told(two, "900")), [""; 0]);
        assert_eq!(places(relation, told(one, "7"), told(two, "900")), [".message"]);
    }

    #[test]
    fn the_revision_of_a_list_is_any_moment() {
        let list = |revision: &str| json!({"metadata": {"resourceVersion": revision}, "items": []});
        let relation = &mut Relation::default();
        assert_eq!(places(relation, list("5"), list("900")), [""; 0]);
        assert_eq!(places(relation, list("6"), list("900")), [""; 0]);
        assert_eq!(places(relation, list("6"), list("")), [".metadata.resourceVersion"]);
    }

    #[test]
    fn times_of_now_are_equal_in_form() {
        let time = |text: &str| json!({"metadata": {"creationTimestamp": text}});
        let same = |kube, hanse| places(&mut Relation::default(), time(kube), time(hanse)).is_empty();
        assert!(same("2023-11-14T22:13:20Z", "2023-11-14T22:13:25Z"));
        assert!(!same("2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000000Z"));
        assert!(!same("2023-11-14T22:13:20Z", "2003-11-14T22:13:20Z"));
        assert!(!same("2001-01-01T00:00:00Z", "2001-01-01T00:00:01Z"));
    }

    #[test]
    fn generated_names_and_ages_may_differ_and_nothing_else() {
        let named = |name: &str| json!({"message": format!("{name:?} exists")});
        let relation = &mut Relation::default();
        assert_eq!(places(relation, named("a-bcdfg"), named("a-xz245")), [""; 0]);
        assert_eq!(places(relation, named("a-bcdfg"), named("b-xz245")), [".message"]);
        let row = |cell: &str| json!({"cells": ["a", cell], "text": cell});
        assert_eq!(places(relation, row("3s"), row("2m10s")), [".text"]);
        let (kube, hanse) = (json!({"a": 1}), json!({"b": [2]}));
        assert_eq!(places(relation, kube, hanse), [".a", ".b"]);
    }
}
