//! Access control: which requests the page's server answers.
//!
//! Problem: every page in the same browser, and every user of the machine, can send requests to a port of the
//! loopback interface. Idea: a request must prove that its sender knows the address of the page.
//!
//! - I1. Each request carries the token as the first segment of its path. The comparison takes the same time
//!   for all tokens of the right length.
//! - I2. `Host` is `127.0.0.1` with the server's own port, as in the printed address. So a page of another
//!   site is refused even if an attacker resolves its name to the loopback address (DNS rebinding). The name
//!   `localhost` is refused: a browser may send such a request to the server of another user on `::1`.
//! - I3. `Origin`, if present, is this server, and `Sec-Fetch-Site`, if present, is not another site. The
//!   only exception is a link to the page on another site, which opens it as a document of its own.
//! - I4. A request that acts is a POST with the token in the header `x-squall-token`. The form of another
//!   site cannot send this header.
//!
//! Not promised: protection from other programs of the same user. They can connect to the socket directly.

use axum::http::{HeaderMap, HeaderName, Method, header};

/// Header with the token of a request that acts.
pub(crate) const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-squall-token");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");
const TOKEN_BYTES: usize = 24;

/// A random secret, as hexadecimal digits.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Draws a token from the kernel's random numbers.
    pub(crate) fn draw() -> std::io::Result<Token> {
        let mut bytes = [0; TOKEN_BYTES];
        let mut filled = 0;
        while filled < TOKEN_BYTES {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Compares without a branch on the characters.
    fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differences = own.iter().zip(given).fold(0, |seen, (one, other)| seen | (one ^ other));
        own.len() == given.len() && std::hint::black_box(differences) == 0
    }
}

/// Returns the reason why a request is refused, if it is.
pub(crate) fn refusal(
    token: &Token,
    port: u16,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Option<&'static str> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if !text(&header::HOST).is_some_and(|host| is_own_host(host, port)) {
        return Some("the request was sent to another host; use the address that squall browse printed");
    }
    let origin = text(&header::ORIGIN);
    if origin
        .is_some_and(|origin| !origin.strip_prefix("http://").is_some_and(|host| is_own_host(host, port)))
    {
        return Some("the request comes from the page of another site");
    }
    let is_link = *method == Method::GET
        && token.is(path.trim_matches('/').as_bytes())
        && text(&FETCH_MODE) == Some("navigate")
        && text(&FETCH_DESTINATION) == Some("document");
    if !is_link && text(&FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Some("the request comes from the page of another site");
    }
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if !token.is(first.as_bytes()) {
        return Some("the address lacks its token; use the address that squall browse printed");
    }
    match *method {
        Method::GET | Method::HEAD => None,
        Method::POST if headers.get(TOKEN_HEADER).is_some_and(|given| token.is(given.as_bytes())) => None,
        Method::POST => Some("the header x-squall-token is missing or wrong"),
        _ => Some("only GET and POST are allowed"),
    }
}

/// Returns `true` for `127.0.0.1` with this port.
fn is_own_host(host: &str, port: u16) -> bool {
    // A port of 80 may be left out.
    host == format!("127.0.0.1:{port}") || (port == 80 && host == "127.0.0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_printed_host_passes() {
        assert!(is_own_host("127.0.0.1:7", 7) && is_own_host("127.0.0.1", 80));
        let bad = [
            "127.0.0.1:8",
            "127.0.0.1",
            "127.0.0.1:07",
            "127.0.0.2:7",
            "localhost:7",
            "[::1]:7",
            "evil.example:7",
            "10.0.0.1:7",
            "",
            ":7",
            "?",
        ];
        for bad in bad {
            assert!(!is_own_host(bad, 7), "{bad}");
        }
    }

    #[test]
    fn a_token_is_compared_whole() {
        let token = Token::draw().expect("random numbers");
        let text = token.text().to_owned();
        assert_eq!(text.len(), 2 * TOKEN_BYTES);
        assert!(token.is(text.as_bytes()));
        for wrong in [String::new(), text[1..].to_owned(), text.clone() + "0", text.to_uppercase() + "x"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        let mut last = text.clone().into_bytes();
        last[2 * TOKEN_BYTES - 1] ^= 1;
        assert!(!token.is(&last));
        assert_ne!(Token::draw().expect("random numbers").text(), text);
    }

    #[test]
    fn an_action_needs_the_header_and_no_foreign_origin() {
        let token = Token::draw().expect("random numbers");
        let path = format!("/{}/program", token.text());
        let ask = |method: Method, pairs: &[(&HeaderName, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).clone(), value.parse().expect("a value")));
            refusal(&token, 7, &method, &path, &pairs.collect())
        };
        let host = (&header::HOST, "127.0.0.1:7");
        let secret = (&TOKEN_HEADER, token.text());
        assert_eq!(ask(Method::GET, &[host]), None);
        assert_eq!(ask(Method::POST, &[host, secret, (&header::ORIGIN, "http://127.0.0.1:7")]), None);
        let link = [(&FETCH_SITE, "cross-site"), (&FETCH_MODE, "navigate"), (&FETCH_DESTINATION, "document")];
        let page = format!("/{}/", token.text());
        let open = |path: &str, method: Method, pairs: &[(&HeaderName, &str)]| {
            let pairs = pairs.iter().chain([&host, &secret]);
            let pairs = pairs.map(|(name, value)| ((*name).clone(), value.parse().expect("a value")));
            refusal(&token, 7, &method, path, &pairs.collect())
        };
        assert_eq!(open(&page, Method::GET, &link), None, "a link opens the page");
        assert!(open(&page, Method::GET, &link[..2]).is_some(), "a frame does not");
        assert!(open(&path, Method::GET, &link).is_some() && open(&page, Method::POST, &link).is_some());
        for refused in [
            ask(Method::GET, &[]),
            ask(Method::POST, &[host]),
            ask(Method::PUT, &[host, secret]),
            ask(Method::POST, &[host, secret, (&header::ORIGIN, "http://evil.example")]),
            ask(Method::POST, &[host, secret, (&header::ORIGIN, "null")]),
            ask(Method::GET, &[host, (&FETCH_SITE, "cross-site")]),
            ask(Method::GET, &[host, (&FETCH_SITE, "same-site")]),
        ] {
            assert!(refused.is_some());
        }
        let none = HeaderMap::from_iter([(header::HOST, "127.0.0.1:7".parse().expect("a value"))]);
        assert!(refusal(&token, 7, &Method::GET, "/", &none).is_some());
    }
}
