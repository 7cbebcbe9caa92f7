//! URLs.

use std::sync::Arc;

use super::strings::text;
use crate::{
    error::{Eval, EvalError},
    functions::Functions,
    url::Url,
    value::{Map, Opaque, Value},
};

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("url", "string_to_url", "(string) kubernetes.URL", |_, args| {
            let url = Url::parse(text(args, 0)?).map_err(|reason| {
                EvalError::invalid(format!("URL parse error during conversion from string: {reason}"))
            })?;
            Ok(Value::Opaque(Opaque::Url(Arc::new(url))))
        }),
        ("getScheme", "url_get_scheme", "kubernetes.URL.() string", |_, args| {
            Ok(Value::string(url(args)?.scheme.as_str()))
        }),
        ("getHost", "url_get_host", "kubernetes.URL.() string", |_, args| {
            Ok(Value::string(url(args)?.host.as_str()))
        }),
        ("getHostname", "url_get_hostname", "kubernetes.URL.() string", |_, args| {
            Ok(Value::string(url(args)?.hostname()))
        }),
        ("getPort", "url_get_port", "kubernetes.URL.() string", |_, args| {
            Ok(Value::string(url(args)?.port()))
        }),
        ("getEscapedPath", "url_get_escaped_path", "kubernetes.URL.() string", |_, args| {
            Ok(Value::string(url(args)?.escaped_path()))
        }),
        ("getQuery", "url_get_query", "kubernetes.URL.() map(string, list(string))", |_, args| {
            let parameters = url(args)?.query().into_iter();
            Ok(Value::Map(Map::new(
                parameters.map(|(key, values)| (Value::string(key), Value::strings(values))),
            )))
        }),
        ("isURL", "is_url_string", "(string) bool", |_, args| {
            Ok(Value::Bool(Url::check_request_uri(text(args, 0)?).is_ok()))
        }),
    ]);
}

fn url<'v>(args: &'v [Value<'_>]) -> Eval<&'v Url> {
    match args.first() {
        Some(Value::Opaque(Opaque::Url(url))) => Ok(url),
        _ => Err(EvalError::no_such_overload()),
    }
}
