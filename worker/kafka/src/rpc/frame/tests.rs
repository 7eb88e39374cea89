use kafka_protocol::messages::{
    ApiVersionsResponse, CreateAclsResponse, CreateTopicsResponse, DeleteTopicsResponse, DescribeConfigsResponse,
    DescribeProducersResponse, DescribeTransactionsResponse, EndTxnResponse, FindCoordinatorResponse,
    InitProducerIdResponse, LeaveGroupResponse, ListOffsetsResponse, ListTransactionsResponse, MetadataRequest,
    MetadataResponse, OffsetFetchResponse, SaslAuthenticateResponse, SaslHandshakeResponse, WriteTxnMarkersResponse,
};
use proptest::prelude::*;

use crate::rpc::api;

use super::*;

/// Decodes as every kind of answer. Only panics, aborts and endless reservations are of interest.
fn decode_as_anything(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    macro_rules! all {
        ($($response:ident $versions:expr),+ $(,)?) => {
            $(for version in $versions {
                drop(decode::<$response>(bytes.clone(), version));
            })+
        };
    }
    all!(
        ApiVersionsResponse [0, 3, 4],
        SaslHandshakeResponse [1],
        MetadataResponse 9..=13,
        DescribeConfigsResponse 4..=4,
        CreateTopicsResponse 5..=7,
        ListOffsetsResponse 6..=10,
        OffsetFetchResponse 8..=9,
        FindCoordinatorResponse 4..=6,
        InitProducerIdResponse 2..=5,
        DescribeTransactionsResponse 0..=0,
        ListTransactionsResponse 0..=2,
        DescribeProducersResponse 0..=0,
        WriteTxnMarkersResponse 1..=1,
        CreateAclsResponse 2..=3,
        DeleteTopicsResponse 6..=6,
        EndTxnResponse 3..=5,
        LeaveGroupResponse 4..=5,
        SaslAuthenticateResponse 2..=2,
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_answers_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode_as_anything(&bytes);
    }

    // Zeros lead deep into a message: every error code is "none" and every throttle time 0.
    #[test]
    fn answers_with_huge_lengths_are_refused(zeros in 0usize..40, at in 0usize..40, tail in any::<[u8; 8]>()) {
        let mut bytes = vec![0; zeros];
        let at = at.min(bytes.len());
        bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f]);
        bytes.extend(tail);
        decode_as_anything(&bytes);
    }
}

#[test]
fn an_array_longer_than_its_frame_is_refused_before_memory_is_reserved() {
    // number, no tags, throttle time, then four thousand million brokers
    let answer = [&[0, 0, 0, 7, 0][..], &[0; 4], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    let refused = decode::<MetadataResponse>(answer.into(), 12).unwrap_err();
    assert!(refused.contains("4294967295"), "{refused}");

    // number, code, then two thousand million mechanisms
    let answer = [&[0, 0, 0, 7][..], &[0, 0], &[0x7f, 0xff, 0xff, 0xff]].concat();
    assert!(decode::<SaslHandshakeResponse>(answer.into(), 1).is_err());
}

#[test]
fn new_lengths_behind_an_old_header_are_refused_too() {
    // number, code, then four thousand million versions
    let answer = [&[0, 0, 0, 7][..], &[0, 0], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    for version in [3, 4] {
        assert!(decode::<ApiVersionsResponse>(answer.clone().into(), version).is_err());
    }
}

#[test]
fn the_oldest_two_answers_are_read_with_fixed_lengths() {
    let answer = [&[0, 0, 0, 7][..], &[0, 33], &[0, 0, 0, 1], &[0, 5], b"PLAIN"].concat();
    let read: SaslHandshakeResponse = decode(answer.into(), 1).unwrap();
    assert_eq!(read.error_code, 33);
    assert_eq!(read.mechanisms.iter().map(ToString::to_string).collect::<Vec<_>>(), ["PLAIN"]);

    // A number that would not pass as a length is fine as a number.
    let answer = [&[0x7f, 0, 0, 7][..], &[0, 35], &[0, 0, 0, 1], &[0, 18, 0, 0, 0, 3]].concat();
    let read: ApiVersionsResponse = decode(answer.into(), 0).unwrap();
    assert_eq!((read.error_code, read.api_keys.len(), read.api_keys[0].max_version), (35, 1, 3));
}

#[test]
fn a_request_says_its_length_version_number_and_client() {
    let mut frame = encode(&MetadataRequest::default(), 12, "me").unwrap();
    number(&mut frame, 0x0102_0304);
    let length = usize::try_from(i32::from_be_bytes(frame[..4].try_into().unwrap())).unwrap();
    assert_eq!(length, frame.len() - 4);
    assert_eq!(frame[4..16], [0, 3, 0, 12, 1, 2, 3, 4, 0, 2, b'm', b'e']);
}

#[test]
fn every_version_of_every_call_has_flexible_lengths() {
    for (name, min, max, header_version) in api::ALL {
        for version in *min..=*max {
            assert_eq!(header_version(version), 1, "{name} v{version} writes lengths in the old way");
        }
    }
}
