//! Reads the table. It is part of the program, so what does not fit in it is a mistake of the generator: such lines
//! are left out, and a test says that there are none.

use super::{Alias, Field, ListType, Member, Message, MessageId, PatchStrategy, Type, Types};

struct Draft {
    name: &'static str,
    atomic: bool,
    lines: Vec<&'static str>,
}

pub(super) fn read(text: &'static str) -> Types {
    let (mut drafts, mut aliases) = (Vec::<Draft>::new(), Vec::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('>') {
            let (name, flag) = name.split_once(' ').unwrap_or((name, ""));
            drafts.push(Draft { name, atomic: flag == "atomic", lines: Vec::new() });
        } else if let Some(alias) = line.strip_prefix('=') {
            aliases.extend(read_alias(alias));
        } else if let Some(draft) = drafts.last_mut() {
            draft.lines.push(line);
        }
    }
    aliases.sort_unstable_by_key(|alias| alias.name);
    let ids = 0..u16::try_from(drafts.len()).unwrap_or(u16::MAX);
    let mut names: Vec<_> = drafts.iter().map(|draft| draft.name).zip(ids.map(MessageId)).collect();
    names.sort_unstable_by_key(|(name, _)| *name);
    let mut types = Types { messages: Vec::new(), names, aliases };
    types.messages = drafts.iter().map(|draft| read_message(&types, draft)).collect();
    for at in 0..types.messages.len() {
        let mut members = Vec::new();
        collect_members(&types, MessageId(at as u16), &mut Vec::new(), &mut members);
        members.sort_by_key(|member: &Member| (member.name, member.through.len()));
        // As in Go, the outer of two equal names counts.
        members.dedup_by_key(|member| member.name);
        types.messages[at].members = members.into();
    }
    types
}

fn read_alias(line: &'static str) -> Option<Alias> {
    let mut words = line.splitn(3, ' ');
    let (name, target) = (words.next()?, words.next()?);
    let rest = words.next().unwrap_or_default();
    let values = rest.strip_prefix("values=").into_iter().flat_map(|values| values.split('|')).collect();
    Some(Alias { name, target, wrapped: rest == "wrapped", values })
}

fn read_message(types: &Types, draft: &Draft) -> Message {
    let fields = draft.lines.iter().filter_map(|line| read_field(types, line)).collect();
    Message { name: draft.name, atomic: draft.atomic, fields, members: Box::default() }
}

fn collect_members(types: &Types, id: MessageId, through: &mut Vec<MessageId>, members: &mut Vec<Member>) {
    for (index, field) in types.message(id).fields.iter().enumerate() {
        match field.ty {
            Type::Message(inlined) if field.inline => {
                through.push(inlined);
                collect_members(types, inlined, through, members);
                through.pop();
            }
            _ => members.push(Member {
                name: field.name,
                holder: id,
                index: index as u16,
                through: through.as_slice().into(),
            }),
        }
    }
}

/// `name number type flags attribute=value…`
fn read_field(types: &Types, line: &'static str) -> Option<Field> {
    // A default comes last and may hold spaces.
    let (line, default) = match line.split_once(" default=") {
        Some((line, default)) => (line, Some(default)),
        None => (line, None),
    };
    let mut words = line.split(' ').peekable();
    let (name, number, go_type) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let flags = words.next_if(|word| !word.contains('=')).unwrap_or_default();
    let attributes: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
    let attribute =
        |wanted: &str| attributes.iter().find(|(word, _)| *word == wanted).map(|(_, value)| *value);
    let (omit_empty, omit_zero) = (flags.contains('o'), flags.contains('z'));
    let optional = flags.contains('?') || (omit_empty || omit_zero) && !flags.contains('!');
    let inline = name == "+";
    Some(Field {
        name: if inline { "" } else { name },
        number,
        ty: read_type(types, go_type.trim_start_matches('*'))?,
        go_type,
        pointer: go_type.starts_with('*'),
        inline,
        omit_empty,
        omit_zero,
        required: !optional && !inline,
        list_type: attribute("list").and_then(read_list_type),
        map_keys: attribute("keys").into_iter().flat_map(|keys| keys.split(',')).collect(),
        map_type: attribute("map").or(attribute("struct")),
        patch_strategy: read_strategy(attribute("patch").unwrap_or_default()),
        patch_merge_key: attribute("key"),
        default,
    })
}

fn read_list_type(text: &str) -> Option<ListType> {
    [ListType::Atomic, ListType::Set, ListType::Map].into_iter().find(|list| list.as_str() == text)
}

fn read_strategy(text: &'static str) -> PatchStrategy {
    let has = |word| text.split(',').any(|strategy| strategy == word);
    PatchStrategy { merge: has("merge"), retain_keys: has("retainKeys"), replace: has("replace"), text }
}

fn read_type(types: &Types, go_type: &'static str) -> Option<Type> {
    let schema = || types.id("apiextensions/v1.JSONSchemaProps");
    Some(match go_type {
        "string" => Type::String,
        "[]byte" => Type::Bytes,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "float64" => Type::Float64,
        "Time" => Type::Time,
        "MicroTime" => Type::MicroTime,
        "Duration" => Type::Duration,
        "Quantity" => Type::Quantity,
        "IntOrString" => Type::IntOrString,
        "RawExtension" | "FieldsV1" | "JSON" | "Any" => Type::Raw,
        "SchemaOrBool" => Type::SchemaOrBool(schema()?),
        "SchemaOrArray" => Type::SchemaOrArray(schema()?),
        "SchemaOrStrings" => Type::SchemaOrStrings(schema()?),
        _ => return read_compound(types, go_type),
    })
}

fn read_compound(types: &Types, go_type: &'static str) -> Option<Type> {
    if let Some(element) = go_type.strip_prefix("[]") {
        return Some(Type::List(Box::new(read_type(types, element)?)));
    }
    if let Some((_, value)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return Some(Type::Map(Box::new(read_type(types, value)?)));
    }
    if let Some(id) = types.id(go_type) {
        return Some(Type::Message(id));
    }
    let alias = types.alias(go_type)?;
    match read_type(types, alias.target)? {
        Type::List(element) if alias.wrapped => Some(Type::Wrapped(element)),
        other => Some(other),
    }
}
