//! Indexes documents and answers queries.

use crate::Random;
use tantivy::collector::{Count, TopDocs};
use tantivy::query::QueryParser;
use tantivy::schema::{FAST, STORED, STRING, Schema, TEXT};
use tantivy::{Index, TantivyDocument, doc};

const DOCUMENTS: usize = 60_000;
const WORDS: usize = 30_000;
const WRITERS: usize = 2;
const WRITERS_BYTES: usize = 64 << 20;
const COMMITS: usize = 6;
const QUERIES: usize = 2_000;

/// The word with this number.
fn word(mut number: usize) -> String {
    const PARTS: [&str; 16] =
        ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "wa"];
    let mut text = String::new();
    loop {
        text.push_str(PARTS[number % 16]);
        number /= 16;
        if number == 0 {
            return text;
        }
    }
}

/// Draws a number; small numbers are the most common ones.
fn number(random: &mut Random) -> usize {
    let bound = 1 + random.below(WORDS);
    random.below(bound)
}

/// Titles and texts.
pub(crate) fn documents() -> Vec<(String, String)> {
    let mut random = Random(42);
    let mut text = |words: usize| (0..words).map(|_| word(number(&mut random))).collect::<Vec<_>>().join(" ");
    (0..DOCUMENTS).map(|index| (text(4), text(20 + index % 80))).collect()
}

/// Indexes the documents in some commits, and queries them; returns the sum of the results.
pub(crate) fn run(documents: Vec<(String, String)>) -> u64 {
    let mut schema = Schema::builder();
    let title = schema.add_text_field("title", TEXT | STORED);
    let body = schema.add_text_field("body", TEXT);
    let key = schema.add_text_field("key", STRING | STORED);
    let length = schema.add_u64_field("length", FAST);
    let index = Index::create_in_ram(schema.build());
    let mut writer = index
        .writer_with_num_threads::<TantivyDocument>(WRITERS, WRITERS_BYTES)
        .expect("the index has no writer");
    for batch in documents.chunks(DOCUMENTS.div_ceil(COMMITS)) {
        for (title_text, text) in batch {
            let bytes = text.len() as u64;
            let document = doc!(title => title_text.as_str(), body => text.as_str(), key => &title_text[..6.min(title_text.len())], length => bytes);
            writer.add_document(document).expect("the index rejected a document");
        }
        writer.commit().expect("the index did not commit the documents");
    }
    writer.wait_merging_threads().expect("a merging thread of the index failed");
    let searcher = index.reader().expect("the index has no reader").searcher();
    let parser = QueryParser::for_index(&index, vec![title, body]);
    let mut random = Random(7);
    let mut sum = searcher.num_docs();
    for _ in 0..QUERIES {
        let text = format!("{} {}", word(number(&mut random)), word(number(&mut random)));
        let query = parser.parse_query(&text).expect("the query is malformed");
        let (top, count) = searcher
            .search(&query, &(TopDocs::with_limit(10).order_by_score(), Count))
            .expect("the index did not answer the query");
        sum += count as u64;
        for (_, address) in top {
            let _document: TantivyDocument =
                searcher.doc(address).expect("the index lost a document that it found");
        }
    }
    sum
}
