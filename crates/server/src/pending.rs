pub mod schema {
    use serde_json::Value;
    pub struct Types;
    pub struct Message;
    pub struct Conformed { pub unknown: Vec<String> }
    static TYPES: Types = Types;
    static MESSAGE: Message = Message;
    impl Types {
        pub fn builtin() -> &'static Types { &TYPES }
        pub fn get(&self, name: &str) -> Option<&Message> { (!name.is_empty()).then_some(&MESSAGE) }
    }
    pub fn conform(_: &Types, _: &Message, _: &mut Value) -> Result<Conformed, String> { Ok(Conformed { unknown: vec![] }) }
    pub fn find_duplicates(_: &[u8]) -> Vec<String> { vec![] }
}
pub mod protobuf {
    use serde_json::Value;
    pub fn decode(_: &super::schema::Types, _: &[u8]) -> Result<((), Value), String> { Err("pending".into()) }
}
pub mod strategic {
    use serde_json::Value;
    pub fn strategic_merge(_: &super::schema::Types, _: &super::schema::Message, v: &mut Value, p: Value) -> Result<(), machinery::patch::PatchError> {
        machinery::patch::merge_patch(v, p.to_string().as_bytes())
    }
}
pub mod openapi {
    use serde_json::{json, Value};
    pub fn document(_: &[&machinery::resource::Resource]) -> Value { json!({}) }
}
