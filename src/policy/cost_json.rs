//! Costs in JSON: numbers, as in the file. Separate from [`Cost`], whose module depends on no other
//! crate.

use crate::limit::cost::Cost;

impl serde::Serialize for Cost {
    /// A number: whole, or with decimals.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.whole() {
            Some(tokens) => serializer.serialize_u64(tokens),
            None => serializer.serialize_f64(self.as_f64()),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Cost {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?.to_string();
        let invalid = || serde::de::Error::custom("a cost is above 0, with at most three decimals");
        Self::parse(&number).ok_or_else(invalid)
    }
}

/// The schema is that of a number.
#[cfg(test)]
impl schemars::JsonSchema for Cost {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        f64::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        f64::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_a_number_in_json() {
        for (text, json) in [("5", "5"), ("0.5", "0.5"), ("0.001", "0.001"), ("12.125", "12.125")] {
            let cost = Cost::parse(text).unwrap();
            assert_eq!(serde_json::to_string(&cost).unwrap(), json);
            assert_eq!(serde_json::from_str::<Cost>(json).unwrap(), cost);
        }
        assert!(serde_json::from_str::<Cost>("0").is_err());
    }
}
