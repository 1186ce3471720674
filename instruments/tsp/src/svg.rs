//! Draws a tour as SVG, for light and dark pages.

use std::f64::consts::TAU;
use std::fmt::Write as _;

use crate::{Instance, Tour};

/// Width and height of the drawing.
const SIDE: f64 = 600.0;
/// Space around the cities.
const MARGIN: f64 = 40.0;
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#222}\
     polygon{fill:none;stroke:#0072b2;stroke-width:2}circle{fill:#d55e00}\
     @media(prefers-color-scheme:dark){text{fill:#ddd}polygon{stroke:#56b4e9}circle{fill:#ff8a4c}}";

/// Draws a tour. Cities without places stand on a circle, in the order of their numbers.
///
/// ```
/// use squall_tsp::{exact::held_karp, shipped, svg};
///
/// let instance = shipped::find("plane8").unwrap().instance();
/// let text = svg(&instance, &held_karp(&instance).unwrap());
/// assert!(text.starts_with("<svg ") && text.matches("<circle ").count() == 8);
/// ```
///
/// # Panics
/// If the tour is of another instance with more cities.
#[must_use]
pub fn svg(instance: &Instance, tour: &Tour) -> String {
    let places = places(instance);
    let title = escaped(&format!("{}: a tour of length {}", instance.name(), tour.length()));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIDE} {SIDE}\" role=\"img\" aria-label=\"{title}\">\
         <style>{STYLE}</style>\n<text x=\"{MARGIN}\" y=\"20\">{title}</text>\n<polygon points=\""
    );
    // Writing to a string does not fail.
    for &city in tour.cities() {
        let [x, y] = places[city];
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text += "\"/>\n";
    for (city, [x, y]) in places.iter().enumerate() {
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 6.0,
            y - 6.0,
            city + 1
        );
    }
    text + "</svg>\n"
}

/// The places of the cities in the drawing.
fn places(instance: &Instance) -> Vec<[f64; 2]> {
    let Some(places) = instance.places() else {
        let angle = |city: usize| TAU * city as f64 / instance.cities() as f64;
        let at = |value: f64| SIDE / 2.0 + value * (SIDE / 2.0 - MARGIN);
        return (0..instance.cities()).map(|city| [at(angle(city).sin()), at(-angle(city).cos())]).collect();
    };
    let least = |axis: usize| places.iter().map(|place| place[axis]).fold(f64::INFINITY, f64::min);
    let most = |axis: usize| places.iter().map(|place| place[axis]).fold(f64::NEG_INFINITY, f64::max);
    let (left, bottom) = (least(0), least(1));
    let extent = (most(0) - left).max(most(1) - bottom);
    // All cities may be at one place.
    let scale = if extent > 0.0 { (SIDE - 2.0 * MARGIN) / extent } else { 0.0 };
    // Coordinates grow upwards, and those of the drawing downwards.
    let at = |[x, y]: &[f64; 2]| [MARGIN + (x - left) * scale, SIDE - MARGIN - (y - bottom) * scale];
    places.iter().map(at).collect()
}

/// Escapes a text for XML, and leaves out characters that XML forbids.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    #[test]
    fn each_city_is_inside_of_the_drawing() {
        let one_place = Instance::new("one", vec![0; 4]).expect("an instance").with_places(vec![[5.0; 2]; 2]);
        let all = shipped::ALL.iter().map(|it| it.instance()).chain([one_place]);
        for instance in all {
            let places = places(&instance);
            let inside = |at: &f64| (MARGIN - 0.1..=SIDE - MARGIN + 0.1).contains(at);
            assert!(places.iter().flatten().all(inside), "{}: {places:?}", instance.name());
        }
    }

    #[test]
    fn a_name_cannot_leave_its_text() {
        let instance = Instance::new("<script>\"&\u{1b}", vec![0, 1, 1, 0]).expect("an instance");
        let text = svg(&instance, &Tour::new(&instance, vec![0, 1]).expect("a tour"));
        assert!(text.contains("&lt;script&gt;&quot;&amp;:") && !text.contains("<script"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
