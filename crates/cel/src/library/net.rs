//! Addresses and prefixes of networks.

use super::strings::text;
use crate::{
    error::{Eval, EvalError},
    functions::{Context, Functions},
    net::{Address, Prefix},
    value::{Opaque, Value},
};

macro_rules! test {
    ($test:ident) => {
        |_, args| Ok(Value::Bool(address(args, 0)?.$test()))
    };
}

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("ip", "string_to_ip", "(string) net.IP", |_, args| {
            Address::parse(text(args, 0)?).map(ip).map_err(EvalError::invalid)
        }),
        ("family", "ip_family", "net.IP.() int", |_, args| Ok(Value::Int(address(args, 0)?.family()))),
        ("ip.isCanonical", "ip_is_canonical", "(string) bool", |_, args| {
            let text = text(args, 0)?;
            let address = Address::parse(text).map_err(EvalError::invalid)?;
            Ok(Value::Bool(address.to_string() == text))
        }),
        ("isUnspecified", "ip_is_unspecified", "net.IP.() bool", test!(is_unspecified)),
        ("isLoopback", "ip_is_loopback", "net.IP.() bool", test!(is_loopback)),
        (
            "isLinkLocalMulticast",
            "ip_is_link_local_multicast",
            "net.IP.() bool",
            test!(is_link_local_multicast),
        ),
        ("isLinkLocalUnicast", "ip_is_link_local_unicast", "net.IP.() bool", test!(is_link_local_unicast)),
        ("isGlobalUnicast", "ip_is_global_unicast", "net.IP.() bool", test!(is_global_unicast)),
        ("isIP", "is_ip", "(string) bool", |_, args| Ok(Value::Bool(Address::parse(text(args, 0)?).is_ok()))),
        ("string", "ip_to_string", "(net.IP) string", |_, args| {
            Ok(Value::string(address(args, 0)?.to_string()))
        }),
        ("cidr", "string_to_cidr", "(string) net.CIDR", |_, args| parse_prefix(text(args, 0)?).map(cidr)),
        ("containsIP", "cidr_contains_ip_string", "net.CIDR.(string) bool", |_, args| {
            let address = Address::parse(text(args, 1)?).map_err(EvalError::invalid);
            // What cannot be read is no address, which Kubernetes reports as a missing overload of the network.
            let address = address.map_err(|_| EvalError::no_such_overload())?;
            Ok(Value::Bool(prefix(args, 0)?.contains(&address)))
        }),
        ("containsIP", "cidr_contains_ip_ip", "net.CIDR.(net.IP) bool", |_, args| {
            Ok(Value::Bool(prefix(args, 0)?.contains(address(args, 1)?)))
        }),
        ("containsCIDR", "cidr_contains_cidr_string", "net.CIDR.(string) bool", |_, args| {
            let other = parse_prefix(text(args, 1)?)?;
            Ok(Value::Bool(prefix(args, 0)?.contains_prefix(&other)))
        }),
        ("containsCIDR", "cidr_contains_cidr", "net.CIDR.(net.CIDR) bool", contains_cidr),
        ("ip", "cidr_ip", "net.CIDR.() net.IP", |_, args| Ok(ip(prefix(args, 0)?.address))),
        ("prefixLength", "cidr_prefix_length", "net.CIDR.() int", |_, args| {
            Ok(Value::Int(i64::from(prefix(args, 0)?.bits)))
        }),
        ("masked", "cidr_masked", "net.CIDR.() net.CIDR", |_, args| Ok(cidr(prefix(args, 0)?.masked()))),
        ("isCIDR", "is_cidr", "(string) bool", |_, args| {
            Ok(Value::Bool(Prefix::parse(text(args, 0)?).is_ok()))
        }),
        ("string", "cidr_to_string", "(net.CIDR) string", |_, args| {
            Ok(Value::string(prefix(args, 0)?.to_string()))
        }),
    ]);
}

fn ip<'a>(address: Address) -> Value<'a> {
    Value::Opaque(Opaque::Ip(address))
}

fn cidr<'a>(prefix: Prefix) -> Value<'a> {
    Value::Opaque(Opaque::Cidr(prefix))
}

fn parse_prefix(text: &str) -> Eval<Prefix> {
    Prefix::parse(text).map_err(|reason| {
        EvalError::invalid(format!("network address parse error during conversion from string: {reason}"))
    })
}

fn contains_cidr<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    Ok(Value::Bool(prefix(args, 0)?.contains_prefix(prefix(args, 1)?)))
}

fn address<'v>(args: &'v [Value<'_>], index: usize) -> Eval<&'v Address> {
    match args.get(index) {
        Some(Value::Opaque(Opaque::Ip(address))) => Ok(address),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn prefix<'v>(args: &'v [Value<'_>], index: usize) -> Eval<&'v Prefix> {
    match args.get(index) {
        Some(Value::Opaque(Opaque::Cidr(prefix))) => Ok(prefix),
        _ => Err(EvalError::no_such_overload()),
    }
}
