//! Writes the report: one HTML page that loads no other file, and each plot as an SVG file.

use std::fs;
use std::io;
use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use squall_bench::env;

use crate::plot::{inline, style, svg};
use crate::{Done, Figure};

/// Above this part of the processors' time, foreign load is told on the page.
pub const FOREIGN_TOLD: f64 = 0.05;

const STYLE: &str = ":root{color-scheme:light dark;--paper:#fff;--faint:#666;--good:#087443;--bad:#b00020;--half:#8a5a00}\
@media(prefers-color-scheme:dark){:root{--paper:#16181b;--faint:#9aa0a6;--good:#4cd08c;--bad:#ff8a80;--half:#f0b84a}}\
body{font:16px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:var(--ink);background:var(--paper)}\
table{border-collapse:collapse;margin:.6em 0}td,th{padding:.2em .8em;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}\
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}small{color:var(--faint)}\
.agrees{color:var(--good);font-weight:600}.differs{color:var(--bad);font-weight:600}.part{color:var(--half);font-weight:600}\
section{border-top:1px solid var(--rule);margin-top:2em}svg{max-width:100%;height:auto;display:block}\
code{font-size:.9em;overflow-wrap:anywhere}a{color:inherit}";

/// Writes `index.html` and the plots into this folder, which is created.
///
/// # Errors
/// A file could not be written; the error names it.
pub fn write(folder: &Path, done: &[Done], quick: bool) -> io::Result<()> {
    let told =
        |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| told(folder, error))?;
    let file = |name: String, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| told(&path, error))
    };
    for plot in done.iter().flat_map(|it| &it.found.plots) {
        file(format!("{}.svg", plot.name), &svg(plot))?;
    }
    file("index.html".to_owned(), &page(done, quick))
}

/// The page.
#[must_use]
pub fn page(done: &[Done], quick: bool) -> String {
    let count = |word| done.iter().filter(|it| it.verdict.word() == word).count();
    let shape = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Squall: experiments of the literature" }
                style { (PreEscaped(style())) (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Experiments of the literature, on this machine" }
                p { (env::summary()) @if quick { ". A quick run: few and short rounds." } }
                p {
                    "Shape of the figures, compared with the papers: "
                    span.agrees { (count("agrees")) " agree" } ", "
                    span.differs { (count("differs")) " differ" } ", "
                    span.part { (count("part")) " in part" } "."
                }
                p { small {
                    "Timed figures are medians on this machine. Counted figures are exact numbers of memory accesses, "
                    "counted while the code ran under emulation, with one virtual processor per thread. Modelled "
                    "figures are computed from counts by a model of a larger machine. Stepped figures are events that the code counted "
                    "while one thread stepped all users in a fixed order; they are the same in each run. The papers' machines are 20 to 35 years "
                    "old, so only shapes are compared."
                } }
                table {
                    @for it in done {
                        tr {
                            td { a href={ "#" (it.experiment.id) } { (it.experiment.id) } }
                            td { (it.experiment.title) }
                            td { (word(it)) }
                        }
                    }
                }
                @for it in done { (section(it, quick)) }
            }
        }
    };
    shape.into_string()
}

fn word(done: &Done) -> Markup {
    let word = done.verdict.word();
    let shown = if word == "part" { "compared in part" } else { word };
    html! { span class=(word) { (shown) } }
}

fn section(done: &Done, quick: bool) -> Markup {
    let it = done.experiment;
    let again = format!("{}{} --out again", it.command, if quick { " --quick" } else { "" });
    html! {
        section id=(it.id) {
            h2 { (it.id) " · " (it.title) }
            p { strong { (it.question) } }
            p { "The paper: " (it.paper.found) " " small { (it.paper.source) } }
            p { "Here: " (it.here) }
            p { (word(done)) ": " (done.verdict.why()) }
            p { small { "It agrees if " (it.agrees_if) } }
            @for plot in &done.found.plots {
                h3 { (plot.title) " " small { (plot.means.word()) } }
                (PreEscaped(inline(plot)))
            }
            @if !done.found.figures.is_empty() { (figures(&done.found.figures)) }
            p { small {
                "Repeat it: " code { (again) } ". It took " (done.took.as_secs()) " s."
                @if done.is_disturbed() {
                    " Other programs took " (format!("{:.0}", done.foreign * 100.0))
                    " % of the processors meanwhile, so timed figures may be too high."
                }
            } }
        }
    }
}

fn figures(figures: &[Figure]) -> Markup {
    html! {
        table {
            @for it in figures {
                tr {
                    td { (it.name) }
                    td.n { (digits(it.value)) " " (it.unit) }
                    td { small { (it.means.word()) } }
                }
            }
        }
    }
}

/// A value with three to four digits, and at most three decimals.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ALL, Found};

    fn all_done(found: fn(&'static crate::Experiment) -> Found) -> Vec<Done> {
        let took = Duration::from_secs(3);
        let one = |experiment: &&'static crate::Experiment| {
            let found = found(experiment);
            let verdict = (experiment.verdict)(&found);
            Done { experiment, found, verdict, took, foreign: 0.2 }
        };
        ALL.iter().map(one).collect()
    }

    #[test]
    fn the_page_asks_for_nothing_else() {
        let page = page(&all_done(|it| (it.alike)()), true);
        for outside in ["<script", "<link", "src=", "url(", "@import", "<img", "http-equiv"] {
            assert!(!page.contains(outside), "the page has {outside}");
        }
        // A name of a namespace is no address that a browser asks for.
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    }

    #[test]
    fn the_page_tells_each_experiment() {
        let page = page(&all_done(|it| (it.alike)()), false);
        for it in ALL {
            assert!(page.contains(&format!("<section id=\"{}\"", it.id)), "{} is missing", it.id);
        }
        assert!(page.contains("Other programs took 20 %"));
        assert!(page.contains("<code>squall report EX-K1 --out again</code>"));
    }

    #[test]
    fn a_quick_page_is_repeated_quickly_and_beside_it() {
        let page = page(&all_done(|it| (it.alike)()), true);
        assert!(page.contains("<code>squall report EX-K1 --quick --out again</code>"));
    }

    #[test]
    fn a_small_value_keeps_its_digits() {
        let shown = [0.0351, 1.234, 12.34, 123.4].map(digits);
        assert_eq!(shown, ["0.035", "1.23", "12.3", "123"]);
    }

    #[test]
    fn the_files_are_written_and_an_error_names_its_file() {
        let folder = std::env::temp_dir().join(format!("squall-report-{}", std::process::id()));
        write(&folder, &all_done(|it| (it.alike)()), true).unwrap();
        let plots = ALL.iter().map(|it| (it.alike)().plots.len()).sum::<usize>();
        let written = fs::read_dir(&folder).unwrap().count();
        assert_eq!(written, plots + 1, "a plot's name is used twice");
        let file = folder.join("index.html");
        let error = write(&file, &[], true).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("index.html"), "{error}");
    }
}
