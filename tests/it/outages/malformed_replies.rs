//! Redis sends malformed replies (row 19).

use super::{Fixture, HIGH_RATE, wait_until_closed, wait_until_open};
use crate::support::Mode;

#[test]
fn row_19_garbage_replies_fail_no_request() {
    Fixture::start(HIGH_RATE).assert_survives(Mode::Garble);
}

#[test]
fn row_19_truncated_replies_fail_no_request() {
    Fixture::start(HIGH_RATE).assert_survives(Mode::CutMidReply);
}

#[test]
fn row_19_replies_of_another_type_fail_no_request() {
    let fixture = Fixture::start(HIGH_RATE);
    for reply in [
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*0\r\n",
        "*1\r\n$1\r\nx\r\n",
        "*3\r\n:1\r\n:-1\r\n:9223372036854775807\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
    ] {
        fixture.proxy.set(Mode::Canned(reply));
        wait_until_open(&fixture.gateway);
        fixture.proxy.set(Mode::Pass);
        wait_until_closed(&fixture.gateway);
    }
}

#[test]
fn row_19_reply_of_1_gib_is_not_buffered() {
    let fixture = Fixture::start(HIGH_RATE);
    let (before, _) = fixture.gateway.memory_bytes();
    fixture.assert_survives(Mode::Flood);
    let (_, most) = fixture.gateway.memory_bytes();
    assert!(most < before + (64 << 20), "{before} bytes before, {most} at most");
}
