pub mod openapi {
    use serde_json::{json, Value};
    pub fn document(_: &[&machinery::resource::Resource]) -> Value { json!({}) }
}
