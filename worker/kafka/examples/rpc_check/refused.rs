use std::time::Duration;

use fencepost_crds::conditions::Reason;
use fencepost_kafka::error::{Cause, Operation, Resource, Subject};
use fencepost_kafka::rpc::{Cluster, Isolation, OffsetSpec, RpcError, TopicPartition};
use fencepost_kafka::settings::ConnectionSettings;

use crate::topics::create;
use crate::{Outcome, World, ensure, impatient, settings};

/// The error that a cluster with these settings answers with, in time.
async fn error_of(settings: ConnectionSettings) -> Result<RpcError, Box<dyn std::error::Error>> {
    let cluster = Cluster::with_options(settings, impatient())?;
    let answer = tokio::time::timeout(Duration::from_secs(15), cluster.metadata(&[])).await?;
    match answer {
        Ok(metadata) => Err(format!("accepted: {metadata:?}").into()),
        Err(error) => Ok(error),
    }
}

fn expect(error: &RpcError, reason: Reason) -> Outcome {
    println!("        {}", error.report());
    ensure!(error.cause().reason() == reason, "{} instead of {reason}: {error:?}", error.cause().reason());
    Ok(())
}

pub async fn nobody_listens(_: &World) -> Outcome {
    // Port 1 is tcpmux: nobody has it.
    let error = error_of(ConnectionSettings::plaintext("127.0.0.1:1", "rpc-check")?).await?;
    expect(&error, Reason::BrokerUnreachable)?;
    let error = error_of(ConnectionSettings::plaintext("no-such-host.invalid:9092", "rpc-check")?).await?;
    expect(&error, Reason::BrokerUnreachable)
}

pub async fn a_topic_that_does_not_exist(world: &World) -> Outcome {
    let partition = TopicPartition::new(world.name("missing"), 0);
    let answer = world.cluster.list_offsets(&[partition], OffsetSpec::Latest, Isolation::ReadCommitted).await;
    expect(&answer.err().ok_or("offsets of a missing topic")?, Reason::UnknownTopic)
}

pub async fn an_authority_that_did_not_sign(world: &World) -> Outcome {
    let key = rcgen::KeyPair::generate()?;
    let pem = rcgen::CertificateParams::new(vec!["other".to_owned()])?.self_signed(&key)?.pem();
    let error = error_of(world.settings()?.with_tls(Some(pem.into_bytes()))?).await?;
    expect(&error, Reason::TlsFailed)
}

pub async fn plain_text_to_a_tls_port(world: &World) -> Outcome {
    let mut settings = world.settings()?;
    settings.tls = None;
    let error = error_of(settings).await?;
    println!("        {}", error.report());
    let reason = error.cause().reason();
    ensure!(matches!(reason, Reason::TlsFailed | Reason::BrokerUnreachable), "{reason}: {error:?}");
    Ok(())
}

pub async fn tls_to_a_plain_port(world: &World) -> Outcome {
    let error = error_of(world.settings()?.with_tls(None)?).await?;
    expect(&error, Reason::TlsFailed)
}

pub async fn a_wrong_password(world: &World) -> Outcome {
    let error = error_of(settings(&world.args, world.args.username.as_deref(), Some("wrong"))?).await?;
    expect(&error, Reason::AuthenticationFailed)?;
    ensure!(!error.report().contains("wrong"), "the password is in the message");
    let error = error_of(settings(&world.args, Some("no-such-user"), Some("wrong"))?).await?;
    expect(&error, Reason::AuthenticationFailed)
}

pub async fn no_credentials(world: &World) -> Outcome {
    let mut settings = world.settings()?;
    settings.sasl = None;
    let error = error_of(settings).await?;
    expect(&error, Reason::AuthenticationFailed)
}

pub async fn missing_permissions_are_named_and_granting_them_helps(world: &World) -> Outcome {
    let (Some(username), Some(password)) = (&world.args.weak_username, &world.args.weak_password) else {
        return Err("no weak user".into());
    };
    let weak = world.as_user(username, password)?;
    let (topic, id, group) = (world.name("acl"), world.name("acl-0-0"), world.name("acl-group"));
    create(world, &topic, 1).await?;
    let partition = [TopicPartition::new(&topic, 0)];
    let ids = [id.clone()];
    let second = Duration::from_secs(1);

    let error = weak.broker_limits().await.err().ok_or("limits without permission")?;
    names(&error, Operation::DescribeConfigs, Resource::Cluster)?;
    let offsets = weak.list_offsets(&partition, OffsetSpec::Latest, Isolation::ReadCommitted).await;
    names(&offsets.err().ok_or("offsets without permission")?, Operation::Describe, Resource::Topic(topic.clone()))?;
    let fenced = weak.init_producer_ids(&ids, second).await.remove(&id).ok_or("no answer")?;
    let error = fenced.err().ok_or("fenced without permission")?;
    // FindCoordinator comes first, and asks for less.
    names(&error, Operation::Describe, Resource::TransactionalId(id.clone()))?;
    let committed = weak.committed_offsets(&group, None, fencepost_kafka::rpc::Pending::Wait).await;
    names(&committed.err().ok_or("group without permission")?, Operation::Describe, Resource::Group(group.clone()))?;

    let grants = [
        Subject::new(Operation::Describe, Resource::Topic(topic.clone())),
        Subject::new(Operation::Describe, Resource::TransactionalId(id.clone())),
        Subject::new(Operation::Describe, Resource::Group(group.clone())),
    ];
    let principal = format!("User:{username}");
    world.cluster.create_acls(&principal, &grants).await?;
    // ACLs reach brokers by the metadata log, some milliseconds later.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
    while let Err(error) = weak.list_offsets(&partition, OffsetSpec::Latest, Isolation::ReadCommitted).await {
        ensure!(tokio::time::Instant::now() < deadline, "granted, and still: {}", error.report());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    weak.committed_offsets(&group, None, fencepost_kafka::rpc::Pending::Wait).await?;
    let found = weak.describe_transactions(&ids).await.remove(&id).ok_or("no answer")??;
    ensure!(found.is_none(), "known before its first use: {found:?}");
    let fenced = weak.init_producer_ids(&ids, second).await.remove(&id).ok_or("no answer")?;
    names(&fenced.err().ok_or("fenced with DESCRIBE alone")?, Operation::Write, Resource::TransactionalId(id))
}

fn names(error: &RpcError, operation: Operation, resource: Resource) -> Outcome {
    println!("        {}", error.report());
    let wanted = Cause::AuthorizationFailed(Subject::new(operation, resource));
    ensure!(error.cause() == wanted, "{:?} instead of {wanted:?}", error.cause());
    Ok(())
}
