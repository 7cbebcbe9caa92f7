//! From a URL to what is asked for: one descriptor for every kind, no router.

use std::borrow::Cow;

use http::Method;
use machinery::status::Status;
use percent_encoding::percent_decode_str;

use crate::operate;

/// What a request is about, as authorization sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The workspace named in the path, if one is; `root` for what is of the whole server.
    pub workspace: Option<String>,
    /// The path below the workspace.
    pub path: String,
    pub target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Not an API object: health, version, discovery, metrics. The verb is the lower-case method.
    NonResource,
    Resource(ResourceTarget),
}

/// A path to objects: `/apis/<group>/<version>[/namespaces/<ns>]/<resource>[/<name>[/<subresource>]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTarget {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    /// Empty when the path names none.
    pub namespace: String,
    pub resource: String,
    /// Empty for a collection.
    pub name: String,
    pub subresource: String,
}

/// What is done, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    pub fn is_write(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl RequestInfo {
    pub fn parse(method: &Method, path: &str, watch: bool) -> Result<RequestInfo, Status> {
        let (workspace, path) = split_workspace(path)?;
        // What the server does for all is root's to show.
        let of_server = is_of_the_server(path) || operate::is_of_server(path);
        let workspace = workspace.or_else(|| of_server.then(|| api::ROOT.to_owned()));
        let target = match parse_resource(method, path, watch)? {
            Some(target) => Target::Resource(target),
            None => Target::NonResource,
        };
        Ok(RequestInfo { workspace, path: path.to_owned(), target })
    }
}

fn is_of_the_server(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "/metrics" | "/usage")
}

/// `/clusters/<name>/rest` names its workspace.
fn split_workspace(path: &str) -> Result<(Option<String>, &str), Status> {
    let Some(below) = path.strip_prefix("/clusters/") else {
        return Ok((None, path));
    };
    let (name, rest) = match below.find('/') {
        Some(end) => (&below[..end], &below[end..]),
        None => (below, "/"),
    };
    Ok((Some(decode(name)?.into_owned()), rest))
}

fn decode(segment: &str) -> Result<Cow<'_, str>, Status> {
    percent_decode_str(segment).decode_utf8().map_err(|_| Status::bad_request("the path is not UTF-8"))
}

fn parse_resource(method: &Method, path: &str, watch: bool) -> Result<Option<ResourceTarget>, Status> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.split('/').any(str::is_empty) && path.starts_with("api") {
        return Err(Status::no_such_path());
    }
    let mut segments = path.split('/').map(decode);
    let mut next = || segments.next().transpose();
    let Some(root) = next()? else { return Ok(None) };
    let group = match &*root {
        "api" => Cow::Borrowed(""),
        "apis" => match next()? {
            Some(group) => group,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let Some(version) = next()? else { return Ok(None) };
    let Some(mut resource) = next()? else { return Ok(None) };
    let mut verb = verb_of(method)?;
    // The old form `/api/v1/watch/…`; new clients ask with `?watch=true`.
    let mut legacy_watch = false;
    if resource == "watch" && method == Method::GET {
        legacy_watch = true;
        match next()? {
            Some(first) => resource = first,
            None => return Ok(None),
        }
    }
    let mut namespace = Cow::Borrowed("");
    let mut name = Cow::Borrowed("");
    let mut subresource = Cow::Borrowed("");
    if resource == "namespaces" {
        if let Some(first) = next()? {
            match next()? {
                None => name = first,
                // `status` and `finalize` belong to the namespace itself; anything else lives in it.
                Some(second) if second == "status" || second == "finalize" => {
                    name = first;
                    subresource = second;
                }
                Some(second) => {
                    namespace = first;
                    resource = second;
                    name = next()?.unwrap_or_default();
                    subresource = next()?.unwrap_or_default();
                }
            }
        }
    } else {
        name = next()?.unwrap_or_default();
        subresource = next()?.unwrap_or_default();
    }
    if next()?.is_some() {
        return Err(Status::no_such_path());
    }
    if name.is_empty() {
        verb = match verb {
            Verb::Get if watch || legacy_watch => Verb::Watch,
            Verb::Get => Verb::List,
            Verb::Delete => Verb::DeleteCollection,
            other => other,
        };
    } else if legacy_watch {
        verb = Verb::Watch;
    }
    Ok(Some(ResourceTarget {
        verb,
        group: group.into_owned(),
        version: version.into_owned(),
        namespace: namespace.into_owned(),
        resource: resource.into_owned(),
        name: name.into_owned(),
        subresource: subresource.into_owned(),
    }))
}

fn verb_of(method: &Method) -> Result<Verb, Status> {
    Ok(match *method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => return Err(Status::method_not_allowed()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: Method, path: &str) -> ResourceTarget {
        match RequestInfo::parse(&method, path, false).unwrap().target {
            Target::Resource(target) => target,
            Target::NonResource => panic!("{path} is no resource"),
        }
    }

    #[test]
    fn paths_to_objects() {
        let rows = [
            ("/api/v1/namespaces", "list  v1 - namespaces - -"),
            ("/api/v1/namespaces/a", "get  v1 - namespaces a -"),
            ("/api/v1/namespaces/a/status", "get  v1 - namespaces a status"),
            ("/api/v1/namespaces/a/configmaps", "list  v1 a configmaps - -"),
            ("/api/v1/namespaces/a/configmaps/b", "get  v1 a configmaps b -"),
            ("/apis/g/v2/things/x/scale", "get g v2 - things x scale"),
            ("/apis/g/v2/namespaces/n/things/x/scale", "get g v2 n things x scale"),
            ("/clusters/w/api/v1/configmaps", "list  v1 - configmaps - -"),
            ("/api/v1/watch/namespaces/n/configmaps/c", "watch  v1 n configmaps c -"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aa",
                "get rbac.authorization.k8s.io v1 - clusterroles system:a -",
            ),
        ];
        for (path, expected) in rows {
            let t = target(Method::GET, path);
            let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            let seen = format!(
                "{} {} {} {} {} {} {}",
                t.verb.as_str(),
                t.group,
                t.version,
                dash(&t.namespace),
                t.resource,
                dash(&t.name),
                dash(&t.subresource)
            );
            assert_eq!(seen, expected, "{path}");
        }
    }

    #[test]
    fn paths_that_are_not_objects() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/g",
            "/apis/g/v1",
            "/version",
            "/livez/ping",
            "/clusters/w",
        ] {
            let info = RequestInfo::parse(&Method::GET, path, false).unwrap();
            assert_eq!(info.target, Target::NonResource, "{path}");
        }
    }

    #[test]
    fn the_workspace_is_cut_off() {
        let info = RequestInfo::parse(&Method::GET, "/clusters/team-a/version", false).unwrap();
        assert_eq!((info.workspace.as_deref(), info.path.as_str()), (Some("team-a"), "/version"));
    }

    #[test]
    fn too_long_paths_and_bad_bytes_are_refused() {
        assert_eq!(RequestInfo::parse(&Method::GET, "/api/v1/a/b/c/d", false).unwrap_err().code(), 404);
        assert_eq!(
            RequestInfo::parse(&Method::GET, "/api/v1/configmaps/%ff", false).unwrap_err().code(),
            400
        );
    }
}
