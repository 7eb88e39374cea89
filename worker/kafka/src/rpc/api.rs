//! Which requests this client makes, in which versions, and what the two ends agree on.
//!
//! The lower bounds are the first flexible versions (or the first that can do what is needed), all of them in Kafka 3.0 and
//! newer, but for the two of the consumer group protocol, which are stable since 4.0. So answers have one way to write lengths, which `frame` relies on.

use std::collections::HashMap;

use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, CreateAclsRequest, CreateAclsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest,
    DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse, LeaveGroupRequest, LeaveGroupResponse, ListOffsetsRequest,
    ListOffsetsResponse, ListTransactionsRequest, ListTransactionsResponse, MetadataRequest, MetadataResponse,
    OffsetFetchRequest, OffsetFetchResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};

use crate::settings::HostPort;

use super::error::RpcError;

/// A request this client makes.
pub(super) trait Wire: Encodable + HeaderVersion {
    /// Number in the protocol.
    const KEY: i16;
    /// Its answer.
    type Response: Decodable + HeaderVersion;
}

/// A request of callers, whose version is agreed upon.
pub(super) trait Api: Wire {
    /// Name in the protocol's documentation.
    const NAME: &'static str;
    /// Oldest version this client writes.
    const MIN: i16;
    /// Newest version this client writes.
    const MAX: i16;
}

impl Wire for ApiVersionsRequest {
    const KEY: i16 = ApiKey::ApiVersions as i16;
    type Response = ApiVersionsResponse;
}

impl Wire for SaslHandshakeRequest {
    const KEY: i16 = ApiKey::SaslHandshake as i16;
    type Response = SaslHandshakeResponse;
}

macro_rules! apis {
    ($($name:ident, $request:ident, $response:ident, $min:literal ..= $max:literal;)+) => {
        $(impl Wire for $request {
            const KEY: i16 = ApiKey::$name as i16;
            type Response = $response;
        }

        impl Api for $request {
            const NAME: &'static str = stringify!($name);
            const MIN: i16 = $min;
            const MAX: i16 = $max;
        })+

        /// Name, versions, and how the answer's header is written in a version.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, i16, i16, fn(i16) -> i16)] =
            &[$((stringify!($name), $min, $max, $response::header_version),)+];
    };
}

apis! {
    Metadata, MetadataRequest, MetadataResponse, 9..=13;
    DescribeConfigs, DescribeConfigsRequest, DescribeConfigsResponse, 4..=4;
    CreateTopics, CreateTopicsRequest, CreateTopicsResponse, 5..=7;
    DeleteTopics, DeleteTopicsRequest, DeleteTopicsResponse, 6..=6;
    CreateAcls, CreateAclsRequest, CreateAclsResponse, 2..=3;
    ListOffsets, ListOffsetsRequest, ListOffsetsResponse, 6..=10;
    OffsetFetch, OffsetFetchRequest, OffsetFetchResponse, 8..=9;
    ConsumerGroupDescribe, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, 0..=1;
    ConsumerGroupHeartbeat, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, 0..=1;
    LeaveGroup, LeaveGroupRequest, LeaveGroupResponse, 4..=5;
    FindCoordinator, FindCoordinatorRequest, FindCoordinatorResponse, 4..=6;
    InitProducerId, InitProducerIdRequest, InitProducerIdResponse, 2..=5;
    EndTxn, EndTxnRequest, EndTxnResponse, 3..=5;
    DescribeTransactions, DescribeTransactionsRequest, DescribeTransactionsResponse, 0..=0;
    ListTransactions, ListTransactionsRequest, ListTransactionsResponse, 0..=2;
    DescribeProducers, DescribeProducersRequest, DescribeProducersResponse, 0..=0;
    WriteTxnMarkers, WriteTxnMarkersRequest, WriteTxnMarkersResponse, 1..=1;
    SaslAuthenticate, SaslAuthenticateRequest, SaslAuthenticateResponse, 2..=2;
}

/// Versions that a broker speaks, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct ApiTable(HashMap<i16, (i16, i16)>);

impl ApiTable {
    pub(super) fn new(response: &ApiVersionsResponse) -> Self {
        Self(response.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect())
    }

    /// The newest version that both sides speak.
    pub(super) fn pick<R: Api>(&self, peer: &HostPort) -> Result<i16, RpcError> {
        let offered = self.0.get(&R::KEY).copied();
        match offered {
            Some((min, max)) if max.min(R::MAX) >= min.max(R::MIN) => Ok(max.min(R::MAX)),
            _ => Err(RpcError::UnsupportedVersion {
                peer: peer.clone(),
                call: R::NAME,
                offered: offered.map_or_else(|| "none".to_owned(), |(min, max)| format!("{min}..{max}")),
                ours: format!("{}..{}", R::MIN, R::MAX),
            }),
        }
    }

    /// Newest version of a key the broker speaks.
    pub(super) fn max(&self, key: i16) -> Option<i16> {
        self.0.get(&key).map(|(_, max)| *max)
    }
}
