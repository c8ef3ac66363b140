//! Any text, in every place.

use narrows_escape::{html, indented, is_hidden, json, label, line, lines, shell};
use proptest::prelude::*;
use std::process::Command;

/// Any text, with more of the letters that have a meaning somewhere than chance would give.
fn hostile() -> impl Strategy<Value = String> {
    let letter = prop_oneof![
        any::<char>(),
        proptest::sample::select(
            " ;&|<>$`\\\"'(){}[]*?!#~=%^-\t\n\r\x1b\x07\x7f\u{9b}\u{202e}\u{2028}\u{feff}a0"
                .chars()
                .collect::<Vec<_>>()
        ),
    ];
    proptest::collection::vec(letter, 0..16).prop_map(|letters| letters.into_iter().collect())
}

proptest! {
    #[test]
    fn no_hidden_character_is_left(text in hostile()) {
        prop_assert!(!line(&text).contains(is_hidden));
        prop_assert!(!shell(&text).contains(is_hidden));
        prop_assert!(!lines(&text).contains(|it| is_hidden(it) && !matches!(it, '\n' | '\t')));
        for (number, shown) in indented(&text).split('\n').enumerate() {
            prop_assert!(!shown.contains(is_hidden));
            prop_assert!(number == 0 || shown.starts_with("    "), "{shown:?}");
        }
    }

    #[test]
    fn json_means_the_same(text in hostile()) {
        let written = serde_json::to_string_pretty(&[&text]).unwrap();
        let shown = json(&written);
        prop_assert!(!shown.contains(|it| is_hidden(it) && it != '\n'));
        prop_assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [text]);
    }

    #[test]
    fn nothing_leaves_its_quotes_or_its_element(text in hostile()) {
        let shown = label(&text);
        prop_assert!(!shown.contains('\n'));
        prop_assert!(!shown.replace("\\\\", "").replace("\\\"", "").contains('"'));
        prop_assert!(!html(&text).contains(['<', '>', '"', '\'']));
    }
}

/// Each shell that is here prints every word as it was. `sh` may be one without `$'...'`.
#[test]
fn a_shell_reads_each_word_as_it_was() {
    let letters = (1..=0xff).filter_map(char::from_u32).chain(['\u{202e}', '\u{feff}', 'Ω']);
    let mut words: Vec<String> = letters.map(|letter| format!("{letter}a{letter}1")).collect();
    words.extend(
        ["", ";reboot;", "$(reboot)", "`reboot`", "a'b\"c", "\\", "~", "-n"].map(String::from),
    );
    for (program, takes_hidden) in [("bash", true), ("zsh", true), ("sh", false)] {
        let is_read = |word: &&String| takes_hidden || !word.contains(is_hidden);
        let words: Vec<&String> = words.iter().filter(is_read).collect();
        let quoted: Vec<_> = words.iter().map(|word| shell(word)).collect();
        let script = format!("printf '%s\\0' {}", quoted.join(" "));
        let Ok(output) = Command::new(program).args(["-c", &script]).output() else { continue };
        let mut said: Vec<_> = output.stdout.split(|byte| *byte == 0).collect();
        assert_eq!(said.pop(), Some(&b""[..]), "{program}: {output:?}");
        let wanted: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(said, wanted, "{program}");
    }
}
