use proptest::prelude::*;

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn parse(text: &str) -> Option<(String, bool)> {
    let parent = Parent::parse(text.as_bytes())?;
    Some((format!("{} {:?}", parent.trace, parent.span), parent.is_sampled))
}

#[test]
fn traceparent_is_parsed_as_w3c_defines() {
    let good = Some(format!("{TRACE} {SPAN}"));
    // (the text, whether it is valid, whether it is sampled)
    let table = [
        (format!("00-{TRACE}-{SPAN}-01"), true, true),
        (format!("00-{TRACE}-{SPAN}-00"), true, false),
        // Unknown flags are ignored.
        (format!("00-{TRACE}-{SPAN}-ff"), true, true),
        (format!("00-{TRACE}-{SPAN}-fe"), true, false),
        // A later version may have more fields after those of version 00.
        (format!("cc-{TRACE}-{SPAN}-01"), true, true),
        (format!("cc-{TRACE}-{SPAN}-01-more"), true, true),
        (format!("cc-{TRACE}-{SPAN}-01-"), true, true),
        (format!("cc-{TRACE}-{SPAN}-01.more"), false, false),
        (format!("cc-{TRACE}-{SPAN}-0"), false, false),
        (format!("00-{TRACE}-{SPAN}-01-more"), false, false),
        (format!("00-{TRACE}-{SPAN}-01-"), false, false),
        (format!("ff-{TRACE}-{SPAN}-01"), false, false),
        (format!("0-{TRACE}-{SPAN}-01"), false, false),
        (format!("000-{TRACE}-{SPAN}-01"), false, false),
        (format!("0x-{TRACE}-{SPAN}-01"), false, false),
        (format!("00-{}-{SPAN}-01", "0".repeat(32)), false, false),
        (format!("00-{TRACE}-{}-01", "0".repeat(16)), false, false),
        (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), false, false),
        (format!("00-{TRACE}-{}-01", SPAN.to_uppercase()), false, false),
        (format!("00-{TRACE}-{SPAN}-0A"), false, false),
        (format!("CC-{TRACE}-{SPAN}-01"), false, false),
        (format!("00-{}-{SPAN}-01", &TRACE[1..]), false, false),
        (format!("00-{TRACE}0-{SPAN}-01"), false, false),
        (format!("00-{TRACE}-{}-01", &SPAN[1..]), false, false),
        (format!("00-{TRACE}-{SPAN}-1"), false, false),
        (format!("00-{TRACE}-{SPAN}-001"), false, false),
        (format!("00-{TRACE}-{SPAN}"), false, false),
        (format!("00_{TRACE}-{SPAN}-01"), false, false),
        (format!("00-{TRACE}_{SPAN}-01"), false, false),
        (format!("00-{TRACE}-{SPAN}_01"), false, false),
        (format!(" 00-{TRACE}-{SPAN}-01"), false, false),
        (format!("00-{TRACE}-{SPAN}-01 "), false, false),
        (format!("00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01"), false, false),
        (format!("00-{}-{SPAN}-01", TRACE.replace('a', "g")), false, false),
        (format!("00-{}-{SPAN}-01", TRACE.replacen("0a", "+a", 1)), false, false),
        ("00-".to_owned(), false, false),
        (String::new(), false, false),
        ("-".repeat(55), false, false),
        ("\u{e4}".repeat(30), false, false),
    ];
    for (text, is_valid, is_sampled) in table {
        let expected = good.clone().filter(|_| is_valid).map(|ids| (ids, is_sampled));
        assert_eq!(parse(&text), expected, "{text}");
    }
}

#[test]
fn tracestate_is_valid_by_the_syntax_of_w3c() {
    let many = |count: usize| (0..count).map(|at| format!("k{at}=v")).collect::<Vec<_>>().join(",");
    let long = "k".repeat(256);
    let table = [
        ("", true),
        ("a=b", true),
        ("a=b,c=d", true),
        (" a=b ,\t c=d\t,", true),
        (",,", true),
        ("fw529a3039@dt=FfAAAAKkAAJcAAAA", true),
        ("0a-_*/@b=!\"#$%&'()*+-./09:;<>?@AZ[]^_`az{|}~ x", true),
        (&many(32), true),
        (&many(33), false),
        (&format!("{long}={long}"), true),
        (&format!("{long}k=v"), false),
        (&format!("k={long}v"), false),
        ("a", false),
        ("=b", false),
        ("a=", false),
        ("a=b=c", false),
        ("A=b", false),
        ("a b=c", false),
        ("-a=b", false),
        ("a=b\u{7f}", false),
        ("a=\u{e4}", false),
        ("a=b,c", false),
    ];
    for (text, expected) in table {
        assert_eq!(is_tracestate([text.as_bytes()]), expected, "{text}");
    }
    assert!(is_tracestate([&b"a=b"[..], b"c=d"]));
    assert!(!is_tracestate([many(20).as_bytes(), many(20).as_bytes()]));
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn formatted_traceparent_is_parsed_to_the_same(trace in 1..u128::MAX, span in 1..u64::MAX, is_sampled: bool) {
        let (trace, span) = (TraceId::of(trace).unwrap(), SpanId::of(span).unwrap());
        let parent = Parent { trace, span, is_sampled };
        let header = parent.header();
        prop_assert_eq!(header.len(), LENGTH);
        prop_assert_eq!(Parent::parse(header.as_bytes()), Some(parent));
        let shown = format!("00-{trace}-{span:?}-0{}", u8::from(is_sampled));
        prop_assert_eq!(header.to_str().unwrap(), shown);
    }

    /// Formatting a parsed header gives the same ids.
    #[test]
    fn parsed_traceparent_is_formatted_with_the_same_ids(text in "[0-9a-fA-F]{2}-[0-9a-fA-F]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?") {
        if let Some(parent) = Parent::parse(text.as_bytes()) {
            let formatted = parent.header();
            prop_assert_eq!(&formatted.to_str().unwrap()[3..52], &text[3..52]);
        }
    }

    #[test]
    fn malformed_input_does_not_panic(text: Vec<u8>, state: Vec<u8>) {
        let _ = Parent::parse(&text);
        let _ = is_tracestate([&state[..]]);
    }
}
