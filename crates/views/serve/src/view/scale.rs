//! What the page says of quality: the steps and reasons of `narrows_quality`, in the words and
//! units of the page.

use narrows_quality::{Application, Reason, Step};
use serde_json::{Value, json};

/// The scale, its reasons, and the applications that are scored. It is the same for all screens.
pub(crate) fn scale() -> Value {
    let steps = Step::LIMITS.map(|limit| {
        json!({
            "step": limit.step,
            "delay": limit.delay_p99_ms * 1e3,
            "dropped": limit.dropped,
        })
    });
    let reasons = Reason::ALL.map(|reason| (json!(reason), json!(reason.text())));
    let reasons = reasons.into_iter().filter_map(|(key, text)| Some((key.as_str()?.into(), text)));
    json!({
        "steps": steps,
        "reasons": Value::Object(reasons.collect()),
        "applications": Application::ALL.map(|application| application.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_told_each_limit_and_a_text_for_each_reason() {
        let scale = scale();
        assert_eq!(scale["steps"][0], json!({"step": "good", "delay": 20_000.0, "dropped": 0.02}));
        assert_eq!(scale["steps"].as_array().unwrap().len(), Step::LIMITS.len());
        assert_eq!(scale["reasons"].as_object().unwrap().len(), Reason::ALL.len());
        assert_eq!(scale["reasons"]["at-ceiling"], "at its ceiling");
    }
}
