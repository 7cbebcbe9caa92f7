//! A conversion webhook on this machine.

use anyhow::Result;
use serde_json::{Value, json};
use testing::webhook::{self, Asked, Reply};

/// Given an object and the version it is wanted in.
pub type Convert = fn(&mut Value, &str);

pub struct Webhook {
    pub url: String,
    /// In base 64.
    pub ca_bundle: String,
    serving: webhook::Webhook,
}

/// What is `size` in `v1` is `width` in `v2`.
pub fn rename_size(object: &mut Value, wanted: &str) {
    let (from, to) = if wanted.ends_with("v2") { ("size", "width") } else { ("width", "size") };
    if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
        object["spec"][to] = value;
    }
}

/// No webhook may do this.
pub fn rename_the_object(object: &mut Value, _: &str) {
    object["metadata"]["name"] = json!("another");
}

impl Webhook {
    pub async fn start(convert: Convert) -> Result<Webhook> {
        let serving = webhook::Webhook::start(move |asked| answer(asked, convert)).await?;
        let (url, ca_bundle) = (format!("{}/convert", serving.url), serving.ca_bundle.clone());
        Ok(Webhook { url, ca_bundle, serving })
    }

    pub async fn stop(self) {
        self.serving.stop().await;
    }
}

fn answer(asked: &Asked, convert: Convert) -> Reply {
    let mut review = asked.body.clone();
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default().to_owned();
    let mut objects = review["request"]["objects"].take();
    for object in objects.as_array_mut().into_iter().flatten() {
        convert(object, &wanted);
        object["apiVersion"] = json!(wanted);
    }
    Reply::Json(json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {
            "uid": review["request"]["uid"], "convertedObjects": objects, "result": {"status": "Success"},
        },
    }))
}
