//! How large columns and their values are. What counts is what they become when they are written or copied, so a NULL that takes a
//! bit counts as four bytes, and the names of a struct's fields count for each of its values.

use arrow::array::{Array, AsArray, OffsetSizeTrait};
use arrow::datatypes::{DataType, Fields};

/// Bytes that the text of a value without bytes of its own takes.
const EMPTY_BYTES: usize = 4;

/// Bytes of all values.
pub(crate) fn array_bytes(array: &dyn Array) -> usize {
    range_bytes(array, 0, array.len())
}

/// Bytes of one value; 0 past the end.
pub(crate) fn value_bytes(array: &dyn Array, row: usize) -> usize {
    if row < array.len() { range_bytes(array, row, 1) } else { 0 }
}

/// Whether values of the type can be large.
pub(crate) fn is_variable(data_type: &DataType) -> bool {
    !data_type.is_primitive() && !matches!(data_type, DataType::Boolean | DataType::Null)
}

fn range_bytes(array: &dyn Array, start: usize, len: usize) -> usize {
    let own = len.saturating_mul(EMPTY_BYTES);
    let data = match array.data_type() {
        DataType::Utf8 => offsets(array.as_string::<i32>().value_offsets(), start, len).1,
        DataType::LargeUtf8 => offsets(array.as_string::<i64>().value_offsets(), start, len).1,
        DataType::Binary => offsets(array.as_binary::<i32>().value_offsets(), start, len).1,
        DataType::LargeBinary => offsets(array.as_binary::<i64>().value_offsets(), start, len).1,
        DataType::Utf8View => views(array.as_string_view().views(), start, len),
        DataType::BinaryView => views(array.as_binary_view().views(), start, len),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, count) = offsets(list.value_offsets(), start, len);
            range_bytes(list.values(), first, count)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let (first, count) = offsets(list.value_offsets(), start, len);
            range_bytes(list.values(), first, count)
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or_default();
            range_bytes(array.as_fixed_size_list().values(), start.saturating_mul(size), len.saturating_mul(size))
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let columns = columns.map(|c| range_bytes(c, start, len)).fold(0, usize::saturating_add);
            names(fields).saturating_mul(len).saturating_add(columns)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let (first, count) = offsets(map.value_offsets(), start, len);
            range_bytes(map.entries(), first, count)
        }
        DataType::FixedSizeBinary(size) => len.saturating_mul(usize::try_from(*size).unwrap_or_default()),
        other => match other.primitive_width() {
            Some(width) => len.saturating_mul(width),
            None if matches!(other, DataType::Null | DataType::Boolean) => 0,
            // Dictionaries, unions and the like, which hardly anything makes: all of it.
            None => array.get_array_memory_size(),
        },
    };
    own.saturating_add(data)
}

/// First position and length of what a range of rows covers.
fn offsets<O: OffsetSizeTrait>(offsets: &[O], start: usize, len: usize) -> (usize, usize) {
    let at = |i: usize| offsets.get(i).map_or(0, |o| o.as_usize());
    let first = at(start);
    (first, at(start.saturating_add(len)).saturating_sub(first))
}

/// The length of a view is its lowest 32 bits.
fn views(views: &[u128], start: usize, len: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "the lowest 32 bits are wanted")]
    let of = |view: &u128| *view as u32 as usize;
    views.get(start..start.saturating_add(len)).unwrap_or_default().iter().map(of).sum()
}

fn names(fields: &Fields) -> usize {
    fields.iter().map(|f| f.name().len()).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BooleanArray, Int64Array, ListArray, NullArray, StringArray, StringViewArray, StructArray,
    };
    use arrow::datatypes::Int64Type;
    use rstest::rstest;

    use super::*;

    fn lists() -> ArrayRef {
        let lists = [Some(vec![Some(1), None]), None, Some(vec![Some(1), Some(2), Some(3)])];
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
    }

    fn structs() -> ArrayRef {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        Arc::new(StructArray::try_from(vec![("name", numbers)]).unwrap())
    }

    #[rstest]
    #[case(Arc::new(StringArray::from(vec!["abc", "", "de"])), &[7, 4, 6])]
    #[case(Arc::new(StringViewArray::from(vec!["abc", "", "a text of more than twelve bytes"])), &[7, 4, 36])]
    #[case(Arc::new(NullArray::new(3)), &[4, 4, 4])]
    #[case(Arc::new(BooleanArray::from(vec![true, false, true])), &[4, 4, 4])]
    #[case(lists(), &[4 + 2 * 12, 4, 4 + 3 * 12])]
    #[case(structs(), &[4 + 4 + 12, 20, 20])]
    fn a_column_is_as_large_as_its_values(#[case] array: ArrayRef, #[case] bytes: &[usize]) {
        assert_eq!((0..3).map(|row| value_bytes(&array, row)).collect::<Vec<_>>(), bytes);
        assert_eq!(array_bytes(&array), bytes.iter().sum::<usize>());
        assert_eq!(array_bytes(&array.slice(1, 2)), bytes[1..].iter().sum::<usize>());
        assert_eq!(value_bytes(&array.slice(1, 2), 1), bytes[2]);
        assert_eq!(value_bytes(&array, 3), 0);
    }
}
