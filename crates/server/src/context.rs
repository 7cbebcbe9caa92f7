//! One request for objects of one resource, with all that is known of it.

use std::sync::Arc;

use http::HeaderMap;
use machinery::{
    resource::Resource,
    status::{About, Status},
};
use store::{Collection, Key, Span};

use crate::{
    hub::Hub,
    negotiate::{self, Shape},
    options::Query,
    present::Presenter,
    request::ResourceTarget,
    space::Space,
    user::User,
};

pub struct Context {
    pub hub: Arc<Hub>,
    pub space: Space,
    pub resource: Arc<Resource>,
    pub target: ResourceTarget,
    pub query: Query,
    pub headers: HeaderMap,
    pub user: Arc<User>,
}

impl Context {
    pub fn collection(&self) -> Collection {
        Collection::new(&self.resource.stored_group, &self.resource.plural)
    }

    pub fn key(&self, name: &str) -> Key {
        Key { collection: self.collection(), item: store::ItemKey::new(&self.target.namespace, name) }
    }

    pub fn span(&self) -> Span {
        let namespace = (!self.target.namespace.is_empty()).then(|| self.target.namespace.as_str().into());
        Span { collection: self.collection(), namespace }
    }

    pub fn about<'a>(&'a self, name: &'a str) -> About<'a> {
        About { group: &self.resource.group, resource: &self.resource.plural, name }
    }

    pub fn presenter(&self) -> Result<Presenter, Status> {
        let shape = negotiate::shape(&self.headers)?;
        let include = self.query.get("includeObject").unwrap_or_default();
        if shape == Shape::Table && !matches!(include, "" | "None" | "Metadata" | "Object") {
            return Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be \
                 'Metadata', 'Object', 'None', or empty"
            )));
        }
        Ok(self.presenter_as(shape))
    }

    pub fn presenter_as(&self, shape: Shape) -> Presenter {
        Presenter::new(self.resource.clone(), shape, &self.query, self.hub.now().as_second())
    }

    /// `dryRun=All`: everything but the commit. Anything else is refused.
    pub fn dry_run(&self) -> Result<bool, Status> {
        let mut dry = false;
        for value in self.query.all("dryRun") {
            match value {
                "" => {}
                "All" => dry = true,
                other => {
                    let cause = machinery::field_error::Cause::not_supported(
                        "dryRun",
                        &serde_json::json!([other]),
                        &["All"],
                    );
                    return Err(Status::invalid("meta.k8s.io", "CreateOptions", "", vec![cause]));
                }
            }
        }
        Ok(dry)
    }
}
