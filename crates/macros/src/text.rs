//! Looks at tokens, and their text, which depends neither on how they were written nor on who prints them.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The tokens with a space between any two.
pub(crate) fn text(tokens: TokenStream) -> String {
    let mut text = String::new();
    write(tokens, &mut text);
    text
}

/// Whether there is such a token.
pub(crate) fn has(tokens: TokenStream, is_it: &impl Fn(&TokenTree) -> bool) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => has(group.stream(), is_it),
        token => is_it(&token),
    })
}

fn write(tokens: TokenStream, text: &mut String) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("( ", ") "),
                    Delimiter::Brace => ("{ ", "} "),
                    Delimiter::Bracket => ("[ ", "] "),
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                write(group.stream(), text);
                text.push_str(close);
            }
            token => {
                text.push_str(&token.to_string());
                text.push(' ');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_do_not_count() {
        let texts = ["Vec<(u8,[u16;3])>", " Vec < ( u8 , [ u16 ; 3 ] ) > "];
        let texts = texts.map(|tokens| text(tokens.parse().unwrap()));
        assert_eq!(texts[0], "Vec < ( u8 , [ u16 ; 3 ] ) > ");
        assert_eq!(texts[0], texts[1]);
    }
}
