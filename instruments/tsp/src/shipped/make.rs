//! Makes the files of this crate from their seeds.

use squall_history::rng::Rng;

use crate::exact::held_karp;
use crate::{Instance, tsplib};

/// Coordinates are below this number.
const SIDE: u64 = 100;

/// Detours are below this number.
const DETOUR: u64 = 8;

fn places(seed: u64, cities: usize) -> Vec<[u32; 2]> {
    let mut rng = Rng::new(seed, cities as u64);
    (0..cities).map(|_| [(); 2].map(|()| rng.below(SIDE) as u32)).collect()
}

/// A file with places on a plane.
fn plane(seed: u64, cities: usize) -> String {
    let mut text = "EDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n".to_owned();
    for (city, [x, y]) in places(seed, cities).into_iter().enumerate() {
        text += &format!("{} {x} {y}\n", city + 1);
    }
    complete(&format!("plane{cities}"), "TSP", seed, cities, &text)
}

/// A file with times of flights in wind: a flight to the east takes half as long again, and each flight has a
/// detour of its own.
fn wind(seed: u64, cities: usize) -> String {
    let mut text =
        "EDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : FULL_MATRIX\nEDGE_WEIGHT_SECTION\n".to_owned();
    let places = places(seed, cities);
    let mut rng = Rng::new(seed, 1);
    for one in &places {
        for other in &places {
            let [east, north] = [0, 1].map(|axis| f64::from(other[axis]) - f64::from(one[axis]));
            let time = (east * east + north * north).sqrt() + 0.5 * east.max(0.0);
            let time = if one == other { 0 } else { time.round() as u64 + rng.below(DETOUR) };
            text += &format!("{time:4}");
        }
        text += "\n";
    }
    complete(&format!("wind{cities}"), "ATSP", seed, cities, &text)
}

/// Adds the header, with the optimum.
fn complete(name: &str, kind: &str, seed: u64, cities: usize, data: &str) -> String {
    let head = |comment: &str| {
        format!("NAME : {name}\nTYPE : {kind}\nCOMMENT : {comment}\nDIMENSION : {cities}\n{data}EOF\n")
    };
    let instance: Instance = tsplib::parse(name, &head("unsolved")).expect("a right text");
    let optimum = held_karp(&instance).expect("few cities").length();
    head(&format!("seed {seed}, optimum {optimum}"))
}

/// The files of ours and their texts.
fn files() -> Vec<(String, String)> {
    // Seeds with many subproblems, among the first 30.
    let seeds = [(8, 1, 1), (10, 1, 1), (12, 1, 1), (14, 1, 26), (16, 2, 25)];
    seeds
        .into_iter()
        .flat_map(|(cities, plane_seed, wind_seed)| {
            [
                (format!("plane{cities}.tsp"), plane(plane_seed, cities)),
                (format!("wind{cities}.atsp"), wind(wind_seed, cities)),
            ]
        })
        .collect()
}

#[test]
fn each_file_of_ours_is_that_of_its_seed() {
    for (file, text) in files() {
        let shipped = super::find(&file).expect("it is shipped");
        assert_eq!(shipped.text, text, "{file}; the ignored test `write` writes it");
    }
}

/// Writes the files, after a change of this one.
#[test]
#[ignore = "changes files"]
fn write() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("instances");
    for (file, text) in files() {
        std::fs::write(folder.join(file), text).expect("the folder is writable");
    }
}
