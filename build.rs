//! Places the functions that serve requests side by side in the optimised program.
//!
//! The linker keeps the order of the compiler: a request then runs through code that is spread over
//! all of the program, of which nine tenths are for other things, and which grows with each of
//! these. `order.ld` lists what requests run, by names without their hashes. Functions that it does
//! not name stay where they are, and names that no function has do nothing.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=order.ld");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // A profile orders functions itself, and these linkers do not read the script.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let others = ["profile-use", "profile-generate", "=gold", "=mold", "=wild"];
    let is_other = others.iter().any(|word| flags.contains(word));
    if is("CARGO_CFG_TARGET_OS", "linux") && is("OPT_LEVEL", "3") && !is_other {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/order.ld");
    }
}
