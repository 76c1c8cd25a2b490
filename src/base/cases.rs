//! How many cases property tests run. Integration tests use this file, too.

use proptest::test_runner::Config;

/// Environment variable with the factor by which tests run more cases than usual: `.ci/nightly`
/// sets it.
const FACTOR: &str = "TOLLGATE_CASES_FACTOR";

/// Number of cases of a test that runs `usual` of them at each change.
///
/// `PROPTEST_CASES` would not do: in the `proptest!` macro it replaces the number that a test has
/// chosen, however long a case takes, and elsewhere a chosen number replaces it.
pub(crate) fn cases(usual: u32) -> u32 {
    let factor = std::env::var(FACTOR).map_or(1, |factor| factor.parse().unwrap());
    usual * factor
}

/// The configuration of a test that runs this many [`cases`].
pub(crate) fn with_cases(usual: u32) -> Config {
    Config::with_cases(cases(usual))
}
