//! Addresses of networks and machines, as Go's older parsers took them: with leading zeros.

/// An IPv4 or IPv6 address.
pub fn is_sloppy_ip(text: &str) -> bool {
    match text.find(['.', ':']) {
        Some(at) if text.as_bytes()[at] == b'.' => is_sloppy_ipv4(text),
        Some(_) => is_sloppy_ipv6(text),
        None => false,
    }
}

fn number(text: &str, most: u32) -> bool {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.trim_start_matches('0').len() <= 8 && text.parse::<u32>().unwrap_or(0) <= most
}

fn is_sloppy_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 4 && parts.iter().all(|part| number(part, 255))
}

fn is_sloppy_ipv6(text: &str) -> bool {
    let is_group = |group: &str| {
        let significant = group.trim_start_matches('0');
        !group.is_empty() && significant.len() <= 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    // How many groups of 16 bits a list is, if it is one.
    let count = |text: &str, is_last: bool| -> Option<usize> {
        if text.is_empty() {
            return Some(0);
        }
        let groups: Vec<&str> = text.split(':').collect();
        let (last, first) = groups.split_last()?;
        let last_len = match (is_group(last), is_last && is_sloppy_ipv4(last)) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => return None,
        };
        first.iter().all(|group| is_group(group)).then_some(first.len() + last_len)
    };
    match text.split_once("::") {
        None => count(text, true) == Some(8),
        Some((before, after)) => {
            let total = count(before, false).zip(count(after, true)).map(|(before, after)| before + after);
            total.is_some_and(|total| total < 8)
        }
    }
}

pub fn is_cidr(text: &str) -> bool {
    let Some((address, len)) = text.split_once('/') else { return false };
    if is_sloppy_ipv4(address) {
        return number(len, 32);
    }
    is_sloppy_ipv6(address) && number(len, 128)
}

/// 6, 8 or 20 bytes: pairs of digits with colons or dashes, or fours with dots.
pub fn is_mac(text: &str) -> bool {
    let hex =
        |group: &&str, len: usize| group.len() == len && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    for separator in [':', '-'] {
        let groups: Vec<&str> = text.split(separator).collect();
        if matches!(groups.len(), 6 | 8 | 20) && groups.iter().all(|group| hex(group, 2)) {
            return true;
        }
    }
    let groups: Vec<&str> = text.split('.').collect();
    matches!(groups.len(), 3 | 4 | 10) && groups.iter().all(|group| hex(group, 4))
}
