//! Commands that simulated containers know.

use std::{collections::BTreeSet, time::Duration};

use super::Shell;

/// How a command ended.
pub enum Done {
    /// With this code.
    With(i32),
    /// With success, after so long.
    After(Duration),
    Never,
}

/// Runs a command; what it says goes to `said`. `None`: it is not known.
pub fn command(shell: &mut Shell<'_>, name: &str, arguments: &[String], said: &mut String) -> Option<Done> {
    let code = match name {
        "true" | ":" => 0,
        "false" => 1,
        "echo" => {
            let (newline, arguments) = match arguments.split_first() {
                Some((flag, rest)) if flag == "-n" => ("", rest),
                _ => ("\n", arguments),
            };
            say(said, &(arguments.join(" ") + newline))
        }
        "sleep" => {
            return Some(match arguments.first().map(String::as_str) {
                Some("infinity" | "inf") => Done::Never,
                given => Done::After(given.and_then(duration).unwrap_or_default()),
            });
        }
        "tail" if arguments.iter().any(|it| it.starts_with("-f")) => return Some(Done::Never),
        "hostname" => say(said, &format!("{}\n", shell.around.host)),
        "date" => say(said, &format!("{}\n", shell.around.date)),
        "whoami" => say(said, "root\n"),
        "id" => say(said, "uid=0(root) gid=0(root) groups=0(root)\n"),
        "pwd" => say(said, "/\n"),
        "env" | "printenv" if arguments.is_empty() => {
            let lines = shell.variables.iter().map(|(key, value)| format!("{key}={value}\n"));
            say(said, &lines.collect::<String>())
        }
        "printenv" => match arguments.first().and_then(|name| shell.variables.get(name)) {
            Some(value) => say(said, &format!("{value}\n")),
            None => 1,
        },
        "cat" => cat(shell, arguments, said),
        "ls" => ls(shell, arguments, said),
        "touch" | "mkdir" | "rm" => change(shell, name, arguments),
        "expr" => expr(arguments, said),
        "test" => test(shell, arguments),
        "[" => match arguments.split_last() {
            Some((end, arguments)) if end == "]" => test(shell, arguments),
            _ => 2,
        },
        "[[" => match arguments.split_last() {
            Some((end, arguments)) if end == "]]" => test(shell, arguments),
            _ => 2,
        },
        _ => return None,
    };
    Some(Done::With(code))
}

fn say(said: &mut String, text: &str) -> i32 {
    said.push_str(text);
    0
}

fn cat(shell: &mut Shell<'_>, arguments: &[String], said: &mut String) -> i32 {
    let mut code = 0;
    for path in arguments {
        let size = shell.files.get(path).map_or(0, String::len);
        let has_room = shell.has_room(size);
        match shell.files.get(path) {
            Some(text) if has_room => said.push_str(text),
            Some(_) => {}
            None => {
                said.push_str(&format!("cat: can't open '{path}': No such file or directory\n"));
                code = 1;
            }
        }
    }
    code
}

fn ls(shell: &Shell<'_>, arguments: &[String], said: &mut String) -> i32 {
    let inside = arguments.first().map_or("/", String::as_str).trim_end_matches('/');
    let here =
        |path: &String| path.strip_prefix(inside)?.strip_prefix('/')?.split('/').next().map(str::to_owned);
    let names: BTreeSet<String> = shell.files.keys().filter_map(here).collect();
    say(said, &names.into_iter().map(|name| name + "\n").collect::<String>())
}

/// Directories are there as soon as something is in them.
fn change(shell: &mut Shell<'_>, name: &str, arguments: &[String]) -> i32 {
    let is_flag = |it: &&String| it.starts_with('-');
    let is_forced = arguments.iter().filter(is_flag).any(|flag| flag.contains('f'));
    let mut code = 0;
    for path in arguments.iter().filter(|it| !is_flag(it)) {
        match name {
            "touch" => {
                shell.files.entry(path.clone()).or_default();
            }
            "rm" => {
                let below = format!("{}/", path.trim_end_matches('/'));
                let before = shell.files.len();
                shell.files.retain(|file, _| file != path && !file.starts_with(&below));
                if shell.files.len() == before && !is_forced {
                    code = 1;
                }
            }
            _ => {}
        }
    }
    code
}

fn expr(arguments: &[String], said: &mut String) -> i32 {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<i64>().ok();
    let result = match words.as_slice() {
        [only] => Some((*only).to_owned()),
        [one, "=", other] => Some(i32::from(one == other).to_string()),
        [one, "!=", other] => Some(i32::from(one != other).to_string()),
        [one, operator, other] => number(one).zip(number(other)).and_then(|(one, other)| {
            let result = match *operator {
                "+" => one.checked_add(other),
                "-" => one.checked_sub(other),
                "*" => one.checked_mul(other),
                "/" => one.checked_div(other),
                "%" => one.checked_rem(other),
                "<" => Some(i64::from(one < other)),
                "<=" => Some(i64::from(one <= other)),
                ">" => Some(i64::from(one > other)),
                ">=" => Some(i64::from(one >= other)),
                _ => None,
            };
            result.map(|it| it.to_string())
        }),
        _ => None,
    };
    let Some(result) = result else {
        said.push_str("expr: syntax error\n");
        return 2;
    };
    let code = i32::from(result.is_empty() || result == "0");
    said.push_str(&result);
    said.push('\n');
    code
}

/// 0: it is so; 1: it is not; 2: that is no question.
fn test(shell: &Shell<'_>, arguments: &[String]) -> i32 {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let exists = |path: &str| {
        let below = format!("{}/", path.trim_end_matches('/'));
        shell.files.contains_key(path) || shell.files.keys().any(|file| file.starts_with(&below))
    };
    let numbers = |one: &str, other: &str| one.parse::<i64>().ok().zip(other.parse::<i64>().ok());
    let holds = match words.as_slice() {
        [] => Some(false),
        ["!", rest @ ..] => {
            let rest: Vec<String> = rest.iter().map(|it| (*it).to_owned()).collect();
            return match test(shell, &rest) {
                2 => 2,
                code => 1 - code,
            };
        }
        [text] => Some(!text.is_empty()),
        ["-z", text] => Some(text.is_empty()),
        ["-n", text] => Some(!text.is_empty()),
        ["-f" | "-r" | "-w", path] => Some(shell.files.contains_key(*path)),
        ["-s", path] => Some(shell.files.get(*path).is_some_and(|text| !text.is_empty())),
        ["-e", path] => Some(exists(path)),
        ["-d", path] => Some(exists(path) && !shell.files.contains_key(*path)),
        [one, "=" | "==", other] => Some(one == other),
        [one, "!=", other] => Some(one != other),
        [one, operator, other] => numbers(one, other).and_then(|(one, other)| match *operator {
            "-eq" => Some(one == other),
            "-ne" => Some(one != other),
            "-lt" => Some(one < other),
            "-le" => Some(one <= other),
            "-gt" => Some(one > other),
            "-ge" => Some(one >= other),
            _ => None,
        }),
        _ => None,
    };
    holds.map_or(2, |holds| i32::from(!holds))
}

/// As `sleep` reads it, and annotations: seconds, or with `ms`, `s`, `m`, `h`.
pub fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|it: char| !(it.is_ascii_digit() || it == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * factor).ok()
}
