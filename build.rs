//! Gives the program what `tollgate --version` prints about its build, and places the functions
//! that serve requests side by side if it is optimised.
//!
//! The linker keeps the order of the compiler: a request then runs through code that is spread over
//! all of the program, of which nine tenths are for other things, and which grows with each of
//! these. `order.ld` lists what requests run, by names without their hashes. Functions that it does
//! not name stay where they are, and names that no function has do nothing.

use std::env;

fn main() {
    describe_build();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=order.ld");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    // A program without optimisation has 240,000 addresses that are adjusted at each start if it
    // can be loaded anywhere: 3 ms of processor time, in thousands of tests. A static one is linked
    // by `-static-pie`, which this would undo.
    if is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("OPT_LEVEL", "0")
        && !flags.contains("crt-static")
    {
        println!("cargo:rustc-link-arg=-no-pie");
    }
    // A profile orders functions itself, and these linkers do not read the script.
    let others = ["profile-use", "profile-generate", "=gold", "=mold", "=wild"];
    let is_other = others.iter().any(|word| flags.contains(word));
    if is("CARGO_CFG_TARGET_OS", "linux") && is("OPT_LEVEL", "3") && !is_other {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/order.ld");
    }
}

/// For `tollgate --version`. The commit is given by the scripts that build releases: found here, it
/// would compile everything again after each commit.
fn describe_build() {
    println!("cargo:rerun-if-env-changed=TOLLGATE_COMMIT");
    let commit = env::var("TOLLGATE_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo:rustc-env=TOLLGATE_COMMIT={commit}");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let profile = env::var("PROFILE").unwrap_or_default();
    let guided = if flags.contains("profile-use") { ", profile-guided" } else { "" };
    let linked = if flags.contains("+crt-static") { ", static" } else { "" };
    println!("cargo:rustc-env=TOLLGATE_BUILD={profile}{guided}{linked}");
    println!("cargo:rustc-env=TOLLGATE_TARGET={}", env::var("TARGET").unwrap_or_default());
}
