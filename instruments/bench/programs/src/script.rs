//! A script of strings, arrays, maps and closures.

use rhai::{Engine, INT};

const THREADS: usize = 2;

const SCRIPT: &str = r#"
fn word(seed) {
    let letters = ["ka", "lo", "mi", "ne", "ru", "sa", "to", "vu"];
    let text = "";
    for index in 0..(2 + seed % 5) {
        text += letters[(seed / (index + 1)) % 8];
    }
    text
}

fn count(rounds) {
    let sum = 0;
    for round in 0..rounds {
        let words = [];
        for index in 0..400 {
            words.push(word(round * 31 + index * 17));
        }
        let by_word = #{};
        for text in words {
            if text in by_word {
                by_word[text] += [text + round];
            } else {
                by_word[text] = [text];
            }
        }
        let longest = words.map(|text| text.len()).reduce(|a, b| if a > b { a } else { b }, 0);
        let long = words.filter(|text| text.len() == longest).map(|text| text.to_upper() + "!");
        let rows = [];
        for key in by_word.keys() {
            rows.push(#{ name: key, list: by_word[key], tags: [key + "-a", key + "-b"] });
        }
        rows.sort(|a, b| if a.name < b.name { -1 } else if a.name > b.name { 1 } else { 0 });
        sum += rows.len() + long.len() + rows[0].tags[1].len();
    }
    sum
}

count(150)
"#;

/// Runs the script on each thread; returns the sum of the results.
pub(crate) fn run() -> u64 {
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            std::thread::spawn(|| {
                let mut engine = Engine::new();
                engine.set_max_expr_depths(0, 0);
                engine.eval::<INT>(SCRIPT).expect("the script failed") as u64
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("a thread of the script panicked")).sum()
}
