//! Users with passwords (HTTP Basic authentication, RFC 7617): hashes of passwords, and which hash
//! a login is verified with. Pure, and slow on purpose: a verification takes as long as the cost of
//! its hash says.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use thiserror::Error;

use super::principal::{Found, KeyRefusal, Principal};

/// Maximum length of a login, a user and a password, in bytes. Longer ones are wrong.
const MAX_LOGIN_BYTES: usize = 256;

/// Maximum cost of a bcrypt hash: the binary logarithm of the number of rounds. One with 14 takes
/// about a second.
pub const MAX_BCRYPT_COST: u32 = 14;

/// Maximum number of rounds of a SHA-crypt hash. As many take about a second.
pub const MAX_SHA_ROUNDS: u32 = 1_000_000;

/// Length of a bcrypt hash as text.
const BCRYPT_BYTES: usize = 60;

/// Prefixes of bcrypt hashes that mean the same. Not `$2x$`, of an implementation with a fault.
const BCRYPT_PREFIXES: [&str; 3] = ["$2y$", "$2b$", "$2a$"];

/// What stands for a login that cannot be decoded: no user has an empty name.
const NO_LOGIN: &[u8] = b":";

/// The users of `[clients.basic]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passwords {
    users: HashMap<Arc<str>, User>,
    /// The names of all users, for [`candidate`](Self::candidate). Not empty.
    names: Vec<Arc<str>>,
    /// Value of `WWW-Authenticate`.
    pub challenge: HeaderValue,
    /// Whether upstreams do not get names and passwords.
    pub is_hidden: bool,
    /// How long a verified password is not verified again, in microseconds.
    pub kept_us: u64,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The client that it is.
    pub principal: Arc<Principal>,
    pub hash: PasswordHash,
}

/// The hash of a password, with its salt and its cost. Not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(Arc<str>);

/// What a login is verified with.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    pub hash: &'a PasswordHash,
    pub password: &'a [u8],
    /// The client if the password is right; `None`: there is no such user, and the hash is that of
    /// another one.
    pub principal: Option<&'a Arc<Principal>>,
}

/// Why a text is not the hash of a password that can be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HashError {
    /// It is of a method that is too weak, or that is not known.
    #[error("the hash is neither of bcrypt (`$2y$`) nor of SHA-crypt (`$6$`, `$5$`)")]
    Method,
    #[error("the hash is incomplete or has a wrong character")]
    Malformed,
    #[error("the cost of the hash is {0}; {MAX_BCRYPT_COST} is the most")]
    Cost(u32),
    #[error("the hash has more than {MAX_SHA_ROUNDS} rounds")]
    Rounds,
}

impl Passwords {
    /// The users, by their names; `None` without any.
    pub fn new(
        users: HashMap<Arc<str>, User>,
        challenge: HeaderValue,
        is_hidden: bool,
        kept_us: u64,
    ) -> Option<Self> {
        let mut names: Vec<Arc<str>> = users.keys().cloned().collect();
        names.sort_unstable();
        (!names.is_empty()).then_some(Self { users, names, challenge, is_hidden, kept_us })
    }

    /// The hash that a login is verified with, a user and a password with a colon between. An
    /// unknown user gets the hash of some user, the one that `any` selects, so that it takes as
    /// long as a wrong password: with the same `any`, always the same.
    pub fn candidate<'a>(&'a self, login: &'a [u8], any: u64) -> Option<Candidate<'a>> {
        let colon = login.iter().position(|byte| *byte == b':').unwrap_or(login.len());
        let (name, password) = login.split_at(colon);
        let password = password.get(1..MAX_LOGIN_BYTES.min(password.len())).unwrap_or_default();
        // RFC 7617, section 2: neither has control characters. bcrypt takes a NUL for the end.
        // The time of SHA-crypt grows with the length.
        let is_plain = login.len() <= MAX_LOGIN_BYTES && !login.iter().any(u8::is_ascii_control);
        let name = std::str::from_utf8(name).ok().filter(|_| is_plain);
        if let Some(user) = name.and_then(|name| self.users.get(name)) {
            return Some(Candidate {
                hash: &user.hash,
                password,
                principal: Some(&user.principal),
            });
        }
        let index = usize::try_from(any % self.names.len().max(1) as u64).ok()?;
        let other = self.users.get(self.names.get(index)?)?;
        Some(Candidate { hash: &other.hash, password, principal: None })
    }
}

impl Passwords {
    /// Number of users.
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Whose login it is, from the source with this index. Takes up to a second.
    pub fn check(&self, login: &[u8], source: usize) -> Found {
        let candidate = self.candidate(login, 0);
        let right = candidate.filter(|candidate| candidate.hash.verify(candidate.password));
        match right.and_then(|candidate| candidate.principal) {
            Some(principal) => Found::of(principal, source),
            None => Found::unusable(source, KeyRefusal::Password),
        }
    }
}

impl PasswordHash {
    /// Checks the text of a hash.
    ///
    /// # Errors
    /// See [`HashError`].
    pub fn parse(text: &str) -> Result<Self, HashError> {
        if BCRYPT_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
            let cost = text.get(4..6).and_then(|cost| cost.parse().ok());
            let cost: u32 = cost.ok_or(HashError::Malformed)?;
            if cost > MAX_BCRYPT_COST {
                return Err(HashError::Cost(cost));
            }
            let is_whole = text.len() == BCRYPT_BYTES && text.parse::<bcrypt::HashParts>().is_ok();
            return if is_whole && cost >= 4 {
                Ok(Self(text.into()))
            } else {
                Err(HashError::Malformed)
            };
        }
        let Some(rest) = text.strip_prefix("$5$").or_else(|| text.strip_prefix("$6$")) else {
            return Err(HashError::Method);
        };
        if let Some(rounds) = rest.strip_prefix("rounds=") {
            let rounds = rounds.split('$').next().and_then(|rounds| rounds.parse::<u64>().ok());
            match rounds {
                None | Some(..1_000) => return Err(HashError::Malformed),
                Some(rounds) if rounds > u64::from(MAX_SHA_ROUNDS) => {
                    return Err(HashError::Rounds);
                }
                Some(_) => {}
            }
        }
        let digits = rest.rsplit('$').next().map_or(0, str::len);
        let is_whole = digits == if text.starts_with("$5$") { 43 } else { 86 };
        // Any password shows whether the text can be read.
        let read = ShaCrypt::SHA512.verify_password(b"", text);
        let is_readable =
            matches!(read, Ok(()) | Err(sha_crypt::password_hash::Error::PasswordInvalid));
        if is_whole && is_readable { Ok(Self(text.into())) } else { Err(HashError::Malformed) }
    }

    /// Whether it is that of a password. Takes up to a second.
    pub fn verify(&self, password: &[u8]) -> bool {
        if self.0.starts_with("$2") {
            bcrypt::verify(password, &self.0).unwrap_or(false)
        } else {
            ShaCrypt::SHA512.verify_password(password, &*self.0).is_ok()
        }
    }

    /// Its text, for a digest: it must not be shown.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[hash]")
    }
}

/// The user and the password of `Basic <base64>`, with a colon between; the scheme is
/// case-insensitive. What cannot be decoded is a login that no user has. `None` for another scheme.
pub fn login(value: &[u8]) -> Option<Vec<u8>> {
    let encoded = encoded_login(value)?;
    Some(STANDARD.decode(encoded).unwrap_or_else(|_| NO_LOGIN.to_owned()))
}

/// The part of `Basic <base64>` after the scheme; `None` for another scheme. A tab counts as the
/// space, as it does for servers that split at white space.
pub fn encoded_login(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"basic".len())?;
    let is_basic = scheme.eq_ignore_ascii_case(b"basic") && matches!(rest, [b' ' | b'\t', ..] | []);
    is_basic.then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BCRYPT: &str = "$2y$04$4KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm";
    /// Of `openssl passwd` for `Hello world!`, as the vectors of the specification of SHA-crypt.
    const SHA512: &str = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
    const SHA256: &str = "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5";

    fn passwords(users: &[(&str, &str)]) -> Passwords {
        let users = users.iter().map(|(name, hash)| {
            let name: Arc<str> = Arc::from(*name);
            let principal = Arc::new(Principal::new(Arc::clone(&name), 0, true));
            (name, User { principal, hash: PasswordHash::parse(hash).unwrap() })
        });
        let challenge = HeaderValue::from_static("Basic");
        Passwords::new(users.collect(), challenge, true, 0).unwrap()
    }

    #[test]
    fn hashes_of_known_vectors_are_verified() {
        for (hash, password) in [(SHA512, "Hello world!"), (SHA256, "Hello world!")] {
            let hash = PasswordHash::parse(hash).unwrap();
            assert!(hash.verify(password.as_bytes()), "{password}");
            assert!(!hash.verify(b"hello world!") && !hash.verify(b""));
        }
        // Solar Designer's test vectors of bcrypt.
        let hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
        let hash = PasswordHash::parse(hash).unwrap();
        assert!(hash.verify(b"U*U") && !hash.verify(b"U*V"));
    }

    #[test]
    fn hashes_that_are_weak_broken_or_too_slow_are_errors() {
        let cut = &BCRYPT[..59];
        let costly = BCRYPT.replace("$04$", "$15$");
        let table = [
            ("secret", HashError::Method),
            ("$apr1$TWAfQQOP$7pGtzwLvRsQPyCA8d8dS./", HashError::Method),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", HashError::Method),
            ("rqXexS6ZhobKA", HashError::Method),
            ("$2x$04$4KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm", HashError::Method),
            (cut, HashError::Malformed),
            ("$2y$", HashError::Malformed),
            (&costly, HashError::Cost(15)),
            ("$6$salt$short", HashError::Malformed),
            ("$6$rounds=10$salt$short", HashError::Malformed),
            ("$6$rounds=2000000$salt$short", HashError::Rounds),
            ("$5$", HashError::Malformed),
        ];
        for (text, expected) in table {
            assert_eq!(PasswordHash::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn login_that_is_too_long_is_wrong() {
        let passwords = passwords(&[("alice", SHA512)]);
        let candidate = |length: usize| {
            let login = format!("alice:{}", "x".repeat(length - "alice:".len()));
            let candidate = passwords.candidate(login.as_bytes(), 0).unwrap();
            (candidate.principal.is_some(), candidate.password.len())
        };
        assert_eq!(candidate(MAX_LOGIN_BYTES), (true, MAX_LOGIN_BYTES - 6));
        assert!(!candidate(MAX_LOGIN_BYTES + 1).0);
        assert!(candidate(100_000).1 < MAX_LOGIN_BYTES);
    }

    #[test]
    fn login_is_read_from_its_scheme_only() {
        let table: [(&str, Option<&str>); 8] = [
            ("Basic YWxpY2U6c2VjcmV0", Some("alice:secret")),
            ("bAsIc   YWxpY2U6c2VjcmV0 ", Some("alice:secret")),
            ("Basic\tYWxpY2U6YTpi", Some("alice:a:b")),
            ("Basic alice:secret", Some(":")),
            ("Basic YWxpY2U6c2VjcmV0=", Some(":")),
            ("Basic", Some("")),
            ("BasicYWxpY2U6c2VjcmV0", None),
            ("Bearer YWxpY2U6c2VjcmV0", None),
        ];
        for (value, expected) in table {
            let read = login(value.as_bytes()).map(|login| String::from_utf8(login).unwrap());
            assert_eq!(read.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn unknown_users_get_the_hash_of_some_user() {
        let passwords = passwords(&[("alice", SHA512), ("bob", SHA256)]);
        let of = |login: &'static str, any| {
            let candidate = passwords.candidate(login.as_bytes(), any).unwrap();
            let id = candidate.principal.map(|known| known.id.to_string());
            (id, String::from_utf8_lossy(candidate.password).into_owned(), candidate.hash.clone())
        };
        let alice = PasswordHash::parse(SHA512).unwrap();
        let bob = PasswordHash::parse(SHA256).unwrap();
        assert_eq!(of("alice:a:b", 1), (Some("alice".into()), "a:b".into(), alice.clone()));
        assert_eq!(of("bob:", 0), (Some("bob".into()), String::new(), bob.clone()));
        for login in ["carol:x", "Alice:x", ":x", "alice\0:x", "alice :x"] {
            assert_eq!(of(login, 6).0, None, "{login}");
            assert_eq!((of(login, 6).2, of(login, 7).2), (alice.clone(), bob.clone()), "{login}");
        }
        assert_eq!(of("alice:a\0b", 0).0, None);
        assert_eq!(of("alice", 0).1, "", "no colon: no password");
    }
}
