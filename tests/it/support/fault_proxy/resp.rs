//! Finds the ends of RESP messages.

/// End of the message that begins at `start`; `None` while it is incomplete.
pub(super) fn end(bytes: &[u8], start: usize) -> Option<usize> {
    let line = bytes.get(start..)?;
    let length = line.windows(2).position(|pair| pair == b"\r\n")?;
    let after = start + length + 2;
    let number = || std::str::from_utf8(&line[1..length]).ok()?.parse::<i64>().ok();
    match line[0] {
        b'*' => (0..number()?).try_fold(after, |at, _| end(bytes, at)),
        b'$' => {
            let end = number()?.try_into().map_or(after, |size: usize| after + size + 2);
            (bytes.len() >= end).then_some(end)
        }
        _ => Some(after),
    }
}

#[test]
fn resp_messages_are_split_at_their_ends() {
    for whole in [
        "+OK\r\n",
        "-ERR x\r\n",
        ":1\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "$3\r\na\r\n\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
    ] {
        let twice = format!("{whole}{whole}");
        assert_eq!(end(twice.as_bytes(), 0), Some(whole.len()), "{whole:?}");
        assert_eq!(end(twice.as_bytes(), whole.len()), Some(twice.len()), "{whole:?}");
        for cut in 0..whole.len() {
            assert_eq!(end(&whole.as_bytes()[..cut], 0), None, "{whole:?} up to {cut}");
        }
    }
}
