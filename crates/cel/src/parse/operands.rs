//! The tightest binding parts of the grammar: names, literals, and what is selected from them.

use std::sync::Arc;

use super::{MAX_DEPTH, Node, Parse, Parser, faults::escape_whitespace};
use crate::{
    ast::{Call, Expr, ExprKind, List, Literal, MapEntry, Select, Struct, StructField, operator},
    lex::{self, Kind},
};

const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];
impl Parser<'_> {
    pub(super) fn is_signed_literal(&self) -> bool {
        self.is("-") && matches!(self.peek_at(1).kind, Kind::Int | Kind::Double)
    }

    pub(super) fn member(&mut self) -> Parse {
        self.depth.member += 1;
        let mut pushed = 1;
        let mut node = self.primary()?;
        while self.is(".") || self.is("[") {
            pushed += 1;
            self.depth.member += 1;
            if self.depth.member > MAX_DEPTH {
                return Err(self.too_deep());
            }
            node = if self.is(".") { self.dot(node)? } else { self.index(node)? };
        }
        self.depth.member -= pushed;
        Ok(node)
    }

    fn dot(&mut self, operand: Node) -> Parse {
        let dot = self.advance();
        let optional = self.accept("?").is_some();
        let token = self.advance();
        match token.kind {
            Kind::Identifier => {}
            Kind::EscapedIdentifier => self.unsupported_escape(token),
            Kind::True | Kind::False | Kind::Null | Kind::In => {
                let text = self.text(token);
                let message = match token.kind {
                    Kind::In => format!("Syntax error: no viable alternative at input '.{text}'"),
                    _ => format!("Syntax error: mismatched input '{text}' expecting IDENTIFIER"),
                };
                return Err(self.stop_at(token.start, message));
            }
            _ => {
                let text = escape_whitespace(&self.text(token));
                let message = match optional {
                    true => format!(
                        "Syntax error: mismatched input '{text}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}"
                    ),
                    false if token.kind == Kind::End => {
                        "Syntax error: no viable alternative at input '.'".to_owned()
                    }
                    false => format!("Syntax error: no viable alternative at input '.{text}'"),
                };
                return Err(self.stop_at(token.start, message));
            }
        }
        let name = self.text(token);
        if optional {
            let height = self.raise(operand.height)?;
            let field = self.expr_at(token, ExprKind::Literal(Literal::String(name.into())));
            let kind =
                Call { target: None, function: operator::OPT_SELECT.into(), args: vec![operand.expr, field] };
            return Ok(Node { expr: self.expr_at(dot, ExprKind::Call(Box::new(kind))), height });
        }
        if let Some(open) = self.accept("(") {
            let id = self.tree.id_at(Some(open.start));
            let (args, arguments_height) = self.arguments()?;
            let height = self.raise(operand.height.max(arguments_height))?;
            return Ok(Node { expr: self.call(id, &name, Some(operand.expr), args)?, height });
        }
        let height = self.raise(operand.height)?;
        let select = Select { operand: operand.expr, field: name.into(), test_only: false };
        Ok(Node { expr: self.expr_at(dot, ExprKind::Select(Box::new(select))), height })
    }

    fn index(&mut self, operand: Node) -> Parse {
        let bracket = self.advance();
        let function = if self.accept("?").is_some() { operator::OPT_INDEX } else { operator::INDEX };
        let id = self.tree.id_at(Some(bracket.start));
        if function == operator::INDEX {
            self.expect_operand(&["?"])?;
        }
        let index = self.expr()?;
        self.expect("]")?;
        let height = self.raise(operand.height.max(index.height))?;
        Ok(Node { expr: self.call(id, function, None, vec![operand.expr, index.expr])?, height })
    }

    /// Arguments up to and with the closing parenthesis.
    fn arguments(&mut self) -> Parse<(Vec<Expr>, usize)> {
        let mut args = Vec::new();
        let mut height = 0;
        self.expect_operand(&[")"])?;
        if self.accept(")").is_some() {
            return Ok((args, height));
        }
        loop {
            let arg = self.expr()?;
            height = height.max(arg.height);
            args.push(arg.expr);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok((args, height))
    }

    fn primary(&mut self) -> Parse {
        let token = self.peek();
        match token.kind {
            Kind::Symbol("(") => {
                self.advance();
                let node = self.expr()?;
                self.expect(")")?;
                Ok(node)
            }
            Kind::Symbol("[") => self.list(),
            Kind::Symbol("{") => self.map(),
            Kind::Symbol(".") if self.peek_at(1).kind == Kind::Identifier => self.name(),
            Kind::Identifier => self.name(),
            _ => self.literal(),
        }
    }

    /// An identifier, a call of a function or a message.
    fn name(&mut self) -> Parse {
        let first = self.peek();
        let leading = self.accept(".").is_some();
        if let Some(count) = self.message_name_length() {
            return self.message(leading, count);
        }
        let token = self.advance();
        let name = self.text(token);
        let reserved = RESERVED.contains(&name.as_str());
        if reserved {
            self.issues.report(
                self.source,
                self.source.location(first.start),
                format!("reserved identifier: {name}"),
            );
        }
        let name = if leading { format!(".{name}") } else { name };
        let Some(open) = self.accept("(") else {
            let kind = if reserved { ExprKind::Unspecified } else { ExprKind::Ident(name.into()) };
            return Ok(self.leaf(token, kind));
        };
        let id = self.tree.id_at(Some(open.start));
        let (args, height) = self.arguments()?;
        Ok(Node { expr: self.call(id, &name, None, args)?, height })
    }

    /// How many identifiers precede `{`, if a message follows.
    fn message_name_length(&self) -> Option<usize> {
        let mut count = 1;
        loop {
            match self.peek_at(count * 2 - 1).kind {
                Kind::Symbol("{") => return Some(count),
                Kind::Symbol(".") if self.peek_at(count * 2).kind == Kind::Identifier => count += 1,
                _ => return None,
            }
        }
    }

    fn message(&mut self, leading: bool, count: usize) -> Parse {
        let mut name = if leading { ".".to_owned() } else { String::new() };
        for index in 0..count {
            if index > 0 {
                self.advance();
                name.push('.');
            }
            let token = self.advance();
            name.push_str(&self.text(token));
        }
        let brace = self.advance();
        let id = self.tree.id_at(Some(brace.start));
        let mut fields = Vec::new();
        let mut height = 0;
        while !self.is("}") {
            let optional = self.accept("?").is_some();
            let token = self.advance();
            match token.kind {
                Kind::Identifier => {}
                Kind::EscapedIdentifier => self.unsupported_escape(token),
                _ => {
                    let text = escape_whitespace(&self.text(token));
                    let expected = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}";
                    let message = format!("Syntax error: mismatched input '{text}' expecting {expected}");
                    return Err(self.stop_at(token.start, message));
                }
            }
            let name: Arc<str> = self.text(token).into();
            let colon = self.expect(":")?;
            let id = self.tree.id_at(Some(colon.start));
            let value = self.expr()?;
            height = height.max(value.height);
            fields.push(StructField { id, name, value: value.expr, optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect_end("}")?;
        let kind = ExprKind::Struct(Box::new(Struct { name: name.into(), fields }));
        Ok(Node { expr: Expr { id, kind }, height })
    }

    fn list(&mut self) -> Parse {
        let bracket = self.advance();
        let id = self.tree.id_at(Some(bracket.start));
        let mut list = List { elements: Vec::new(), optional: Vec::new() };
        let mut height = 0;
        self.expect_operand(&["]", ",", "?"])?;
        self.accept_lone_comma("]");
        while !self.is("]") {
            if self.accept("?").is_some() {
                list.optional.push(list.elements.len());
            }
            let element = self.expr()?;
            height = height.max(element.height);
            list.elements.push(element.expr);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect_end("]")?;
        Ok(Node { expr: Expr { id, kind: ExprKind::List(list) }, height })
    }

    fn map(&mut self) -> Parse {
        let brace = self.advance();
        let id = self.tree.id_at(Some(brace.start));
        let mut entries = Vec::new();
        let mut height = 0;
        self.expect_operand(&["}", ",", "?"])?;
        self.accept_lone_comma("}");
        while !self.is("}") {
            let optional = self.accept("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            height = height.max(key.height).max(value.height);
            entries.push(MapEntry { key: key.expr, value: value.expr, optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect_end("}")?;
        Ok(Node { expr: Expr { id, kind: ExprKind::Map(entries) }, height })
    }

    /// The grammar allows `[,]` and `{,}`.
    fn accept_lone_comma(&mut self, close: &'static str) {
        if self.is(",") && self.peek_at(1).kind == Kind::Symbol(close) {
            self.advance();
        }
    }

    fn literal(&mut self) -> Parse {
        let first = self.peek();
        let signed = self.is_signed_literal();
        if signed {
            self.advance();
        }
        let token = self.peek();
        let text = self.text(token);
        let sign = if signed { "-" } else { "" };
        let literal = match token.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => int(sign, &text).map(Literal::Int).ok_or("invalid int literal"),
            Kind::Uint => uint(&text[..text.len() - 1]).map(Literal::Uint).ok_or("invalid uint literal"),
            Kind::Double => double(sign, &text).map(Literal::Double).ok_or("invalid double literal"),
            Kind::String => lex::unquote(&text, false)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "unable to unescape string"))
                .map(|text| Literal::String(text.into())),
            Kind::Bytes => lex::unquote(&text[1..], true).map(|bytes| Literal::Bytes(bytes.into())),
            Kind::Symbol(".") => return Err(self.lone_dot(first)),
            Kind::Symbol("-" | "!") => return Err(self.mixed_signs(token)),
            _ => {
                self.expect_operand(&[])?;
                return self.unary();
            }
        };
        self.advance();
        match literal {
            Ok(literal) => Ok(self.leaf(first, ExprKind::Literal(literal))),
            Err(message) => Err(self.stop_at(first.start, message)),
        }
    }
}

fn int(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(&format!("{sign}{digits}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn uint(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn double(sign: &str, text: &str) -> Option<f64> {
    format!("{sign}{text}").parse::<f64>().ok().filter(|value| value.is_finite())
}
