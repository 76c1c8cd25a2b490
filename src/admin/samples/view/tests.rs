//! A sample as readers of the API see it.

use super::*;
use crate::admin::samples::sample::tests::sample;

#[test]
fn sample_is_shown_with_all_its_sums() {
    let mut merged = sample(1_795_281_600_123, "free", 4, 2);
    merged.add(&sample(1_795_281_601_123, "", 0, 1));
    let view = serde_json::to_string_pretty(&SampleView::of(&merged, false)).unwrap();
    insta::assert_snapshot!(view);
}
