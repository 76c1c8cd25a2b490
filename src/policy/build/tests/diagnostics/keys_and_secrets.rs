//! Keys, whose secrets are never shown.

use super::super::render;

#[test]
fn sha256_is_not_the_hash_of_a_key() {
    insta::assert_snapshot!(render("[keys.k]\nsha256 = 'my-secret-key'"), @r"
    error: `sha256` is not the hash of a key: it has 64 hexadecimal digits
     --> gateway.toml:2:10
      |
    2 | sha256 = ***************
      |          ^^^^^^^^^^^^^^^ not shown
      |
      = help: if this is the key itself, run `tollgate hash-key`: it prints the line to write

    gateway.toml: 1 error
    ");
}

#[test]
fn unknown_name_sha265_in_keys_k() {
    insta::assert_snapshot!(render("[keys.k]\nsha265 = 'my-secret-key'"), @r"
    error: unknown name `sha265` in `keys.k`
     --> gateway.toml:2:1
      |
    2 | sha265 = ***************
      | ^^^^^^
      |
      = help: did you mean `sha256`?

    gateway.toml: 1 error
    ");
}

#[test]
fn a_string_needs_quotes() {
    insta::assert_snapshot!(render("[keys.k]\nsha256 = my-secret-key"), @r#"
    error: a string needs quotes
     --> gateway.toml:2:10
      |
    2 | sha256 =**************
      |          ^^^^^^^^^^^^^
      |
      = help: write it as `"…"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn two_keys_have_one_sha256() {
    insta::assert_snapshot!(render("[keys.a]\nsha256 = '9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F'\n\n[keys.b]\nsha256 = '9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f'"), @r"
    error: two keys have one `sha256`: they are the same key
     --> gateway.toml:5:10
      |
    2 | sha256 = '9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F'
      |          ------------------------------------------------------------------ here first
    ...
    5 | sha256 = '9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f'
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: take one of them out

    gateway.toml: 1 error
    ");
}

#[test]
fn the_key_k_has_no_sha256() {
    insta::assert_snapshot!(render("[keys.k]\nplan = 'x'"), @r"
    error: the key `k` has no `sha256`
     --> gateway.toml:1:7
      |
    1 | [keys.k]
      |       ^
      |
      = help: run `tollgate hash-key`: it makes a key and prints the lines for it

    error: there is no plan `x`
     --> gateway.toml:2:8
      |
    2 | plan = 'x'
      |        ^^^
      |
      = help: add `[plans.x]`; the file has no plans, so all clients have one, `default`

    gateway.toml: 2 errors
    ");
}

#[test]
fn secrets_of_a_client_are_keys_with_names_and_times() {
    let (one, two) = ("1f".repeat(32), "2f".repeat(32));
    let items = [
        "{ name = 'a' }".to_owned(),
        format!("{{ name = 'a b', sha256 = '{one}', expires = 2027-01-31 }}"),
        format!("{{ name = 'a', sha256 = '{one}', expires = '2027-01-31T10:00:00' }}"),
        format!("{{ sha256 = '{one}', not_before = 1, expires = 'soon' }}"),
        format!(
            "{{ sha256 = '{two}', not_before = 2027-01-31T00:00:00Z, \
             expires = 2027-01-31T01:00:00+01:00 }}"
        ),
        format!("{{ sha256 = '{one}' }}"),
        format!("{{ sha256 = '{}' }}", one.to_uppercase()),
        "'hunter2'".to_owned(),
        "{ sha256 = 'hunter2', token = 'hunter2' }".to_owned(),
    ];
    let items = items.join(",\n");
    insta::assert_snapshot!(render(&format!("[keys.k]\nsecrets = [\n{items}\n]")));
    insta::assert_snapshot!(render("[keys.k]\nsecrets = []\nexpires = 1\nenabled = 'no'"));
}

#[test]
fn the_key_k_has_no_plan() {
    insta::assert_snapshot!(render("[plans.free]\n[keys.k]\nsha256 = '9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F'"), @r#"
    error: the key `k` has no plan
     --> gateway.toml:2:7
      |
    2 | [keys.k]
      |       ^
      |
      = help: add `plan = "free"`

    gateway.toml: 1 error
    "#);
}

#[test]
fn sha256_has_64_hexadecimal_digits_not_63() {
    insta::assert_snapshot!(render("[keys.k]\nsha256 = '9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9F9'"), @r"
    error: `sha256` has 64 hexadecimal digits, not 63
     --> gateway.toml:2:10
      |
    2 | sha256 = *****************************************************************
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ not shown
      |
      = help: if this is the key itself, run `tollgate hash-key`: it prints the line to write

    gateway.toml: 1 error
    ");
}

#[test]
fn secrets_are_in_no_message() {
    for text in [
        "[keys.a]\nsha256 = \"hunter2\"",
        "[keys.a]\nsha256 = hunter2",
        "[keys.a]\nsha256 = \"hunter2",
        "[keys.a]\nsha256 hunter2",
        "[keys.a]\n\"hunter2\"",
        "[keys.a]\nkey = \"hunter2\"\nplan = 5",
        "[keys.a]\nsha256 = [\"hunter2\", 5]",
        "[keys.a]\nsha256 = { x = \"hunter2\" }",
        "[keys.a]\nsha256 = \"\"\"\nhunter2\n\"\"\"",
        "[keys.a]\nsha256 = 'hunter2'\nsha256 = 'hunter2'",
        "[keys]\na = 'hunter2'",
        "[keys]\na = ['hunter2']",
        "keys = ['hunter2']",
        "keys = 'hunter2'",
        "[keys.a\nsha256 = 'hunter2'",
        "[key.a]\nsha256 = 'hunter2'",
        "[redis]\nurl = 'redis://u:hunter2@h:x'",
        "[redis]\nurl = 'redis://u:hun/hunter2@h'",
        "[redis]\nurl = 'tcp:hunter2@h'\npassword = 5",
        "[redis]\nurl = 'redis://h'\npassword = ['hunter2']",
        "[redis]\nurl = 'redis://h'\nsecret = 'hunter2'",
        "[redis]\nurl = 'redis://:hunter2@h'\npassword = 'hunter2'",
        "[redis]\nurl = 'redis://h'\npassword = 'hunter2${'",
        "[redis]\nurl = 'redis://h'\npassword = 'hunter2${NOT_SET_ANYWHERE}'",
        "[upstreams.u]\nservers = ['http://u:hunter2@h:1']",
    ] {
        let shown = render(text);
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("error"), "{text}: {shown}");
    }
}

#[test]
fn list_of_secrets_has_double_brackets_and_no_secret_in_its_help() {
    let (table, list) = ("[keys.k.secrets]\n", "[[keys.k.secrets]]\n");
    let digest = |digit: &str| format!("sha256 = '{}'\n", digit.repeat(64));
    let (first, second) = (digest("1"), digest("2"));
    for file in [
        "[keys.k]\nsecrets = 'my-secret-key'".to_owned(),
        "[keys.k]\nsecrets = ['my-secret-key']".to_owned(),
        "[keys.k]\nsecrets = [['my-secret-key']]".to_owned(),
        format!("{table}{first}"),
        format!("{table}{first}{table}{second}"),
        format!("{list}{first}{table}{second}"),
        format!("{table}{first}{list}{second}"),
    ] {
        let text = render(&file);
        let help = "help: write `[[keys.k.secrets]]`, in double brackets, for each key";
        assert!(text.contains(help) && !text.contains("my-secret-key"), "{file}\n{text}");
    }
}
