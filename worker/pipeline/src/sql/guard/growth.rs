//! How much functions make of their arguments. Each function that SQL can call is in one of the lists; a test compares them with
//! the functions there are, so that an update of the library that brings new ones makes us look at them.

/// How much a function makes, to be known before it makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// All arguments together.
    Sum,
    /// The first argument before each of the others.
    Join,
    /// The first argument, as often as the second says.
    Repeat,
    /// As many characters as the second argument says.
    Pad,
    /// The second argument, as often as it is in the first, becomes the third.
    Replace,
    /// The same with a pattern.
    RegexReplace,
    /// A part of the first argument for each group of the pattern.
    RegexMatch,
    /// A pattern is compiled for each row.
    Regex,
    /// The elements of a list as text, with another text between them.
    ListToText,
    /// The first argument is a list that gets as many elements as the second says.
    Resize,
    /// Elements of a list become the third argument.
    ListReplace,
    /// Lists side by side, as long as the longest.
    Zip,
    /// From one number to another.
    Range,
    /// Makes a number, in a time that grows with the product of the lengths.
    Product,
    /// The same with the elements of two lists.
    ListProduct,
}

/// What a function makes is measured before it is called.
pub(super) const MEASURED: &[(&str, Growth)] = &[
    ("array_concat", Growth::Sum),
    ("array_has_all", Growth::ListProduct),
    ("array_has_any", Growth::ListProduct),
    ("array_repeat", Growth::Repeat),
    ("array_replace", Growth::ListReplace),
    ("array_replace_all", Growth::ListReplace),
    ("array_replace_n", Growth::ListReplace),
    ("array_resize", Growth::Resize),
    ("array_to_string", Growth::ListToText),
    ("arrays_zip", Growth::Zip),
    ("concat", Growth::Sum),
    ("concat_ws", Growth::Join),
    ("generate_series", Growth::Range),
    ("levenshtein", Growth::Product),
    ("lpad", Growth::Pad),
    ("make_array", Growth::Sum),
    ("range", Growth::Range),
    ("regexp_count", Growth::Regex),
    ("regexp_instr", Growth::Regex),
    ("regexp_like", Growth::Regex),
    ("regexp_match", Growth::RegexMatch),
    ("regexp_replace", Growth::RegexReplace),
    ("repeat", Growth::Repeat),
    ("replace", Growth::Replace),
    ("rpad", Growth::Pad),
];

/// Makes at most a few times of what it gets: what comes out is measured, and what comes in was.
#[cfg(test)]
pub(super) const BOUNDED: &[&str] = &[
    "array_add",
    "array_any_value",
    "array_append",
    "array_compact",
    "array_dims",
    "array_distinct",
    "array_element",
    "array_except",
    "array_intersect",
    "array_max",
    "array_min",
    "array_normalize",
    "array_pop_back",
    "array_pop_front",
    "array_positions",
    "array_prepend",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_reverse",
    "array_scale",
    "array_slice",
    "array_sort",
    "array_subtract",
    "array_union",
    "arrow_cast",
    "arrow_field",
    "arrow_metadata",
    "arrow_try_cast",
    "btrim",
    "cast_to_type",
    "coalesce",
    "decode",
    "encode",
    "flatten",
    "get_field",
    "greatest",
    "initcap",
    "least",
    "left",
    "lower",
    "ltrim",
    "map",
    "map_entries",
    "map_extract",
    "map_keys",
    "map_values",
    "named_struct",
    "nullif",
    "nvl",
    "nvl2",
    "overlay",
    "reverse",
    "right",
    "rtrim",
    "split_part",
    "string_to_array",
    "struct",
    "substr",
    "substr_index",
    "to_char",
    "translate",
    "try_cast_to_type",
    "union_extract",
    "upper",
    "with_metadata",
];

/// Makes a number, a date, a boolean or a short text.
#[cfg(test)]
pub(super) const FIXED: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "array_avg",
    "array_distance",
    "array_has",
    "array_length",
    "array_ndims",
    "array_position",
    "array_product",
    "array_sum",
    "arrow_typeof",
    "ascii",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bit_length",
    "cardinality",
    "cbrt",
    "ceil",
    "character_length",
    "chr",
    "contains",
    "cos",
    "cosh",
    "cosine_distance",
    "cot",
    "current_date",
    "current_time",
    "date_bin",
    "date_part",
    "date_trunc",
    "degrees",
    "digest",
    "empty",
    "ends_with",
    "exp",
    "factorial",
    "file_row_index",
    "find_in_set",
    "floor",
    "from_unixtime",
    "gcd",
    "inner_product",
    "input_file_name",
    "isnan",
    "iszero",
    "lcm",
    "ln",
    "log",
    "log10",
    "log2",
    "make_date",
    "make_time",
    "md5",
    "nanvl",
    "now",
    "octet_length",
    "pi",
    "power",
    "radians",
    "random",
    "round",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "signum",
    "sin",
    "sinh",
    "sqrt",
    "starts_with",
    "strpos",
    "tan",
    "tanh",
    "to_date",
    "to_hex",
    "to_local_time",
    "to_time",
    "to_timestamp",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_nanos",
    "to_timestamp_seconds",
    "to_unixtime",
    "trunc",
    "union_tag",
    "uuid",
    "version",
];

/// Functions with a lambda. What they copy for each element is measured where they are evaluated.
#[cfg(test)]
pub(super) const LAMBDAS: &[&str] = &["array_any_match", "array_filter", "array_first", "array_transform"];

pub(super) fn growth(function: &str) -> Option<Growth> {
    MEASURED.iter().find(|(name, _)| *name == function).map(|(_, growth)| *growth)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sql::functions::Functions;

    #[test]
    fn every_function_is_classified_once() {
        let functions = Functions::new();
        let offered: BTreeSet<&str> = functions.scalar.values().map(|f| f.name()).collect();
        let lists: Vec<&str> =
            MEASURED.iter().map(|(name, _)| *name).chain(BOUNDED.iter().chain(FIXED).copied()).collect();
        let classified: BTreeSet<&str> = lists.iter().copied().collect();
        assert_eq!(lists.len(), classified.len(), "one is in two lists");
        assert_eq!(offered.difference(&classified).collect::<Vec<_>>(), Vec::<&&str>::new(), "not classified");
        assert_eq!(
            classified.difference(&offered).collect::<Vec<_>>(),
            Vec::<&&str>::new(),
            "there is no such function"
        );
    }

    #[test]
    fn every_function_with_a_lambda_is_known() {
        let functions = Functions::new();
        let offered: BTreeSet<&str> = functions.higher_order.values().map(|f| f.name()).collect();
        assert_eq!(offered, LAMBDAS.iter().copied().collect());
    }
}
