//! Lists by pages, and watches event by event: objects stay the bytes that came.

use std::{borrow::Cow, ops::Range, time::Duration};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Client, Error, Lines, get};

/// Objects of one page. Few enough that a page is no burden, many enough that pages are few.
const PAGE: usize = 250;
/// Longer pages are not of a cluster that can be looked after.
pub const MAX_PAGE: usize = 64 << 20;

/// One page of a list.
pub struct Page {
    bytes: Bytes,
    /// Where in `bytes` the objects are.
    items: Vec<Range<usize>>,
    pub resource_version: String,
    next: String,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(default)]
    metadata: ListMeta,
    /// What is no list has none.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
}

impl Page {
    fn read(bytes: Bytes) -> Result<Page, Error> {
        let wire: Wire<'_> =
            serde_json::from_slice(&bytes).map_err(|error| Error::Garbage(error.to_string()))?;
        if !wire.kind.ends_with("List") {
            return Err(Error::Garbage(format!("a list was expected, not {:?}", wire.kind)));
        }
        if wire.metadata.resource_version.is_empty() {
            return Err(Error::Garbage("a list without resourceVersion".into()));
        }
        let next = wire.metadata.r#continue.unwrap_or_default();
        let resource_version = wire.metadata.resource_version;
        let begin = bytes.as_ptr() as usize;
        let place = |item: &RawValue| {
            let start = item.get().as_ptr() as usize - begin;
            start..start + item.get().len()
        };
        let items = wire.items.unwrap_or_default().into_iter().map(place).collect();
        Ok(Page { items, resource_version, next, bytes })
    }

    /// The objects of this page, each as it was sent.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.items.iter().map(|place| &self.bytes[place.clone()])
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Reads a whole list, page by page; answers the revision that a watch can go on from. An expired page is an error like
/// any other: what was taken so far is not the list. How long it may become is for `take` to say.
pub async fn list_pages(
    client: &Client,
    path: &str,
    accept: &str,
    mut take: impl FnMut(&Page) -> Result<(), Error>,
) -> Result<String, Error> {
    let mut next = String::new();
    let mark = mark(path);
    loop {
        let token = match next.is_empty() {
            true => String::new(),
            false => format!("&continue={}", query_escaped(&next)),
        };
        let whole =
            client.demand(get(&format!("{path}{mark}limit={PAGE}{token}"), accept)?, MAX_PAGE).await?;
        let page = Page::read(whole.bytes)?;
        take(&page)?;
        if page.next.is_empty() {
            return Ok(page.resource_version);
        }
        next = page.next;
    }
}

/// What comes between a path, which may have a query, and more of it.
fn mark(path: &str) -> char {
    if path.contains('?') { '&' } else { '?' }
}

pub fn query_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// A watch under way.
pub struct Watching(Lines);

/// What a line of a watch says.
#[derive(Debug)]
pub enum Told<'a> {
    Put(&'a [u8]),
    Removed(&'a [u8]),
    /// Nothing happened up to here.
    Bookmark(&'a [u8]),
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl Watching {
    /// Everything after the revision `after`, for at most `lasts`; silence for longer than `idle` ends it.
    pub async fn open(
        client: &Client,
        path: &str,
        accept: &str,
        after: &str,
        lasts: Duration,
        idle: Duration,
    ) -> Result<Watching, Error> {
        let seconds = lasts.as_secs().max(1);
        let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        let after = query_escaped(after);
        let mark = mark(path);
        let request = get(&format!("{path}{mark}{query}&resourceVersion={after}"), accept)?;
        Ok(Watching(client.lines(request, idle).await?))
    }

    /// The next line; `None` when the watch has ended in order.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.0.next().await? {
                Some(line) if line.is_empty() => {}
                line => return Ok(line),
            }
        }
    }
}

/// What a line says; an `ERROR` is an error.
pub fn read_event(line: &[u8]) -> Result<Told<'_>, Error> {
    let event: Event<'_> = serde_json::from_slice(line).map_err(|error| Error::Garbage(error.to_string()))?;
    let object = event.object.get().as_bytes();
    match event.r#type.as_ref() {
        "ADDED" | "MODIFIED" => Ok(Told::Put(object)),
        "DELETED" => Ok(Told::Removed(object)),
        "BOOKMARK" => Ok(Told::Bookmark(object)),
        "ERROR" => Err(Error::told(object)),
        other => Err(Error::Garbage(format!("an event of type {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_its_objects_as_they_were_sent() {
        let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"n"},"items":[{"a": 1},{"b":2}]}"#;
        let page = Page::read(Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!((page.resource_version.as_str(), page.next.as_str()), ("7", "n"));
        assert_eq!(page.items().collect::<Vec<_>>(), [&b"{\"a\": 1}"[..], b"{\"b\":2}"]);
        let empty = r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}"#;
        assert_eq!(Page::read(Bytes::from_static(empty.as_bytes())).unwrap().items().len(), 0);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "",
            "[]",
            "<html>",
            "{}",
            r#"{"kind":"Pod","metadata":{"resourceVersion":"1"}}"#,
            r#"{"kind":"PodList","items":[]}"#,
        ] {
            assert!(Page::read(Bytes::from_static(text.as_bytes())).is_err(), "{text}");
        }
    }

    #[test]
    fn events_are_told_apart() {
        assert!(matches!(read_event(br#"{"type":"ADDED","object":{}}"#), Ok(Told::Put(b"{}"))));
        assert!(matches!(read_event(br#"{"type":"DELETED","object":{"a":1}}"#), Ok(Told::Removed(_))));
        assert!(matches!(read_event(br#"{"type":"BOOKMARK","object":{}}"#), Ok(Told::Bookmark(_))));
        let expired =
            read_event(br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"old"}}"#);
        assert!(expired.is_err_and(|error| error.is_gone()));
        for line in ["", "{}", r#"{"type":"ADDED"}"#, r#"{"type":"ODD","object":{}}"#] {
            assert!(read_event(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn tokens_survive_a_query() {
        assert_eq!(query_escaped("a+b/c=&é"), "a%2Bb%2Fc%3D%26%C3%A9");
    }
}
