use super::*;

const MATRIX: &str = "NAME : m\nTYPE : ATSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EXPLICIT\n\
                      EDGE_WEIGHT_FORMAT : FULL_MATRIX\nEDGE_WEIGHT_SECTION\n9 1 2\n3 9 4\n5 6 9\nEOF\n";

fn weights(instance: &Instance) -> Vec<u32> {
    let cities = 0..instance.cities();
    cities
        .clone()
        .flat_map(|from| cities.clone().map(move |to| (from, to)))
        .map(|(a, b)| instance.weight(a, b))
        .collect()
}

#[track_caller]
fn refuses(text: &str, line: usize, clue: &str) {
    let error = parse("a.tsp", text).expect_err("a wrong text");
    assert!(error.reason.contains(clue) && error.line == line, "{error}\n{text}");
    assert!(error.to_string().starts_with(&format!("a.tsp:{line}: ")));
}

#[test]
fn a_matrix_is_read_row_by_row() {
    let instance = parse("m", MATRIX).expect("a right text");
    assert_eq!((instance.name(), weights(&instance)), ("m", vec![0, 1, 2, 3, 0, 4, 5, 6, 0]));
    // Lines may break anywhere, and a final EOF is optional.
    let other = MATRIX.replace("9 1 2\n3 9 4\n5", "9 1\n2 3 9 4 5\n").replace("EOF\n", "");
    assert_eq!(parse("m", &other), Ok(instance));
}

#[test]
fn each_format_of_a_triangle_gives_its_matrix() {
    // The weights of cities 1 and 2, 1 and 3, 1 and 4, 2 and 3, and so on, are 1 to 6.
    for (format, numbers) in [
        ("UPPER_ROW", "1 2 3 4 5 6"),
        ("LOWER_COL", "1 2 3 4 5 6"),
        ("LOWER_ROW", "1 2 4 3 5 6"),
        ("UPPER_COL", "1 2 4 3 5 6"),
        ("UPPER_DIAG_ROW", "0 1 2 3 0 4 5 0 6 0"),
        ("LOWER_DIAG_COL", "0 1 2 3 0 4 5 0 6 0"),
        ("LOWER_DIAG_ROW", "0 1 0 2 4 0 3 5 6 0"),
        ("UPPER_DIAG_COL", "0 1 0 2 4 0 3 5 6 0"),
        ("FULL_MATRIX", "0 1 2 3 1 0 4 5 2 4 0 6 3 5 6 0"),
    ] {
        let text = format!(
            "TYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {format}\n\
             EDGE_WEIGHT_SECTION\n{numbers}\nEOF\n"
        );
        let instance = parse(format, &text).expect("a right text");
        assert_eq!(weights(&instance), [0, 1, 2, 3, 1, 0, 4, 5, 2, 4, 0, 6, 3, 5, 6, 0], "{format}");
        assert!(instance.is_symmetric());
        refuses(&text.replace("TYPE: TSP\n", ""), 4, "no TYPE");
    }
}

#[test]
fn places_and_the_optimum_are_kept() {
    let text = "TYPE : TSP\nCOMMENT : seed 1, Optimum: 12\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\n\
                NODE_COORD_SECTION\n2 3 0\n1 0.0 0e0\n3 +3 4.0\nEOF\n";
    let instance = parse("t", text).expect("a right text");
    assert_eq!(instance.stated_optimum(), Some(12));
    assert_eq!(instance.places(), Some(&[[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]][..]));
    assert_eq!(weights(&instance), [0, 3, 5, 3, 0, 4, 5, 4, 0]);
}

#[test]
fn wrong_numbers_of_numbers_are_refused() {
    refuses(&MATRIX.replace("5 6 9\n", "5 6\n"), 9, "8 of 9 weights");
    refuses(&MATRIX.replace("5 6 9\n", "5 6 9 1\n"), 9, "more than 9 weights");
    let text = "TYPE : TSP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 0\n";
    assert!(parse("t", text).is_ok());
    refuses(&text.replace("2 3 0\n", ""), 5, "1 of 2 cities");
    refuses(&text.replace("2 3 0\n", "2 3\n"), 6, "1 of 2 cities");
    refuses(&format!("{text}3 1 1\n"), 7, "more than 2 cities");
    refuses(&text.replace("2 3 0", "1 3 0"), 6, "comes twice");
    refuses(&text.replace("2 3 0", "7 3 0"), 6, "no city 7");
    refuses(&text.replace("2 3 0", "0 3 0"), 6, "no city 0");
}

#[test]
fn wrong_weights_are_refused() {
    refuses(&MATRIX.replace("5 6", "5 -6"), 9, "negative");
    refuses(&MATRIX.replace("5 6", "5 2147483648"), 9, "above 2147483647");
    refuses(&MATRIX.replace("5 6", "5 1e400"), 9, "above 2147483647");
    refuses(&MATRIX.replace("5 6", "5 6.5"), 9, "no whole number");
    refuses(&MATRIX.replace("5 6", "5 6x"), 9, "no number");
    refuses(&MATRIX.replace("ATSP", "TSP"), 8, "differ by direction");
    let far =
        "TYPE : TSP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : MAN_2D\nNODE_COORD_SECTION\n1 -1e9 -1e9\n2 1e9 1e9\n";
    refuses(far, 6, "distance 4000000000");
    refuses(&far.replace("2 1e9", "2 1e10"), 6, "coordinate");
    refuses(&far.replace("2 1e9", "2 -NaN"), 6, "coordinate");
}

#[test]
fn wrong_headers_are_refused() {
    for dimension in ["0", "1", "201", "-3", "1e3", "99999999999999999999999", "", "three"] {
        refuses(&MATRIX.replace("DIMENSION : 3", &format!("DIMENSION : {dimension}")), 3, "DIMENSION");
    }
    refuses(&MATRIX.replace("DIMENSION : 3\n", ""), 5, "no DIMENSION");
    refuses(&MATRIX.replace("NAME", "MANE"), 1, "\"MANE\" is unknown");
    refuses(&MATRIX.replace("ATSP", "CVRP"), 2, "CVRP is not supported");
    refuses(&MATRIX.replace("EXPLICIT", "XRAY1"), 4, "XRAY1 is not supported");
    refuses(&MATRIX.replace("FULL_MATRIX", "UPPER_ROW"), 6, "symmetric");
    refuses(&MATRIX.replace("EDGE_WEIGHT_TYPE : EXPLICIT\n", ""), 9, "no EDGE_WEIGHT_TYPE");
    refuses(&MATRIX.replace("NAME : m", "TYPE : TSP"), 2, "comes twice");
    refuses(&MATRIX.replace("EOF\n", "EOF\nx\n"), 11, "behind EOF");
    refuses(&MATRIX.replace("NAME : m", "DISPLAY_DATA_TYPE : TWOD_DISPLAY"), 10, "DISPLAY_DATA_SECTION");
    refuses("", 1, "cut");
    refuses("\n\n", 2, "no TYPE");
    refuses("\u{0}\u{1b}[31m", 1, "unknown");
}

#[test]
fn a_file_cut_anywhere_is_refused_or_complete() {
    let coordinates = "NAME : c\nTYPE : TSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : CEIL_2D\nNODE_COORD_SECTION\n\
                       1 0 0\n2 30 0\n3 30 45\nEOF\n";
    for text in [MATRIX, coordinates] {
        let whole = parse("t", text).expect("a right text");
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            if let Ok(instance) = parse("t", &text[..cut]) {
                assert_eq!(instance, whole, "cut at {cut}");
            }
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = read(Path::new("no-such-folder/a.tsp")).expect_err("no file");
    assert!(error.to_string().starts_with("cannot read no-such-folder/a.tsp: "), "{error}");
}
