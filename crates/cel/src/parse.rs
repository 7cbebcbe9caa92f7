//! Text to tree. Positions, limits and the wording of errors are cel-go's.

use std::sync::Arc;

use crate::{
    ast::{
        Call, Comprehension, Expr, ExprKind, Id, List, Literal, MapEntry, Select, Struct, StructField,
        operator,
    },
    lex::{self, Kind, Token},
    macros,
    source::{Issues, Location, Source},
};

/// What cel-go accepts at most.
const MAX_CODE_POINTS: usize = 100_000;
const MAX_DEPTH: usize = 250;
/// Macros copy expressions; a chain of them could double the tree with every link. No real expression comes close.
const MAX_NODES: usize = 200_000;

/// A tree and where its expressions stand in the text.
#[derive(Debug)]
pub struct Parsed {
    pub source: Source,
    pub root: Expr,
    /// The offset of each id's expression.
    offsets: Vec<Option<u32>>,
}

impl Parsed {
    pub fn location(&self, id: Id) -> Location {
        match self.offsets.get(id as usize).copied().flatten() {
            Some(offset) => self.source.location(offset),
            None => Location::NONE,
        }
    }
}

/// Reads an expression.
pub fn parse(text: &str) -> Result<Parsed, Issues> {
    let source = Source::new(text);
    let mut issues = Issues::default();
    let characters: Vec<char> = text.chars().collect();
    if characters.len() > MAX_CODE_POINTS {
        let size = characters.len();
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}");
        issues.report(&source, Location::NONE, message);
        return Err(issues);
    }
    let (tokens, unrecognized) = lex::tokens(&characters);
    for unknown in unrecognized {
        let message = format!("Syntax error: token recognition error at: '{}'", unknown.text);
        issues.report(&source, source.location(unknown.start), message);
    }
    let mut parser = Parser {
        source: &source,
        characters: &characters,
        tokens: &tokens,
        next: 0,
        issues,
        tree: TreeBuilder { offsets: vec![None], nodes: 0 },
        depth: Depths::default(),
    };
    let root = match parser.start() {
        Ok(root) => root,
        Err(Stop) => Expr { id: 0, kind: ExprKind::Unspecified },
    };
    let Parser { issues, tree, .. } = parser;
    if !issues.is_empty() {
        return Err(issues);
    }
    Ok(Parsed { source, root, offsets: tree.offsets })
}

/// Reading has failed and the reason is reported.
struct Stop;

type Parse<T = Node> = Result<T, Stop>;

/// An expression and how deep cel-go's visitor would recurse in it.
struct Node {
    expr: Expr,
    height: usize,
}

/// An operator that waits for its right operand.
struct Pending {
    left: Node,
    function: &'static str,
    id: Id,
}

/// Terms joined by one logical operator.
#[derive(Default)]
struct Chain {
    terms: Vec<Option<Expr>>,
    operators: Vec<Id>,
    operator: Option<Token>,
    height: usize,
}

impl Chain {
    fn push(&mut self, term: Node, tree: &mut TreeBuilder) {
        self.height = self.height.max(term.height);
        self.terms.push(Some(term.expr));
        self.operators.extend(self.operator.take().map(|token| tree.id_at(Some(token.start))));
    }

    fn join(mut self, function: &str) -> Node {
        Node { expr: balanced(function, &mut self.terms, &self.operators), height: self.height }
    }
}

#[derive(Default)]
struct Depths {
    expr: usize,
    relation: usize,
    calc: usize,
    member: usize,
}

/// Hands out ids and remembers where they stand.
pub struct TreeBuilder {
    offsets: Vec<Option<u32>>,
    nodes: usize,
}

impl TreeBuilder {
    pub fn id_at(&mut self, offset: Option<u32>) -> Id {
        self.nodes += 1;
        self.offsets.push(offset);
        (self.offsets.len() - 1) as Id
    }

    /// A new expression that stands where the expression `id` does.
    pub fn beside(&mut self, id: Id, kind: ExprKind) -> Expr {
        let offset = self.offset(id);
        Expr { id: self.id_at(offset), kind }
    }

    fn offset(&self, id: Id) -> Option<u32> {
        self.offsets.get(id as usize).copied().flatten()
    }

    pub fn too_large(&self) -> bool {
        self.nodes > MAX_NODES
    }

    /// The expression again, under new ids. What would make the tree too large is left out; `too_large` then says so.
    pub fn copy(&mut self, expr: &Expr) -> Expr {
        if self.too_large() {
            return Expr { id: expr.id, kind: ExprKind::Unspecified };
        }
        let offset = self.offset(expr.id);
        let id = self.id_at(offset);
        let kind = match &expr.kind {
            ExprKind::Unspecified => ExprKind::Unspecified,
            ExprKind::Literal(literal) => ExprKind::Literal(literal.clone()),
            ExprKind::Ident(name) => ExprKind::Ident(name.clone()),
            ExprKind::Select(select) => ExprKind::Select(Box::new(Select {
                operand: self.copy(&select.operand),
                field: select.field.clone(),
                test_only: select.test_only,
            })),
            ExprKind::Call(call) => {
                let args = call.args.iter().map(|arg| self.copy(arg)).collect();
                let target = call.target.as_ref().map(|target| self.copy(target));
                ExprKind::Call(Box::new(Call { target, function: call.function.clone(), args }))
            }
            ExprKind::List(list) => ExprKind::List(List {
                elements: list.elements.iter().map(|element| self.copy(element)).collect(),
                optional: list.optional.clone(),
            }),
            ExprKind::Map(entries) => ExprKind::Map(
                entries
                    .iter()
                    .map(|entry| MapEntry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            ExprKind::Struct(object) => ExprKind::Struct(Box::new(Struct {
                name: object.name.clone(),
                fields: object
                    .fields
                    .iter()
                    .map(|field| StructField {
                        id: self.id_at(offset),
                        name: field.name.clone(),
                        value: self.copy(&field.value),
                        optional: field.optional,
                    })
                    .collect(),
            })),
            ExprKind::Comprehension(fold) => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.copy(&fold.range),
                variable: fold.variable.clone(),
                second: fold.second.clone(),
                accumulator: fold.accumulator.clone(),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
            })),
        };
        Expr { id, kind }
    }
}

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

/// What may begin an operand, as the generated parser of cel-go lists it.
const OPERAND: &str = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                       BYTES, IDENTIFIER";

struct Parser<'a> {
    source: &'a Source,
    characters: &'a [char],
    tokens: &'a [Token],
    next: usize,
    issues: Issues,
    tree: TreeBuilder,
    depth: Depths,
}

impl Parser<'_> {
    fn start(&mut self) -> Parse<Expr> {
        let node = self.expr()?;
        if self.peek().kind != Kind::End {
            return Err(self.unexpected_after_operand());
        }
        Ok(node.expr)
    }

    // Tokens.

    fn peek(&self) -> Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token {
        let last = self.tokens.len() - 1;
        self.tokens[(self.next + ahead).min(last)]
    }

    fn advance(&mut self) -> Token {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn is(&self, symbol: &'static str) -> bool {
        self.peek().kind == Kind::Symbol(symbol)
    }

    fn accept(&mut self, symbol: &'static str) -> Option<Token> {
        self.is(symbol).then(|| self.advance())
    }

    fn expect(&mut self, symbol: &'static str) -> Parse<Token> {
        match self.accept(symbol) {
            Some(token) => Ok(token),
            None => Err(self.syntax_error(symbol, "", matches!(symbol, ")" | "]" | "}"))),
        }
    }

    /// The symbol that ends a list of something separated by commas.
    fn expect_end(&mut self, symbol: &'static str) -> Parse<Token> {
        match self.accept(symbol) {
            Some(token) => Ok(token),
            None => Err(self.syntax_error(symbol, "','", false)),
        }
    }

    fn text(&self, token: Token) -> String {
        match token.kind {
            Kind::End => "<EOF>".to_owned(),
            _ => self.characters[token.start as usize..token.end as usize].iter().collect(),
        }
    }

    // Errors.

    fn stop(&mut self, location: Location, message: impl Into<String>) -> Stop {
        self.issues.report(self.source, location, message);
        Stop
    }

    fn stop_at(&mut self, offset: u32, message: impl Into<String>) -> Stop {
        self.stop(self.source.location(offset), message)
    }

    /// The next token is not the symbol that must come. If what follows fits as if it were there, it is said to be
    /// missing.
    fn syntax_error(&mut self, symbol: &str, others: &str, could_be_missing: bool) -> Stop {
        let token = self.peek();
        let text = escape_whitespace(&self.text(token));
        let message = match (others, could_be_missing && token.kind == Kind::End) {
            ("", true) => format!("missing '{symbol}' at '{text}'"),
            ("", false) => {
                let word = if self.peek_at(1).kind == kind_of(symbol) { "extraneous" } else { "mismatched" };
                format!("{word} input '{text}' expecting '{symbol}'")
            }
            _ => {
                let fits = self.peek_at(1).kind == kind_of(symbol) && token.kind != Kind::End;
                let word = if fits { "extraneous" } else { "mismatched" };
                format!("{word} input '{text}' expecting {{'{symbol}', {others}}}")
            }
        };
        self.stop_at(token.start, format!("Syntax error: {message}"))
    }

    /// No operand begins here. If one begins right behind, the token is reported and left out.
    fn unexpected_operand(&mut self, also: &str) -> Parse<()> {
        let token = self.peek();
        let text = escape_whitespace(&self.text(token));
        let expected = match also {
            "" => OPERAND.to_owned(),
            "'?', " => OPERAND.replacen("'!', ", "'!', '?', ", 1),
            also => OPERAND.replacen("'(', ", also, 1),
        };
        let skips = token.kind != Kind::End && begins_operand(self.peek_at(1).kind);
        let word = if skips { "extraneous" } else { "mismatched" };
        let stop = self
            .stop_at(token.start, format!("Syntax error: {word} input '{text}' expecting {{{expected}}}"));
        if !skips {
            return Err(stop);
        }
        self.advance();
        Ok(())
    }

    fn unexpected_after_operand(&mut self) -> Stop {
        let token = self.peek();
        let text = escape_whitespace(&self.text(token));
        let following = self.peek_at(1).kind;
        let word = if following == Kind::End { "extraneous" } else { "mismatched" };
        self.stop_at(token.start, format!("Syntax error: {word} input '{text}' expecting <EOF>"))
    }

    fn too_deep(&mut self) -> Stop {
        self.stop(Location::NONE, format!("expression recursion limit exceeded: {MAX_DEPTH}"))
    }

    fn raise(&mut self, height: usize) -> Parse<usize> {
        if height + 1 > MAX_DEPTH {
            return Err(self.stop(Location::NONE, "max recursion depth exceeded"));
        }
        Ok(height + 1)
    }

    // Nodes.

    fn new(&mut self, token: Token, kind: ExprKind) -> Expr {
        Expr { id: self.tree.id_at(Some(token.start)), kind }
    }

    fn leaf(&mut self, token: Token, kind: ExprKind) -> Node {
        Node { expr: self.new(token, kind), height: 0 }
    }

    fn call(&mut self, id: Id, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Parse<Expr> {
        let expanded = macros::expand(&mut self.tree, id, function, target, args);
        if self.tree.too_large() {
            return Err(self.stop(Location::NONE, "expression is too large after macro expansion"));
        }
        expanded.map_err(|(at, message)| match self.tree.offset(at) {
            Some(offset) => self.stop_at(offset, message),
            None => self.stop(Location::NONE, message),
        })
    }

    // The grammar, from the loosest binding to the tightest.

    fn expr(&mut self) -> Parse {
        self.depth.expr += 1;
        if self.depth.expr > MAX_DEPTH {
            return Err(self.too_deep());
        }
        let condition = self.disjunction()?;
        let node = match self.accept("?") {
            None => condition,
            Some(question) => {
                let id = self.tree.id_at(Some(question.start));
                let truthy = self.disjunction()?;
                self.expect(":")?;
                let falsy = self.expr()?;
                let height = self.raise(condition.height.max(truthy.height).max(falsy.height))?;
                let args = vec![condition.expr, truthy.expr, falsy.expr];
                Node { expr: self.call(id, operator::CONDITIONAL, None, args)?, height }
            }
        };
        self.depth.expr -= 1;
        Ok(node)
    }

    /// A chain of `||` of chains of `&&`; each becomes a balanced tree. Operators are read in loops, not by a function
    /// for each level, because nested parentheses go through all of them and the stack is finite.
    fn disjunction(&mut self) -> Parse {
        let mut any = Chain::default();
        loop {
            let mut all = Chain::default();
            loop {
                let term = self.relation()?;
                all.push(term, &mut self.tree);
                all.operator = self.accept("&&");
                if all.operator.is_none() {
                    break;
                }
            }
            any.push(all.join(operator::AND), &mut self.tree);
            any.operator = self.accept("||");
            if any.operator.is_none() {
                return Ok(any.join(operator::OR));
            }
        }
    }

    fn relation(&mut self) -> Parse {
        self.depth.relation += 1;
        let mut pushed = 1;
        let mut pending: Option<Pending> = None;
        loop {
            let operand = self.calc()?;
            let left = self.combine(pending.take(), operand)?;
            let Some(function) = relation_operator(self.peek().kind) else {
                self.depth.relation -= pushed;
                return Ok(left);
            };
            pushed += 1;
            // One more for the right operand, which is a relation of its own.
            self.depth.relation += 1;
            if self.depth.relation + 1 > MAX_DEPTH {
                return Err(self.too_deep());
            }
            pending = Some(self.pending(left, function));
        }
    }

    /// Sums of products.
    fn calc(&mut self) -> Parse {
        let before = self.depth.calc;
        self.depth.calc += 1;
        let mut sum: Option<Pending> = None;
        let mut product: Option<Pending> = None;
        loop {
            // A right operand is a rule of its own.
            let nested = usize::from(sum.is_some()) + usize::from(product.is_some());
            self.depth.calc += nested;
            if self.depth.calc > MAX_DEPTH {
                return Err(self.too_deep());
            }
            let operand = self.unary()?;
            self.depth.calc -= nested;
            let left = self.combine(product.take(), operand)?;
            match calc_operator(self.peek().kind) {
                Some((function, 2)) => {
                    product = Some(self.pending(left, function));
                }
                Some((function, _)) => {
                    let left = self.combine(sum.take(), left)?;
                    sum = Some(self.pending(left, function));
                }
                None => {
                    self.depth.calc = before;
                    return self.combine(sum.take(), left);
                }
            }
            self.depth.calc += 1;
        }
    }

    fn pending(&mut self, left: Node, function: &'static str) -> Pending {
        let token = self.advance();
        Pending { left, function, id: self.tree.id_at(Some(token.start)) }
    }

    /// The call of an operator whose right operand was just read, or the operand alone.
    fn combine(&mut self, pending: Option<Pending>, right: Node) -> Parse {
        let Some(Pending { left, function, id }) = pending else { return Ok(right) };
        let height = self.raise(left.height.max(right.height))?;
        Ok(Node { expr: self.call(id, function, None, vec![left.expr, right.expr])?, height })
    }

    fn unary(&mut self) -> Parse {
        for (symbol, function) in [("!", operator::NOT), ("-", operator::NEGATE)] {
            if !self.is(symbol) || self.is_signed_literal() {
                continue;
            }
            let first = self.advance();
            let mut count = 1;
            while self.accept(symbol).is_some() {
                count += 1;
            }
            self.expect_operand_of(symbol, first)?;
            if count % 2 == 0 {
                return self.member();
            }
            let id = self.tree.id_at(Some(first.start));
            let operand = self.member()?;
            let expr = self.call(id, function, None, vec![operand.expr])?;
            return Ok(Node { expr, height: operand.height });
        }
        self.member()
    }

    /// An operand must follow `!` or `-`; cel-go's parser has words of its own for when none does.
    fn expect_operand_of(&mut self, symbol: &str, first: Token) -> Parse<()> {
        let token = self.peek();
        if begins_operand(token.kind) {
            return Ok(());
        }
        if symbol == "!" && token.kind == Kind::End {
            let message = format!("Syntax error: extraneous input '<EOF>' expecting {{{OPERAND}}}");
            return Err(self.stop_at(token.start, message));
        }
        if symbol == "-" {
            let end = self.tokens[self.next.min(self.tokens.len() - 1)].end;
            let read: String = self.characters[first.start as usize..end as usize].iter().collect();
            let message =
                format!("Syntax error: no viable alternative at input '{}'", escape_whitespace(&read));
            return Err(self.stop_at(token.start, message));
        }
        Ok(())
    }

    fn is_signed_literal(&self) -> bool {
        self.is("-") && matches!(self.peek_at(1).kind, Kind::Int | Kind::Double)
    }

    fn member(&mut self) -> Parse {
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
            Kind::EscapedIdentifier => return Err(self.stop_at(token.start, "unsupported syntax: '`'")),
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
            let field = self.new(token, ExprKind::Literal(Literal::String(name.into())));
            let kind =
                Call { target: None, function: operator::OPT_SELECT.into(), args: vec![operand.expr, field] };
            return Ok(Node { expr: self.new(dot, ExprKind::Call(Box::new(kind))), height });
        }
        if let Some(open) = self.accept("(") {
            let id = self.tree.id_at(Some(open.start));
            let (args, arguments_height) = self.arguments()?;
            let height = self.raise(operand.height.max(arguments_height))?;
            return Ok(Node { expr: self.call(id, &name, Some(operand.expr), args)?, height });
        }
        let height = self.raise(operand.height)?;
        let select = Select { operand: operand.expr, field: name.into(), test_only: false };
        Ok(Node { expr: self.new(dot, ExprKind::Select(Box::new(select))), height })
    }

    fn index(&mut self, operand: Node) -> Parse {
        let bracket = self.advance();
        let function = if self.accept("?").is_some() { operator::OPT_INDEX } else { operator::INDEX };
        let id = self.tree.id_at(Some(bracket.start));
        if function == operator::INDEX && !begins_operand(self.peek().kind) {
            self.unexpected_operand("'?', ")?;
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
        if self.accept(")").is_some() {
            return Ok((args, height));
        }
        if self.peek().kind == Kind::End {
            self.unexpected_operand("'(', ')', ")?;
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
            if token.kind != Kind::Identifier {
                let text = escape_whitespace(&self.text(token));
                let message = match token.kind {
                    Kind::EscapedIdentifier => "unsupported syntax: '`'".to_owned(),
                    _ => format!(
                        "Syntax error: mismatched input '{text}' expecting {{'}}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}}"
                    ),
                };
                return Err(self.stop_at(token.start, message));
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
            _ => {
                self.unexpected_operand("")?;
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

fn relation_operator(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Symbol("<") => operator::LESS,
        Kind::Symbol("<=") => operator::LESS_EQUALS,
        Kind::Symbol(">=") => operator::GREATER_EQUALS,
        Kind::Symbol(">") => operator::GREATER,
        Kind::Symbol("==") => operator::EQUALS,
        Kind::Symbol("!=") => operator::NOT_EQUALS,
        Kind::In => operator::IN,
        _ => return None,
    })
}

fn calc_operator(kind: Kind) -> Option<(&'static str, u8)> {
    Some(match kind {
        Kind::Symbol("*") => (operator::MULTIPLY, 2),
        Kind::Symbol("/") => (operator::DIVIDE, 2),
        Kind::Symbol("%") => (operator::MODULO, 2),
        Kind::Symbol("+") => (operator::ADD, 1),
        Kind::Symbol("-") => (operator::SUBTRACT, 1),
        _ => return None,
    })
}

/// Terms joined by operators as a balanced tree, so that a long chain is not a deep tree.
fn balanced(function: &str, terms: &mut [Option<Expr>], operators: &[Id]) -> Expr {
    if operators.is_empty() {
        return terms[0].take().unwrap_or(Expr { id: 0, kind: ExprKind::Unspecified });
    }
    let middle = operators.len() / 2;
    let (left, right) = terms.split_at_mut(middle + 1);
    let args = vec![
        balanced(function, left, &operators[..middle]),
        balanced(function, right, &operators[middle + 1..]),
    ];
    let call = Call { target: None, function: function.into(), args };
    Expr { id: operators[middle], kind: ExprKind::Call(Box::new(call)) }
}

fn kind_of(symbol: &str) -> Kind {
    match symbol {
        ")" => Kind::Symbol(")"),
        "]" => Kind::Symbol("]"),
        "}" => Kind::Symbol("}"),
        _ => Kind::Symbol(":"),
    }
}

fn begins_operand(kind: Kind) -> bool {
    match kind {
        Kind::Symbol(symbol) => matches!(symbol, "[" | "{" | "(" | "." | "-" | "!"),
        Kind::In | Kind::EscapedIdentifier | Kind::End => false,
        _ => true,
    }
}

fn escape_whitespace(text: &str) -> String {
    text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}
