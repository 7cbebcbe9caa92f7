//! Text to tree. Positions, limits and the wording of errors are cel-go's.

mod faults;
mod operands;
mod tree;

pub use tree::TreeBuilder;
use tree::balanced;

use crate::{
    ast::{Expr, ExprKind, Id, operator},
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
        tree: TreeBuilder::default(),
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
    // Nodes.

    fn expr_at(&mut self, token: Token, kind: ExprKind) -> Expr {
        Expr { id: self.tree.id_at(Some(token.start)), kind }
    }

    fn leaf(&mut self, token: Token, kind: ExprKind) -> Node {
        Node { expr: self.expr_at(token, kind), height: 0 }
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
