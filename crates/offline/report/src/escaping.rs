//! Names from recordings inside pages and issue trackers: they are shown as they are, and mean nothing there.

use msmemscope_event::{is_steering, visible};

/// A text for a page. Characters that steer the direction of writing are spelled out.
pub fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter if is_steering(letter) => escaped.push_str(&visible(letter.encode_utf8(&mut [0; 4]))),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A text for Markdown, on one line: no emphasis, no table cells, no links, no pages, nobody mentioned, no issue
/// referred to.
pub fn markdown(text: &str) -> String {
    let text = visible(text);
    let mut escaped = String::with_capacity(text.len());
    let mut previous = ' ';
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '$' => {
                // Within a word an underscore is no emphasis, and names of functions stay readable.
                let is_within_word = letter == '_'
                    && previous.is_alphanumeric()
                    && letters.peek().is_some_and(|next| next.is_alphanumeric());
                if !is_within_word {
                    escaped.push('\\');
                }
                escaped.push(letter);
            }
            // A comment keeps trackers from making links and mentions out of what follows.
            '@' | '#' if !previous.is_alphanumeric() => {
                escaped.push(letter);
                escaped.push_str("<!-- -->");
            }
            ':' if letters.peek() == Some(&'/') => escaped.push_str(":<!-- -->"),
            '.' if escaped.ends_with("www") => escaped.push_str("<!-- -->."),
            _ => escaped.push(letter),
        }
        previous = letter;
    }
    escaped
}

/// A name as code in Markdown, also within a table.
pub fn markdown_code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let text = visible(text).replace('|', "\\|");
    let longest_run = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest_run + 1);
    match longest_run > 0 {
        true => format!("{fence} {text} {fence}"),
        false => format!("{fence}{text}{fence}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_no_elements() {
        assert_eq!(
            html("</script><b title=\"x\">'&\u{202e}"),
            "&lt;/script&gt;&lt;b title=&quot;x&quot;&gt;&#39;&amp;\\u{202e}"
        );
        assert_eq!(html("训练.py:3 f"), "训练.py:3 f");
    }

    #[test]
    fn names_are_no_markdown() {
        assert_eq!(markdown("a|b *c* <img> `d` [e](f)"), "a\\|b \\*c\\* \\<img\\> \\`d\\` \\[e\\](f)");
        assert_eq!(markdown("remember_loss in __main__"), "remember_loss in \\_\\_main\\_\\_");
        assert_eq!(markdown("ask @all about #7, PTA@model"), "ask @<!-- -->all about #<!-- -->7, PTA@model");
        assert_eq!(markdown("https://evil.example www.evil"), "https:<!-- -->//evil.example www<!-- -->.evil");
        assert_eq!(markdown("one\ntwo\u{202e}"), "one\\\\ntwo\\\\u{202e}", "one line stays one line");
        assert_eq!(markdown_code("a`b``c|d"), "``` a`b``c\\|d ```");
        assert_eq!((markdown_code("train.py:3"), markdown_code("")), ("`train.py:3`".into(), String::new()));
    }
}
