//! Expressions made at random from the grammar, most of them well typed.

use super::random::Random;

/// What an expression should be of.
#[derive(Clone, Copy, PartialEq)]
pub enum Of {
    Bool,
    Int,
    Double,
    Uint,
    String,
    Bytes,
    Duration,
    Timestamp,
    Ints,
    Strings,
    Map,
    OptionalInt,
    Any,
}

const ALL: &[Of] = &[
    Of::Bool,
    Of::Int,
    Of::Double,
    Of::Uint,
    Of::String,
    Of::Bytes,
    Of::Duration,
    Of::Timestamp,
    Of::Ints,
    Of::Strings,
    Of::Map,
    Of::OptionalInt,
];

/// A template: letters stand for operands. `b` bool, `i` int, `d` double, `u` uint, `s` string, `y` bytes, `t` duration,
/// `w` timestamp, `I` ints, `S` strings, `M` map of strings, `O` optional int, `?` anything.
fn templates(of: Of) -> &'static [&'static str] {
    match of {
        Of::Bool => &[
            "true", "false", "self.enabled", "$i == $i", "$i < $i", "$s == $s", "$s != $s", "$b && $b", "$b || $b", "!$b",
            "$b ? $b : $b", "$s.contains($s)", "$s.startsWith($s)", "$s.endsWith($s)", "$s.matches('[a-z]+$')",
            "$s in $S", "$i in $I", "$s in $M", "$I.all(x, x > $i)", "$I.exists(x, x == $i)", "$S.exists_one(x, x == $s)",
            "has(self.maybe)", "has(self.spec.b.c)", "has(data.map.k)", "$I == $I", "$S == $S", "$M == $M",
            "$I.isSorted()", "sets.contains($I, $I)", "sets.intersects($S, $S)", "sets.equivalent($I, $I)",
            "$w < $w", "$t <= $t", "$d > $d", "$u >= $u", "$y == $y", "$O.hasValue()", "$i == $d", "$u < $i",
            "type($?) == int", "data.yes", "isURL($s)", "isIP($s)", "isCIDR($s)", "isQuantity($s)", "isSemver($s)",
            "quantity('1Gi').isGreaterThan(quantity('5'))", "ip('10.0.0.1').isLoopback()",
            "cidr('10.0.0.0/8').containsIP('10.1.2.3')", "$S.all(i, v, v != $s || i > $i)", "self == oldSelf",
            "self.set == oldSelf.set", "self.ports == oldSelf.ports", "self.tags == oldSelf.tags", "[$b, $b][$i]",
            "self.ports.exists(p, p.name == $s)", "semver('1.2.3').isLessThan(semver('1.10.0'))", "self.port == $i",
        ],
        Of::Int => &[
            "0", "1", "2", "-1", "7", "9223372036854775807", "-9223372036854775808", "0x1f", "self.replicas", "self.max",
            "self.__dash__name", "self.dash__dash__name", "oldSelf.replicas", "$i + $i", "$i - $i", "$i * $i", "$i / $i",
            "$i % $i", "-$i", "size($s)", "$S.size()", "$M.size()", "$I[$i]", "$b ? $i : $i", "int($d)", "int($u)", "int($s)",
            "$I.sum()", "$I.min()", "$I.max()", "$s.indexOf($s)", "$s.lastIndexOf($s)", "$I.indexOf($i)", "$w.getHours()",
            "$w.getFullYear('America/New_York')", "$w.getDayOfWeek()", "$t.getSeconds()", "$t.getMinutes()", "$O.orValue($i)",
            "data.int", "data.map.k.n", "self.ports[0].number", "[$i, $i].map(x, x + 1)[0]", "$I.first().orValue($i)",
            "quantity('3').asInteger()", "ip('::1').family()", "semver('1.2.3').minor()", "self.nested[0][1]", "data.list[0]",
            "$I.filter(x, x > $i).size()", "$I.lastIndexOf($i)", "$w.getMonth()", "$w.getDayOfYear()", "$w.getMilliseconds()",
        ],
        Of::Double => &[
            "0.0", "1.5", "-2.25", "1e10", "self.ratio", "$d + $d", "$d * $d", "$d / $d", "$d - $d", "double($i)", "-$d",
            "double($s)", "data.double", "$b ? $d : $d", "double('Infinity')", "[$d, $d].sum()", "[$d, $d].max()",
        ],
        Of::Uint => &["0u", "3u", "18446744073709551615u", "$u + $u", "$u * $u", "$u - $u", "uint($i)", "uint($d)", "$u / $u", "$u % $u"],
        Of::String => &[
            "''", "'a'", "'web'", "\"a b\"", "'é'", "r'\\d'", "'''x\ny'''", "self.name", "self.text", "self.mode",
            "self.__namespace__", "$s + $s", "string($i)", "string($d)", "string($b)", "string($t)", "string($w)", "string($y)",
            "$s.lowerAscii()", "$s.upperAscii()", "$s.trim()", "$s.replace($s, $s)", "$s.replace($s, $s, $i)", "$s.substring($i)",
            "$s.substring($i, $i)", "$s.charAt($i)", "$S.join()", "$S.join($s)", "$S[$i]", "$M[$s]", "$M['app']",
            "'%s and %d'.format([$s, $i])", "'%.2f'.format([$d])", "'%x'.format([$i])", "'%s'.format([$I])", "strings.quote($s)",
            "$b ? $s : $s", "data.text", "self.labels.app", "$s.find('[a-z]+')", "self.spec.b.c", "url('https://a.b:80/c?d=e').getHost()",
            "string(ip('1.2.3.4'))", "$M.?app.orValue($s)", "self.?maybe.orValue($s)", "$S.sort().join(',')", "self.limits.memory",
            "self.tags.reverse()[0]", "'%s'.format([$M])", "'%b %o'.format([$i, $i])", "'%e'.format([$d])",
        ],
        Of::Bytes => &["b'abc'", "b'\\xff'", "self.blob", "bytes($s)", "$y + $y", "$b ? $y : $y"],
        Of::Duration => &[
            "duration('1h')", "duration('90s')", "self.timeout", "$t + $t", "$w - $w", "duration('-1.5m')", "$t - $t", "[$t].sum()",
        ],
        Of::Timestamp => &[
            "timestamp('2026-01-01T00:00:00Z')", "timestamp('2020-02-29T12:30:45.5+02:00')", "self.since", "self.day", "$w + $t",
            "$w - $t", "timestamp($i)", "$t + $w",
        ],
        Of::Ints => &[
            "[]", "[1]", "[3, 1, 2]", "[$i, $i]", "self.numbers", "$I + $I", "$I.map(x, x * 2)", "$I.filter(x, x > $i)",
            "$I.map(x, x > $i, x + 1)", "$S.map(x, size(x))", "$b ? $I : $I", "self.nested[$i]", "self.nested.flatten()",
            "$I.sort()", "$I.reverse()", "$I.distinct()", "lists.range($i)", "$I.slice(0, 1)", "$I.transformList(i, v, i + v)",
            "[?$O, $i]", "self.ports.map(p, p.number)", "$I.sortBy(x, -x)", "$I.transformList(i, v, v > $i, i)",
        ],
        Of::Strings => &[
            "['a', 'b']", "[$s, $s]", "self.tags", "self.set", "$S + $S", "$S.map(x, x + $s)", "$S.filter(x, x != $s)", "$s.split($s)",
            "$s.split(' ')", "$s.findAll('[a-z]')", "$M.map(k, k)", "$S.sort()", "$S.distinct()", "data.words",
            "self.ports.map(p, p.name)", "$s.split($s, $i)", "oldSelf.tags", "self.set + oldSelf.set", "$M.map(k, $M[k])",
        ],
        Of::Map => &[
            "{'a': 'b'}", "{$s: $s}", "self.labels", "{'x': $s, 'y': $s}", "$S.transformMap(i, v, v)", "oldSelf.labels",
            "{?'k': optional.of($s)}", "$M.transformMap(k, v, v + $s)", "$M.transformMapEntry(k, v, {v: k})",
        ],
        Of::OptionalInt => &[
            "optional.of($i)", "optional.none()", "$I[?$i]", "$O.or($O)", "$O.optMap(x, x + $i)", "$O.optFlatMap(x, $O)",
            "optional.ofNonZeroValue($i)", "$I.last()", "self.?replicas", "self.ports[?0].number", "$I.first()",
        ],
        Of::Any => &[],
    }
}

/// An expression of a depth, usually of the type asked for.
pub fn expression(random: &mut Random, of: Of, depth: usize) -> String {
    let of = match of {
        Of::Any => *random.pick(ALL),
        // Now and then something that does not fit.
        _ if random.below(60) == 0 => *random.pick(ALL),
        of => of,
    };
    let choices = templates(of);
    let leaves: Vec<&&str> = choices.iter().filter(|template| !template.contains('$') || template.ends_with("+$')")).collect();
    let template = match depth {
        0 if !leaves.is_empty() => **random.pick(&leaves),
        _ => random.pick(choices),
    };
    let mut out = String::new();
    let mut characters = template.chars().peekable();
    while let Some(character) = characters.next() {
        let operand = match (character, characters.peek()) {
            ('$', Some('b')) => Of::Bool,
            ('$', Some('i')) => Of::Int,
            ('$', Some('d')) => Of::Double,
            ('$', Some('u')) => Of::Uint,
            ('$', Some('s')) => Of::String,
            ('$', Some('y')) => Of::Bytes,
            ('$', Some('t')) => Of::Duration,
            ('$', Some('w')) => Of::Timestamp,
            ('$', Some('I')) => Of::Ints,
            ('$', Some('S')) => Of::Strings,
            ('$', Some('M')) => Of::Map,
            ('$', Some('O')) => Of::OptionalInt,
            ('$', Some('?')) => Of::Any,
            _ => {
                out.push(character);
                continue;
            }
        };
        characters.next();
        let inner = expression(random, operand, depth.saturating_sub(1));
        let atomic = inner.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'));
        // What is wrapped is now and then hidden from the checker.
        match random.below(40) {
            0 => out.push_str(&format!("dyn({inner})")),
            _ if atomic => out.push_str(&inner),
            _ => out.push_str(&format!("({inner})")),
        }
    }
    out
}
