//! Protobuf bodies by hand: `protobuf v1 ConfigMap { 1 { 1 "name" } 2 { 1 "key" 2 "value" } 4 1 }`.
//!
//! A field is its number followed by text, a whole number or a message. The result is in the envelope that
//! Kubernetes' clients send.

use anyhow::{Context, Result, bail};

const MAGIC: &[u8] = b"k8s\0";

pub fn encode(text: &str) -> Result<Vec<u8>> {
    let mut tokens = tokens(text)?.into_iter();
    let mut word = || match tokens.next() {
        Some(Token::Word(word)) => Ok(word),
        _ => bail!("protobuf needs an API version and a kind"),
    };
    word()?;
    let (version, kind) = (word()?, word()?);
    let Some(Token::Open) = tokens.next() else { bail!("a message begins with a brace") };
    let raw = message(&mut tokens)?;
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut envelope = MAGIC.to_vec();
    put_bytes(&mut envelope, 1, &type_meta);
    put_bytes(&mut envelope, 2, &raw);
    Ok(envelope)
}

enum Token {
    Word(String),
    Text(String),
    Open,
    Close,
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '{' | '}' => {
                tokens.push(if first == '{' { Token::Open } else { Token::Close });
                1
            }
            '"' => {
                let end = rest[1..].find('"').context("a text does not end")? + 2;
                tokens.push(Token::Text(rest[1..end - 1].to_owned()));
                end
            }
            _ => {
                let end = rest.find([' ', '\n', '{', '}']).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_owned()));
                end
            }
        };
        rest = rest[end..].trim_start();
    }
    Ok(tokens)
}

fn message(tokens: &mut impl Iterator<Item = Token>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let number: u64 = match tokens.next() {
            Some(Token::Word(word)) => word.parse()?,
            Some(Token::Close) => return Ok(bytes),
            _ => bail!("a field begins with its number"),
        };
        match tokens.next() {
            Some(Token::Text(text)) => put_bytes(&mut bytes, number, text.as_bytes()),
            Some(Token::Open) => put_bytes(&mut bytes, number, &message(tokens)?),
            Some(Token::Word(word)) => {
                put_varint(&mut bytes, number << 3);
                put_varint(&mut bytes, word.parse()?);
            }
            _ => bail!("field {number} has no value"),
        }
    }
}

fn put_bytes(bytes: &mut Vec<u8>, number: u64, value: &[u8]) {
    put_varint(bytes, number << 3 | 2);
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
