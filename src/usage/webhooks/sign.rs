//! Signatures of Standard Webhooks 1.0: HMAC-SHA256 over the id, the time and the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::policy::webhook::SigningKey;

/// Value of `webhook-signature` of a request with this id and body, sent at `unix_s` (seconds).
pub(super) fn signature(key: &SigningKey, id: &str, unix_s: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.reveal());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{id}.{unix_s}.").as_bytes());
    context.update(body);
    format!("v1,{}", STANDARD.encode(context.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the reference libraries of Standard Webhooks.
    #[test]
    fn signature_is_that_of_the_reference() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            signature(&SigningKey::new(key), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }
}
