//! What `tollgate --version` prints after the name. `-V` prints the number only.

/// The number, and what of the source and of the build is needed to find a bug: build.rs finds it.
pub(super) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("TOLLGATE_COMMIT"),
    "\nbuild:  ",
    env!("TOLLGATE_BUILD"),
    "\ntarget: ",
    env!("TOLLGATE_TARGET"),
    "\nTLS:    rustls with ring\nmemory: mimalloc 2",
);
