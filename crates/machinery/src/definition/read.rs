//! Reads a definition from its tree. What has another type than upstream's is taken as absent.

use serde_json::{Map, Value};

use super::{
    Column, Conversion, Definition, Names, Scale, ServiceReference, Subresources, Version, WebhookClient,
};
use crate::{resource::Tree, structural::Structural};

impl Definition {
    pub fn read(tree: &Tree) -> Self {
        let empty = Map::new();
        let member = |key: &str| tree.get(key).and_then(Value::as_object).unwrap_or(&empty);
        let spec = Reader(member("spec"));
        Self {
            name: Reader(member("metadata")).text("name"),
            group: spec.text("group"),
            names: spec.object("names").map(|names| names.names()).unwrap_or_default(),
            scope: spec.text("scope"),
            versions: spec.objects("versions").map(|version| version.version()).collect(),
            conversion: spec.object("conversion").map(|conversion| conversion.conversion()),
            preserve_unknown_fields: spec.flag("preserveUnknownFields"),
        }
    }
}

impl Names {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub fn read(names: Option<&Value>) -> Self {
        names.and_then(Value::as_object).map(|names| Reader(names).names()).unwrap_or_default()
    }
}

pub struct Reader<'t>(pub &'t Tree);

impl<'t> Reader<'t> {
    pub fn text(&self, key: &str) -> String {
        self.optional_text(key).unwrap_or_default()
    }

    pub fn optional_text(&self, key: &str) -> Option<String> {
        self.0.get(key).and_then(Value::as_str).map(str::to_owned)
    }

    fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn object(&self, key: &str) -> Option<Reader<'t>> {
        self.0.get(key).and_then(Value::as_object).map(Reader)
    }

    pub fn objects(&self, key: &str) -> impl Iterator<Item = Reader<'t>> {
        self.0
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .map(Reader)
    }

    pub fn texts(&self, key: &str) -> Vec<String> {
        let items = self.0.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn names(&self) -> Names {
        Names {
            plural: self.text("plural"),
            singular: self.text("singular"),
            kind: self.text("kind"),
            list_kind: self.text("listKind"),
            short_names: self.texts("shortNames"),
            categories: self.texts("categories"),
        }
    }

    fn version(&self) -> Version {
        Version {
            name: self.text("name"),
            served: self.flag("served"),
            storage: self.flag("storage"),
            deprecated: self.flag("deprecated"),
            deprecation_warning: self.optional_text("deprecationWarning"),
            schema: self.object("schema").map(|schema| {
                schema.0.get("openAPIV3Schema").filter(|schema| schema.is_object()).map(Structural::read)
            }),
            subresources: self.object("subresources").map(|subresources| Subresources {
                status: subresources.object("status").is_some(),
                scale: subresources.object("scale").map(|scale| Scale {
                    spec_replicas: scale.text("specReplicasPath"),
                    status_replicas: scale.text("statusReplicasPath"),
                    label_selector: scale.optional_text("labelSelectorPath"),
                }),
            }),
            columns: self.objects("additionalPrinterColumns").map(|column| column.column()).collect(),
            selectable: self.objects("selectableFields").map(|field| field.text("jsonPath")).collect(),
        }
    }

    fn column(&self) -> Column {
        let priority = self.0.get("priority").and_then(Value::as_i64).unwrap_or(0);
        Column {
            name: self.text("name"),
            type_name: self.text("type"),
            format: self.text("format"),
            description: self.text("description"),
            priority: i32::try_from(priority).unwrap_or(0),
            json_path: self.text("jsonPath"),
        }
    }

    fn conversion(&self) -> Conversion {
        let webhook = self.object("webhook");
        Conversion {
            strategy: self.text("strategy"),
            client: webhook.as_ref().and_then(|webhook| webhook.object("clientConfig")).map(|client| {
                WebhookClient {
                    url: client.optional_text("url"),
                    service: client.object("service").map(|service| ServiceReference {
                        namespace: service.text("namespace"),
                        name: service.text("name"),
                        path: service.optional_text("path"),
                        port: service.0.get("port").and_then(Value::as_i64).unwrap_or(0),
                    }),
                    ca_bundle: client.text("caBundle"),
                }
            }),
            review_versions: webhook
                .map(|webhook| webhook.texts("conversionReviewVersions"))
                .unwrap_or_default(),
        }
    }
}
