use std::fmt;

use super::ErrorClass;

/// An error code of the Kafka protocol.
///
/// `Display` prints the name under which Kafka documents it, and the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerCode(i16);

impl BrokerCode {
    /// The code of a response; `None` for 0, success.
    #[must_use]
    pub const fn from_response(code: i16) -> Option<Self> {
        if code == 0 { None } else { Some(Self(code)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i16 {
        self.0
    }
}

impl fmt::Display for BrokerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "error code {}", self.0),
        }
    }
}

impl fmt::Debug for BrokerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! codes {
    ($($class:ident { $($name:ident = $code:literal,)+ })+) => {
        #[allow(missing_docs, reason = "the names are those of https://kafka.apache.org/protocol#protocol_error_codes")]
        impl BrokerCode {
            $($(pub const $name: Self = Self($code);)+)+

            /// Every code this crate knows.
            pub const KNOWN: &'static [Self] = &[$($(Self::$name,)+)+];

            /// The name in Kafka's documentation; `None` for a code newer than this crate.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($($code => Some(stringify!($name)),)+)+
                    _ => None,
                }
            }

            /// What a worker does about it.
            ///
            /// A code that is not known is [`ErrorClass::Unknown`]: nothing may be assumed about what the broker did.
            #[must_use]
            pub const fn class(self) -> ErrorClass {
                match self.0 {
                    $($($code)|+ => ErrorClass::$class,)+
                    _ => ErrorClass::Unknown,
                }
            }
        }
    };
}

// Judged as an answer to a request of a transactional worker. Where Kafka's own clients disagree with each other the
// stricter reading is taken (KIP-1050 for the transactional ones).
codes! {
    // The cluster is moving (leaders, coordinators, markers, quotas): the same request succeeds when it has settled.
    Retry {
        CORRUPT_MESSAGE = 2,
        UNKNOWN_TOPIC_OR_PARTITION = 3,
        LEADER_NOT_AVAILABLE = 5,
        NOT_LEADER_OR_FOLLOWER = 6,
        BROKER_NOT_AVAILABLE = 8,
        REPLICA_NOT_AVAILABLE = 9,
        NETWORK_EXCEPTION = 13,
        COORDINATOR_LOAD_IN_PROGRESS = 14,
        COORDINATOR_NOT_AVAILABLE = 15,
        NOT_COORDINATOR = 16,
        NOT_ENOUGH_REPLICAS = 19,
        NOT_CONTROLLER = 41,
        CONCURRENT_TRANSACTIONS = 51,
        OPERATION_NOT_ATTEMPTED = 55,
        KAFKA_STORAGE_ERROR = 56,
        REASSIGNMENT_IN_PROGRESS = 60,
        FETCH_SESSION_ID_NOT_FOUND = 70,
        INVALID_FETCH_SESSION_EPOCH = 71,
        LISTENER_NOT_FOUND = 72,
        FENCED_LEADER_EPOCH = 74,
        UNKNOWN_LEADER_EPOCH = 75,
        STALE_BROKER_EPOCH = 77,
        OFFSET_NOT_AVAILABLE = 78,
        PREFERRED_LEADER_NOT_AVAILABLE = 80,
        ELIGIBLE_LEADERS_NOT_AVAILABLE = 83,
        UNSTABLE_OFFSET_COMMIT = 88,
        THROTTLING_QUOTA_EXCEEDED = 89,
        UNKNOWN_TOPIC_ID = 100,
        BROKER_ID_NOT_REGISTERED = 102,
        INCONSISTENT_TOPIC_ID = 103,
        FETCH_SESSION_TOPIC_ID_ERROR = 106,
        NEW_LEADER_ELECTED = 108,
        SHARE_SESSION_NOT_FOUND = 122,
        INVALID_SHARE_SESSION_EPOCH = 123,
        REBOOTSTRAP_REQUIRED = 129,
        SHARE_SESSION_LIMIT_REACHED = 133,
    }
    // The group moved on: what was polled under the old membership must not be committed.
    Refresh {
        ILLEGAL_GENERATION = 22,
        UNKNOWN_MEMBER_ID = 25,
        REBALANCE_IN_PROGRESS = 27,
        MEMBER_ID_REQUIRED = 79,
        FENCED_MEMBER_EPOCH = 110,
        STALE_MEMBER_EPOCH = 113,
    }
    // The transaction is spoilt, its producer is not.
    Abort {
        DUPLICATE_SEQUENCE_NUMBER = 46,
        TRANSACTION_ABORTABLE = 120,
    }
    // This producer instance has lost its place in the broker's books; a new instance with the same id has one.
    Recreate {
        OUT_OF_ORDER_SEQUENCE_NUMBER = 45,
        INVALID_TXN_STATE = 48,
        INVALID_PRODUCER_ID_MAPPING = 49,
        UNKNOWN_PRODUCER_ID = 59,
        TRANSACTIONAL_ID_NOT_FOUND = 105,
    }
    // The coordinator raised the epoch. A newer producer, or the timeout of the transaction: DescribeTransactions tells
    // which. FENCED_INSTANCE_ID and UNRELEASED_INSTANCE_ID are the same for the group member.
    Fenced {
        INVALID_PRODUCER_EPOCH = 47,
        FENCED_INSTANCE_ID = 82,
        PRODUCER_FENCED = 90,
        UNRELEASED_INSTANCE_ID = 111,
    }
    // Repeating changes nothing until a person does.
    Fatal {
        OFFSET_OUT_OF_RANGE = 1,
        INVALID_FETCH_SIZE = 4,
        MESSAGE_TOO_LARGE = 10,
        STALE_CONTROLLER_EPOCH = 11,
        OFFSET_METADATA_TOO_LARGE = 12,
        INVALID_TOPIC_EXCEPTION = 17,
        RECORD_LIST_TOO_LARGE = 18,
        INVALID_REQUIRED_ACKS = 21,
        INCONSISTENT_GROUP_PROTOCOL = 23,
        INVALID_GROUP_ID = 24,
        INVALID_SESSION_TIMEOUT = 26,
        INVALID_COMMIT_OFFSET_SIZE = 28,
        TOPIC_AUTHORIZATION_FAILED = 29,
        GROUP_AUTHORIZATION_FAILED = 30,
        CLUSTER_AUTHORIZATION_FAILED = 31,
        INVALID_TIMESTAMP = 32,
        UNSUPPORTED_SASL_MECHANISM = 33,
        ILLEGAL_SASL_STATE = 34,
        UNSUPPORTED_VERSION = 35,
        TOPIC_ALREADY_EXISTS = 36,
        INVALID_PARTITIONS = 37,
        INVALID_REPLICATION_FACTOR = 38,
        INVALID_REPLICA_ASSIGNMENT = 39,
        INVALID_CONFIG = 40,
        INVALID_REQUEST = 42,
        UNSUPPORTED_FOR_MESSAGE_FORMAT = 43,
        POLICY_VIOLATION = 44,
        INVALID_TRANSACTION_TIMEOUT = 50,
        TRANSACTION_COORDINATOR_FENCED = 52,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53,
        SECURITY_DISABLED = 54,
        LOG_DIR_NOT_FOUND = 57,
        SASL_AUTHENTICATION_FAILED = 58,
        DELEGATION_TOKEN_AUTH_DISABLED = 61,
        DELEGATION_TOKEN_NOT_FOUND = 62,
        DELEGATION_TOKEN_OWNER_MISMATCH = 63,
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64,
        DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65,
        DELEGATION_TOKEN_EXPIRED = 66,
        INVALID_PRINCIPAL_TYPE = 67,
        NON_EMPTY_GROUP = 68,
        GROUP_ID_NOT_FOUND = 69,
        TOPIC_DELETION_DISABLED = 73,
        UNSUPPORTED_COMPRESSION_TYPE = 76,
        GROUP_MAX_SIZE_REACHED = 81,
        ELECTION_NOT_NEEDED = 84,
        NO_REASSIGNMENT_IN_PROGRESS = 85,
        GROUP_SUBSCRIBED_TO_TOPIC = 86,
        INVALID_RECORD = 87,
        RESOURCE_NOT_FOUND = 91,
        DUPLICATE_RESOURCE = 92,
        UNACCEPTABLE_CREDENTIAL = 93,
        INCONSISTENT_VOTER_SET = 94,
        INVALID_UPDATE_VERSION = 95,
        FEATURE_UPDATE_FAILED = 96,
        PRINCIPAL_DESERIALIZATION_FAILURE = 97,
        SNAPSHOT_NOT_FOUND = 98,
        POSITION_OUT_OF_RANGE = 99,
        DUPLICATE_BROKER_REGISTRATION = 101,
        INCONSISTENT_CLUSTER_ID = 104,
        INELIGIBLE_REPLICA = 107,
        OFFSET_MOVED_TO_TIERED_STORAGE = 109,
        UNSUPPORTED_ASSIGNOR = 112,
        MISMATCHED_ENDPOINT_TYPE = 114,
        UNSUPPORTED_ENDPOINT_TYPE = 115,
        UNKNOWN_CONTROLLER_ID = 116,
        UNKNOWN_SUBSCRIPTION_ID = 117,
        TELEMETRY_TOO_LARGE = 118,
        INVALID_REGISTRATION = 119,
        INVALID_RECORD_STATE = 121,
        FENCED_STATE_EPOCH = 124,
        INVALID_VOTER_KEY = 125,
        DUPLICATE_VOTER = 126,
        VOTER_NOT_FOUND = 127,
        INVALID_REGULAR_EXPRESSION = 128,
        STREAMS_INVALID_TOPOLOGY = 130,
        STREAMS_INVALID_TOPOLOGY_EPOCH = 131,
        STREAMS_TOPOLOGY_FENCED = 132,
    }
    // The broker may or may not have done it.
    Unknown {
        UNKNOWN_SERVER_ERROR = -1,
        REQUEST_TIMED_OUT = 7,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20,
    }
}
