use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use rstest::rstest;

use super::super::ObjectReader;
use super::{Names, REMEMBERED, object, plain};
use crate::decode::cell::Cell;
use crate::types::{ColumnType, StructField};

/// A field of each type, and some whose names are hard to tell apart.
fn fields() -> Vec<StructField> {
    let types = [
        ("a", "STRING"),
        ("aa", "BIGINT"),
        ("b", "BOOLEAN"),
        ("i", "INT"),
        ("f", "FLOAT"),
        ("d", "DOUBLE"),
        ("m", "DECIMAL(10, 2)"),
        ("by", "BYTES"),
        ("da", "DATE"),
        ("ms", "TIMESTAMP_MS"),
        ("us", "TIMESTAMP_US"),
        ("ar", "ARRAY<BIGINT>"),
        ("st", "STRUCT<x STRING, y ARRAY<INT>>"),
    ];
    let field = |(name, text): (&str, &str)| StructField {
        name: name.to_owned(),
        column_type: ColumnType::parse(text).expect("a type"),
    };
    types.into_iter().map(field).collect()
}

/// What the fast way says of the first object; `None`: nothing.
fn scanned(bytes: &[u8]) -> Option<Vec<Cell<'_>>> {
    scanned_after(&mut Names::default(), bytes)
}

fn scanned_after<'a>(names: &mut Names<'a>, bytes: &'a [u8]) -> Option<Vec<Cell<'a>>> {
    let fields = fields();
    let mut cells = vec![Cell::Null; fields.len()];
    object(bytes, &fields, names, |index, cell| cells[index] = cell).then_some(cells)
}

/// What the thorough way says.
fn thorough(bytes: &[u8]) -> Result<Vec<Cell<'_>>, String> {
    let fields = fields();
    let mut cells = vec![Cell::Null; fields.len()];
    let reader = ObjectReader::new(fields.into_iter().enumerate().map(|(place, field)| (field, place)).collect());
    reader.read_thoroughly(bytes, &mut cells).map(|()| cells)
}

/// Both ways are one: what the fast one gives, the thorough one gives too.
#[track_caller]
fn agrees(bytes: &[u8]) -> bool {
    agrees_after(&mut Names::default(), bytes)
}

#[track_caller]
fn agrees_after<'a>(names: &mut Names<'a>, bytes: &'a [u8]) -> bool {
    let fast = scanned_after(names, bytes);
    if let Some(cells) = &fast {
        // As text: to `==`, zero has no sign.
        let (fast, thorough) = (format!("Ok({cells:?})"), format!("{:?}", thorough(bytes)));
        assert_eq!(fast, thorough, "{:?}", String::from_utf8_lossy(bytes));
    }
    fast.is_some()
}

#[rstest]
#[case::empty("{}")]
#[case::spaces(" \t\r\n{ \"a\" : \"b\" , \"aa\" : 1 } \n")]
#[case::whole(r#"{"aa":-999999999999999999,"i":0,"f":7,"d":-7,"ms":1,"us":999999999999999999}"#)]
#[case::minus_zero(r#"{"d":-0,"f":-0}"#)]
#[case::many_digits(r#"{"aa":9223372036854775807,"d":12345678901234567890}"#)]
#[case::fractions(r#"{"d":0.1,"f":1e10,"aa":2.0,"m":12.30}"#)]
#[case::words(r#"{"b":true,"a":null,"zz":false}"#)]
#[case::texts(r#"{"by":"AP8=","da":"2024-02-29","ms":"2024-01-01T00:00:00Z","m":"0.01"}"#)]
#[case::escapes(r#"{"a":"\"\\\u00e9","zz":"\n"}"#)]
#[case::nested(r#"{"ar":[1,null],"st":{"x":"y","y":[1]},"zz":{"a":[{"b":1}]}}"#)]
#[case::twice(r#"{"a":"x","a":"y","aa":1,"aa":null}"#)]
#[case::other_order(r#"{"us":1,"a":"x","zz":1,"aa":2}"#)]
#[case::letters_beyond_ascii(r#"{"a":"é日本🦀","é":1}"#)]
fn what_is_right_is_taken(#[case] text: &str) {
    assert!(agrees(text.as_bytes()), "it was left to the thorough way");
}

#[rstest]
#[case::nothing("")]
#[case::no_object("[]")]
#[case::not_closed(r#"{"a":"b""#)]
#[case::not_opened(r#""a":"b"}"#)]
#[case::no_colon(r#"{"a" "b"}"#)]
#[case::no_name(r#"{:1}"#)]
#[case::name_without_quotes(r#"{a:1}"#)]
#[case::comma_at_the_end(r#"{"a":"b",}"#)]
#[case::comma_twice(r#"{"a":"b",,"aa":1}"#)]
#[case::comma_first(r#"{,"a":"b"}"#)]
#[case::something_behind(r#"{"a":"b"} x"#)]
#[case::two(r#"{}{}"#)]
#[case::leading_zero(r#"{"zz":01}"#)]
#[case::plus(r#"{"zz":+1}"#)]
#[case::minus_alone(r#"{"zz":-}"#)]
#[case::point_alone(r#"{"zz":1.}"#)]
#[case::digits_and_letters(r#"{"zz":1x}"#)]
#[case::exponent_alone(r#"{"zz":1e}"#)]
#[case::half_a_word(r#"{"zz":nul}"#)]
#[case::a_word_and_more(r#"{"zz":nulls}"#)]
#[case::control_character("{\"zz\":\"\n\"}")]
#[case::control_character_in_a_name("{\"z\nz\":1}")]
#[case::escape_that_is_none(r#"{"zz":"\x"}"#)]
#[case::half_a_surrogate(r#"{"a":"\ud800"}"#)]
#[case::another_type(r#"{"aa":"1"}"#)]
#[case::out_of_range(r#"{"i":2147483648}"#)]
#[case::another_type_first(r#"{"aa":"1","aa":1}"#)]
#[case::byte_order_mark("\u{feff}{}")]
fn what_is_wrong_is_left_to_the_thorough_way_which_refuses_it(#[case] text: &str) {
    assert_eq!(scanned(text.as_bytes()), None);
    assert!(thorough(text.as_bytes()).is_err());
}

#[test]
fn text_that_is_not_utf_8_is_wrong_where_it_is_read() {
    assert_eq!(scanned(b"{\"a\":\"\xff\"}"), None);
    assert_eq!(scanned(b"{\"\xff\":1}"), None);
    assert_eq!(scanned(b"{\"zz\":\"\xff\"}"), None);
    assert!(thorough(b"{\"zz\":\"\xff\"}").is_ok(), "nobody reads it");
}

#[test]
fn names_are_remembered_by_their_place_and_taken_for_no_others() {
    let mut names = Names::default();
    for text in [
        r#"{"a":"x","aa":1,"zz":2}"#,
        r#"{"a":"y","aa":2,"zz":3}"#,
        // Others in their places, and the same ones written in another way.
        r#"{"aa":3,"a":"z","b":true}"#,
        r#"{"aa": 4, "a": "z", "b": false, "i": 1}"#,
        r#"{"a":"aa"}"#,
        r#"{"zz":1,"a":"a","aa":5}"#,
    ] {
        assert!(agrees_after(&mut names, text.as_bytes()), "{text}");
    }
}

#[test]
fn not_all_names_of_a_large_object_are_remembered() {
    let members: Vec<String> = (0..3 * REMEMBERED).map(|i| format!("\"z{i}\":{i}")).collect();
    let text = format!("{{{},\"aa\":7}}", members.join(","));
    let mut names = Names::default();
    for _ in 0..2 {
        assert!(agrees_after(&mut names, text.as_bytes()));
    }
    assert_eq!(names.0.len(), REMEMBERED);
}

#[test]
fn a_text_ends_at_the_same_place_wherever_it_begins() {
    for special in [b'"', b'\\', 0, 0x1F] {
        for len in 0..40 {
            // What must not be taken for special: its neighbours, with and without the high bit.
            for other in [b'!', b'#', b'[', b']', 0x20, 0x7F, 0x80, 0x9F, 0xA2, 0xDC, 0xFF] {
                let mut bytes = vec![other; len];
                assert_eq!(plain(&bytes), len);
                bytes.extend([special, other, special, 0, b'"']);
                assert_eq!(plain(&bytes), len, "{special:#x} behind {len} of {other:#x}");
            }
        }
    }
}

/// Pieces of objects that are often put together right.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let name =
        select(vec!["a", "aa", "b", "i", "f", "d", "m", "by", "da", "ms", "us", "ar", "st", "z", "é", "a\\u0061"]);
    let value = prop_oneof![
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        "-?[0-9]{1,3}",
        select(vec![
            "null",
            "true",
            "false",
            "nul",
            "[1,2]",
            "{\"x\":\"\"}",
            "[",
            "{\"x\":{}}",
            "\"AP8=\"",
            "\"2024-02-29\""
        ])
        .prop_map(str::to_owned),
        any::<String>().prop_map(|text| serde_json::to_string(&text).expect("JSON")),
        "[ -~é]{0,20}".prop_map(|text| format!("\"{text}\"")),
    ];
    let space = select(vec!["", "", "", " ", "\n\t"]);
    let member = (space.clone(), name, space, value)
        .prop_map(|(before, name, behind, value)| format!("{before}\"{name}\"{behind}:{before}{value}{behind}"));
    vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(",")).into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn both_ways_give_the_same_whatever_came_before(
        objects in vec((pieces(), vec((any::<Index>(), any::<u8>()), 0..3)), 1..4),
    ) {
        let mut all = Vec::new();
        for (mut bytes, changes) in objects {
            all.push(bytes.clone());
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            all.push(bytes);
        }
        let mut names = Names::default();
        for bytes in &all {
            agrees_after(&mut names, bytes);
        }
    }
}
