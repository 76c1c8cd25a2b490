//! It answers something else. Row 19.

use super::{FREELY, Scene, heals, opens};
use crate::support::Mode;

#[test]
fn row_19_garbage_replies_fail_no_request() {
    Scene::start(FREELY).survives(Mode::Garble);
}

#[test]
fn row_19_truncated_replies_fail_no_request() {
    Scene::start(FREELY).survives(Mode::CutMidReply);
}

#[test]
fn row_19_replies_of_another_type_fail_no_request() {
    let scene = Scene::start(FREELY);
    for reply in [
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*0\r\n",
        "*1\r\n$1\r\nx\r\n",
        "*3\r\n:1\r\n:-1\r\n:9223372036854775807\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
    ] {
        scene.proxy.set(Mode::Canned(reply));
        opens(&scene.gateway);
        scene.proxy.set(Mode::Pass);
        heals(&scene.gateway);
    }
}

#[test]
fn row_19_reply_of_1_gib_is_not_buffered() {
    let scene = Scene::start(FREELY);
    let (before, _) = scene.gateway.memory_bytes();
    scene.survives(Mode::Flood);
    let (_, most) = scene.gateway.memory_bytes();
    assert!(most < before + (64 << 20), "{before} bytes before, {most} at most");
}
