//! Getting one object and listing many.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use machinery::{Object, Revision, status::Status};
use serde_json::{Map, Value, json};
use std::time::Duration;
use store::{Error, ItemKey, Listing};

use crate::{
    body::{self, Body},
    context::Context,
    hub::{store_refusal, too_large},
    options::{At, ListOptions, parse_revision},
    present::Presenter,
    selection::Selection,
    versions,
};

/// How long a reader waits for a revision that has not happened yet; as long as upstream.
const WAIT_FOR_REVISION: Duration = Duration::from_secs(3);
const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
/// About this much of a list is encoded at a time.
const CHUNK_BYTES: usize = 64 * 1024;

pub async fn get(context: &Context) -> Result<Response<Body>, Status> {
    context.presenter()?;
    let revision = parse_revision(context.query.get("resourceVersion").unwrap_or_default())?;
    wait_for(context, revision).await?;
    let name = &context.target.name;
    let Some(object) = context.get(&context.key(name)) else {
        // Who was never seen may have it.
        context.sight()?;
        return Err(Status::not_found(context.about(name)));
    };
    let object = versions::bring(&context.hub, context.space.id(), &context.resource, object).await?;
    Ok(body::encoded(StatusCode::OK, context.present(&object)?))
}

/// Waits until the workspace has reached `revision`; refuses when it does not come.
pub async fn wait_for(context: &Context, revision: Revision) -> Result<(), Status> {
    if context.is_foreign(revision) {
        return Err(Status::expired(TOO_OLD));
    }
    if context.head() >= revision {
        return Ok(());
    }
    let deadline = context.hub.env.clock.elapsed() + WAIT_FOR_REVISION;
    while context.head() < revision {
        if context.hub.env.clock.elapsed() >= deadline {
            return Err(too_large(Some(revision), context.head()));
        }
        context.hub.env.clock.sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Where a paged list goes on: the revision it stands at, the last key seen, and how many objects remain.
/// Valid on any process and peer that has the history.
struct Token {
    revision: Revision,
    after: ItemKey,
    remaining: Option<u64>,
}

impl Token {
    fn encode(&self) -> String {
        let mut token = json!({"v": 1, "rv": self.revision.as_u64(), "after": self.after.0});
        if let Some(remaining) = self.remaining {
            token["n"] = json!(remaining);
        }
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(text: &str) -> Option<Token> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        if token["v"] != 1 {
            return None;
        }
        let after = token["after"].as_str().filter(|after| after.contains('/'))?;
        Some(Token {
            revision: Revision::from_u64(token["rv"].as_u64()?)?,
            after: ItemKey(after.into()),
            remaining: token["n"].as_u64(),
        })
    }
}

pub async fn list(context: &Context) -> Result<Response<Body>, Status> {
    let presenter = context.presenter()?;
    let options = ListOptions::read(&context.query, false)?;
    let selection = Selection::new(options.labels.clone(), options.fields.clone(), &context.resource)?;
    let token = match &options.continue_token {
        Some(text) => {
            let token =
                Token::decode(text).ok_or_else(|| Status::bad_request("continue key is not valid"))?;
            if !options.resource_version.is_empty() && options.resource_version != "0" {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            Some(token)
        }
        None => None,
    };
    let warnings = context.sight()?;
    let mut listing = take_listing(context, &options, token.as_ref()).await?;
    let namespace = Some(context.target.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let after = token.as_ref().map(|token| token.after.clone());
    // One more than the page holds tells whether there is another page.
    let most = (options.limit > 0 && selection.is_everything()).then_some(options.limit + 1);
    versions::bring_listing(context, &mut listing, namespace.as_deref(), after.as_ref(), most).await?;
    let page = Page { listing, namespace, selection, presenter };
    let remaining = token.and_then(|token| token.remaining);
    let mut response = body::encoded(StatusCode::OK, page.into_body(after, options.limit, remaining));
    body::warn_once(&mut response, &warnings);
    Ok(response)
}

async fn take_listing(
    context: &Context,
    options: &ListOptions,
    token: Option<&Token>,
) -> Result<Listing, Status> {
    if let Some(token) = token {
        // Revision 0: the snapshot had expired, and the client chose to go on with the latest.
        let at = (token.revision != Revision::ZERO).then_some(token.revision);
        if context.is_foreign(token.revision) {
            return Err(expired_page(Error::Expired { oldest: context.head() }, token));
        }
        wait_for(context, token.revision).await?;
        return context.list(at).map_err(|error| expired_page(error, token));
    }
    match options.at {
        At::MostRecent | At::Any => list_at(context, None),
        At::NotOlderThan(revision) => {
            wait_for(context, revision).await?;
            list_at(context, None)
        }
        At::Exact(revision) => {
            wait_for(context, revision).await?;
            list_at(context, Some(revision))
        }
    }
}

fn list_at(context: &Context, at: Option<Revision>) -> Result<Listing, Status> {
    context.list(at).map_err(|error| match error {
        Error::Expired { .. } => Status::expired(TOO_OLD),
        other => store_refusal(other),
    })
}

fn expired_page(error: Error, token: &Token) -> Status {
    match error {
        Error::Expired { .. } => {
            let go_on = Token { revision: Revision::ZERO, after: token.after.clone(), remaining: None };
            let message = "The provided continue parameter is too old to display a consistent list result. \
                           You can start a new list without the continue parameter, or use the continue token in \
                           this response to retrieve the remainder of the results. Continuing with the provided \
                           token results in an inconsistent list - objects that were created, modified, or deleted \
                           between the time the first chunk was returned and now may show up in the list.";
            Status::expired(message).continue_with(go_on.encode())
        }
        other => store_refusal(other),
    }
}

/// What a list request goes through, object by object.
struct Page {
    listing: Listing,
    namespace: Option<String>,
    selection: Selection,
    presenter: Presenter,
}

impl Page {
    fn objects<'a>(
        &'a self,
        after: Option<&'a ItemKey>,
    ) -> impl Iterator<Item = (&'a ItemKey, &'a Arc<Object>)> {
        let all = self.listing.iter(self.namespace.as_deref(), after);
        all.filter(|(_, object)| self.selection.is_everything() || self.selection.matches(object))
    }

    fn into_body(self, after: Option<ItemKey>, limit: usize, remaining: Option<u64>) -> Body {
        if limit > 0 {
            return self.limited(after, limit, remaining);
        }
        let meta = json!({"resourceVersion": self.listing.revision.to_string()});
        self.streamed(after, &meta)
    }

    /// A page: its metadata says where to go on, so its end is found before it starts.
    fn limited(self, after: Option<ItemKey>, limit: usize, remaining: Option<u64>) -> Body {
        let mut found = self.objects(after.as_ref());
        let page: Vec<(ItemKey, Arc<Object>)> =
            found.by_ref().take(limit).map(|(item, object)| (item.clone(), object.clone())).collect();
        let more = found.next().is_some();
        drop(found);
        let mut meta = Map::new();
        meta.insert("resourceVersion".into(), json!(self.listing.revision.to_string()));
        if let Some((last, _)) = page.last().filter(|_| more) {
            // Counted once, on the first page; the rest of the pages stand at the same revision.
            let total = remaining.unwrap_or_else(|| self.objects(after.as_ref()).count() as u64);
            let left = total.saturating_sub(page.len() as u64);
            let count = self.selection.is_everything().then_some(left);
            let token = Token { revision: self.listing.revision, after: last.clone(), remaining: count };
            meta.insert("continue".into(), json!(token.encode()));
            if let Some(left) = count {
                meta.insert("remainingItemCount".into(), json!(left));
            }
        }
        let presenter = self.presenter;
        let start = presenter.list_start(&Value::Object(meta)).into_bytes();
        let mut rest = page.into_iter();
        stream_items(start, move |chunk, first| {
            let Some((_, object)) = rest.next() else { return false };
            push_item(&presenter, &object, chunk, first);
            true
        })
    }

    /// Everything from the snapshot, encoded as the socket takes it.
    fn streamed(self, after: Option<ItemKey>, meta: &Value) -> Body {
        let start = self.presenter.list_start(meta).into_bytes();
        let mut position = after;
        let mut done = false;
        let mut opening = Some(start);
        let mut first = true;
        let chunks = std::iter::from_fn(move || {
            if done {
                return None;
            }
            let mut chunk = opening.take().unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES + 4096));
            let mut last = None;
            let mut full = false;
            for (item, object) in self.objects(position.as_ref()) {
                push_item(&self.presenter, object, &mut chunk, &mut first);
                if chunk.len() >= CHUNK_BYTES {
                    last = Some(item.clone());
                    full = true;
                    break;
                }
            }
            if full {
                position = last;
            } else {
                chunk.extend_from_slice(b"]}\n");
                done = true;
            }
            Some(Bytes::from(chunk))
        });
        Body::stream(stream::iter(chunks))
    }
}

/// A list of objects that are at hand.
pub fn whole_list(presenter: &Presenter, meta: &Value, objects: &[Arc<Object>]) -> Bytes {
    let mut text = presenter.list_start(meta).into_bytes();
    let mut first = true;
    for object in objects {
        push_item(presenter, object, &mut text, &mut first);
    }
    text.extend_from_slice(b"]}\n");
    text.into()
}

fn push_item(presenter: &Presenter, object: &Object, chunk: &mut Vec<u8>, first: &mut bool) {
    if !std::mem::take(first) {
        chunk.push(b',');
    }
    presenter.item(object, chunk);
}

/// Calls `next` for item after item until it says there is none.
fn stream_items(
    start: Vec<u8>,
    mut next: impl FnMut(&mut Vec<u8>, &mut bool) -> bool + Send + 'static,
) -> Body {
    let mut opening = Some(start);
    let mut first = true;
    let mut done = false;
    let chunks = std::iter::from_fn(move || {
        if done {
            return None;
        }
        let mut chunk = opening.take().unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES + 4096));
        while chunk.len() < CHUNK_BYTES {
            if !next(&mut chunk, &mut first) {
                chunk.extend_from_slice(b"]}\n");
                done = true;
                break;
            }
        }
        Some(Bytes::from(chunk))
    });
    Body::stream(stream::iter(chunks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_and_nonsense_does_not() {
        let token = Token { revision: Revision::BASE, after: ItemKey::new("n", "x"), remaining: Some(3) };
        let again = Token::decode(&token.encode()).unwrap();
        assert_eq!(
            (again.revision, again.after, again.remaining),
            (token.revision, token.after, token.remaining)
        );
        for bad in ["", "x", "e30", "eyJ2IjoxfQ", "eyJ2IjoxLCJydiI6MX0"] {
            assert!(Token::decode(bad).is_none(), "{bad}");
        }
    }
}
