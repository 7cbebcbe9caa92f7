//! Unified diffs, with the lines that upstream's matcher pairs.

use std::collections::HashMap;

const CONTEXT: usize = 3;
/// In texts at least this long, lines that are more than a hundredth of it pair only beside others.
const LONG: usize = 200;

/// Longer texts are not compared: it would take too long, and nobody would read it.
pub const TOO_LONG: usize = 2000;

/// Lines `a..a+len` of the old text are lines `b..b+len` of the new one.
#[derive(Clone, Copy)]
struct Block {
    a: usize,
    b: usize,
    len: usize,
}

/// A stretch of both texts that is equal, or was replaced.
#[derive(Clone, Copy)]
struct Step {
    equal: bool,
    a: (usize, usize),
    b: (usize, usize),
}

struct Matcher<'t> {
    a: &'t [String],
    b: &'t [String],
    /// Where a line is in the new text, unless it is there too often.
    places: HashMap<&'t str, Vec<usize>>,
}

impl<'t> Matcher<'t> {
    fn new(a: &'t [String], b: &'t [String]) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, line) in b.iter().enumerate() {
            places.entry(line.as_str()).or_default().push(at);
        }
        if b.len() >= LONG {
            let most = b.len() / 100 + 1;
            places.retain(|_, at| at.len() <= most);
        }
        Self { a, b, places }
    }

    /// The longest stretch that both texts have in these ranges; the first of several.
    fn longest(&self, a: (usize, usize), b: (usize, usize)) -> Block {
        let mut best = Block { a: a.0, b: b.0, len: 0 };
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for i in a.0..a.1 {
            let mut next = HashMap::new();
            for j in self.places.get(self.a[i].as_str()).into_iter().flatten().copied() {
                if j < b.0 {
                    continue;
                }
                if j >= b.1 {
                    break;
                }
                let len = j.checked_sub(1).and_then(|j| lengths.get(&j)).copied().unwrap_or(0) + 1;
                next.insert(j, len);
                if len > best.len {
                    best = Block { a: i + 1 - len, b: j + 1 - len, len };
                }
            }
            lengths = next;
        }
        // Lines that are there too often join what is beside them.
        while best.a > a.0 && best.b > b.0 && self.a[best.a - 1] == self.b[best.b - 1] {
            best = Block { a: best.a - 1, b: best.b - 1, len: best.len + 1 };
        }
        while best.a + best.len < a.1
            && best.b + best.len < b.1
            && self.a[best.a + best.len] == self.b[best.b + best.len]
        {
            best.len += 1;
        }
        best
    }

    /// All stretches that both texts have, in order, and an empty one at the end.
    fn blocks(&self) -> Vec<Block> {
        let mut ranges = vec![((0, self.a.len()), (0, self.b.len()))];
        let mut found = Vec::new();
        while let Some((a, b)) = ranges.pop() {
            let block = self.longest(a, b);
            if block.len == 0 {
                continue;
            }
            found.push(block);
            if a.0 < block.a && b.0 < block.b {
                ranges.push(((a.0, block.a), (b.0, block.b)));
            }
            let (a_end, b_end) = (block.a + block.len, block.b + block.len);
            if a_end < a.1 && b_end < b.1 {
                ranges.push(((a_end, a.1), (b_end, b.1)));
            }
        }
        found.sort_by_key(|block| block.a);
        let mut joined: Vec<Block> = Vec::new();
        for block in found {
            match joined.last_mut() {
                Some(last) if last.a + last.len == block.a && last.b + last.len == block.b => {
                    last.len += block.len;
                }
                _ => joined.push(block),
            }
        }
        joined.push(Block { a: self.a.len(), b: self.b.len(), len: 0 });
        joined
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let (mut i, mut j) = (0, 0);
        for block in self.blocks() {
            if i < block.a || j < block.b {
                steps.push(Step { equal: false, a: (i, block.a), b: (j, block.b) });
            }
            (i, j) = (block.a + block.len, block.b + block.len);
            if block.len > 0 {
                steps.push(Step { equal: true, a: (block.a, i), b: (block.b, j) });
            }
        }
        steps
    }
}

/// The steps around changes, a group for each place.
fn groups(mut steps: Vec<Step>) -> Vec<Vec<Step>> {
    if let Some(first) = steps.first_mut().filter(|first| first.equal) {
        first.a.0 = first.a.0.max(first.a.1.saturating_sub(CONTEXT));
        first.b.0 = first.b.0.max(first.b.1.saturating_sub(CONTEXT));
    }
    if let Some(last) = steps.last_mut().filter(|last| last.equal) {
        last.a.1 = last.a.1.min(last.a.0 + CONTEXT);
        last.b.1 = last.b.1.min(last.b.0 + CONTEXT);
    }
    let mut groups = Vec::new();
    let mut group: Vec<Step> = Vec::new();
    for mut step in steps {
        if step.equal && step.a.1 - step.a.0 > 2 * CONTEXT {
            let (a, b) = (step.a.0 + CONTEXT, step.b.0 + CONTEXT);
            group.push(Step { equal: true, a: (step.a.0, a.min(step.a.1)), b: (step.b.0, b.min(step.b.1)) });
            groups.push(std::mem::take(&mut group));
            step.a.0 = step.a.1 - CONTEXT;
            step.b.0 = step.b.1 - CONTEXT;
        }
        group.push(step);
    }
    groups.push(group);
    groups.retain(|group| group.iter().any(|step| !step.equal));
    groups
}

/// `3,7`: from the third line, seven of them.
fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        len => format!("{},{len}", start + 1),
    }
}

pub fn unified(old: &[String], new: &[String]) -> String {
    if old.len().max(new.len()) > TOO_LONG {
        return String::new();
    }
    let matcher = Matcher::new(old, new);
    let mut out = String::new();
    for group in groups(matcher.steps()) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (a, b) = (range(first.a.0, last.a.1), range(first.b.0, last.b.1));
        out.push_str(&format!("@@ -{a} +{b} @@\n"));
        for step in &group {
            let removed = &old[step.a.0..step.a.1];
            let added = &new[step.b.0..step.b.1];
            if step.equal {
                removed.iter().for_each(|line| out.push_str(&format!(" {line}\n")));
                continue;
            }
            removed.iter().for_each(|line| out.push_str(&format!("-{line}\n")));
            added.iter().for_each(|line| out.push_str(&format!("+{line}\n")));
        }
    }
    out
}
