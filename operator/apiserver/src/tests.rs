use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::{ApiServer, Asked, Gate, Kind, Moment, Open, Verb};

fn server() -> ApiServer {
    let kinds = vec![
        Kind::of::<ConfigMap>(),
        Kind::of::<Pod>().with_status().with_grace(30),
        Kind::of::<StatefulSet>().with_status(),
    ];
    ApiServer::new(kinds, || Timestamp::UNIX_EPOCH)
}

fn api<K>(server: &ApiServer) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(server.client(Arc::new(Open)), "shop")
}

fn config_map(name: &str, data: impl Into<Value>) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data.into() })
}

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn status<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> (u16, String) {
    match outcome {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("not refused by the server: {other:?}"),
    }
}

fn data(map: &ConfigMap) -> BTreeMap<String, String> {
    map.data.clone().unwrap_or_default()
}

#[tokio::test]
async fn a_name_is_taken_once_and_what_is_gone_is_not_found() {
    let server = server();
    let maps = api::<ConfigMap>(&server);
    let made = maps.create(&PostParams::default(), &read(config_map("a", json!({ "x": "1" })))).await.unwrap();
    assert_eq!((made.uid().as_deref(), made.resource_version().as_deref()), (Some("uid-1"), Some("2")));
    let again = maps.create(&PostParams::default(), &read(config_map("a", json!({})))).await;
    assert_eq!(status(again), (409, "AlreadyExists".to_owned()));
    assert_eq!(maps.get_opt("b").await.unwrap(), None);
    let other = Preconditions { uid: Some("uid-9".to_owned()), resource_version: None };
    let refused = maps.delete("a", &DeleteParams { preconditions: Some(other), ..DeleteParams::default() }).await;
    assert_eq!(status(refused.map(drop)), (409, "Conflict".to_owned()));
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(status(maps.delete("a", &DeleteParams::default()).await.map(drop)), (404, "NotFound".to_owned()));
    let made = maps.create(&PostParams::default(), &read(config_map("a", json!({})))).await.unwrap();
    assert_eq!(made.uid().as_deref(), Some("uid-2"), "another object");
}

#[tokio::test]
async fn a_write_over_something_else_than_was_seen_is_refused() {
    let server = server();
    let maps = api::<ConfigMap>(&server);
    let seen = maps.create(&PostParams::default(), &read(config_map("a", json!({ "x": "1" })))).await.unwrap();
    let mut newer = seen.clone();
    newer.data = Some(BTreeMap::from([("x".to_owned(), "2".to_owned())]));
    let newer = maps.replace("a", &PostParams::default(), &newer).await.unwrap();
    let mut stale = config_map("a", json!({ "x": "3" }));
    stale["metadata"]["resourceVersion"] = seen.resource_version().into();
    let apply = PatchParams::apply("me").force();
    assert_eq!(status(maps.patch("a", &apply, &Patch::Apply(&stale)).await).0, 409);
    assert_eq!(status(maps.patch("a", &PatchParams::default(), &Patch::Merge(&stale)).await).0, 409);
    assert_eq!(status(maps.replace("a", &PostParams::default(), &read(stale.clone())).await).0, 409);
    stale["metadata"]["resourceVersion"] = newer.resource_version().into();
    let applied = maps.patch("a", &apply, &Patch::Apply(&stale)).await.unwrap();
    assert_eq!(data(&applied)["x"], "3");
    let version = applied.resource_version();
    stale["metadata"]["resourceVersion"] = Value::Null;
    let same = maps.patch("a", &apply, &Patch::Apply(&stale)).await.unwrap();
    assert_eq!(same.resource_version(), version, "what changes nothing is no change");
    stale["metadata"]["uid"] = "uid-7".into();
    assert_eq!(status(maps.patch("b", &apply, &Patch::Apply(&stale)).await).0, 409, "it means one that is there");
}

#[tokio::test]
async fn generations_count_specs_and_status_is_written_apart() {
    let server = server();
    let sets = api::<StatefulSet>(&server);
    let set = |replicas: i64, ready: i64| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "s" },
            "spec": { "replicas": replicas }, "status": { "replicas": ready },
        })
    };
    let apply = PatchParams::apply("me");
    let made = sets.patch("s", &apply, &Patch::Apply(&set(1, 7))).await.unwrap();
    assert_eq!((made.metadata.generation, made.status), (Some(1), None));
    let told = sets.patch_status("s", &apply, &Patch::Apply(&set(5, 1))).await.unwrap();
    assert_eq!((told.metadata.generation, told.spec.unwrap().replicas), (Some(1), Some(1)));
    assert_eq!(told.status.unwrap().replicas, 1);
    let more = sets.patch("s", &PatchParams::default(), &Patch::Merge(set(2, 9))).await.unwrap();
    assert_eq!((more.metadata.generation, more.status.unwrap().replicas), (Some(2), 1));
    let tried = sets.patch("s", &apply.clone().dry_run().force(), &Patch::Apply(&set(3, 0))).await.unwrap();
    assert_eq!(tried.spec.unwrap().replicas, Some(3));
    assert_eq!(sets.get("s").await.unwrap().spec.unwrap().replicas, Some(2), "a dry run is kept by nobody");
    assert_eq!(status(sets.patch_status("t", &apply, &Patch::Apply(&set(1, 1))).await).0, 404);
}

/// `kubectl`'s rules: what a manager does not name any more goes, unless somebody else has it; what somebody else has needs force.
#[tokio::test]
async fn fields_have_owners() {
    let server = server();
    let maps = api::<ConfigMap>(&server);
    let (me, other) = (PatchParams::apply("me"), PatchParams::apply("other"));
    let put =
        async |who: &PatchParams, content: Value| maps.patch("a", who, &Patch::Apply(config_map("a", content))).await;
    put(&me, json!({ "x": "1", "y": "1", "z": "1" })).await.unwrap();
    put(&other, json!({ "y": "1" })).await.unwrap();
    assert_eq!(status(put(&other, json!({ "y": "1", "x": "2" })).await), (409, "Conflict".to_owned()));
    let left = put(&me, json!({ "x": "1" })).await.unwrap();
    assert_eq!(data(&left).into_keys().collect::<Vec<_>>(), ["x", "y"], "y is somebody else's too");
    put(&other.clone().force(), json!({ "x": "2" })).await.unwrap();
    let left = put(&me, json!({ "w": "1" })).await.unwrap();
    assert_eq!(data(&left)["x"], "2", "it was taken from me");
    assert!(!data(&left).contains_key("y"), "nobody names it any more");

    // What was created in another way belongs to an update, and an apply of the same manager does not take it away.
    let post = PostParams { field_manager: Some("me".to_owned()), ..PostParams::default() };
    maps.create(&post, &read(config_map("b", json!({ "old": "1" })))).await.unwrap();
    let applied = maps.patch("b", &me, &Patch::Apply(config_map("b", json!({ "new": "1" })))).await.unwrap();
    assert_eq!(data(&applied).into_keys().collect::<Vec<_>>(), ["new", "old"]);
}

#[tokio::test]
async fn items_of_lists_with_names_have_owners_of_their_own() {
    let server = server();
    let pods = api::<Pod>(&server);
    let pod = |containers: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "containers": containers },
        })
    };
    let names = |pod: Pod| pod.spec.unwrap().containers.into_iter().map(|found| found.name).collect::<Vec<_>>();
    let (me, mesh) = (PatchParams::apply("me"), PatchParams::apply("mesh"));
    pods.patch("p", &me, &Patch::Apply(pod(json!([{ "name": "a", "image": "i" }, { "name": "b" }])))).await.unwrap();
    let both = pods.patch("p", &mesh, &Patch::Apply(pod(json!([{ "name": "proxy" }])))).await.unwrap();
    assert_eq!(names(both), ["a", "b", "proxy"]);
    let less = pods.patch("p", &me, &Patch::Apply(pod(json!([{ "name": "a" }])))).await.unwrap();
    assert_eq!(less.spec.as_ref().unwrap().containers[0].image, None);
    assert_eq!(names(less), ["a", "proxy"]);
}

#[tokio::test]
async fn finalizers_and_grace_hold_what_is_deleted() {
    let server = server();
    let maps = api::<ConfigMap>(&server);
    let mut held = config_map("a", json!({}));
    held["metadata"]["finalizers"] = json!(["x/y"]);
    maps.create(&PostParams::default(), &read(held)).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let marked = maps.get("a").await.unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    let free = json!({ "metadata": { "finalizers": null } });
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    assert_eq!(maps.get_opt("a").await.unwrap(), None, "the last finalizer is gone");

    let pods = api::<Pod>(&server);
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
    pods.create(&PostParams::default(), &read(pod)).await.unwrap();
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    assert_eq!(pods.get("p").await.unwrap().metadata.deletion_grace_period_seconds, Some(30));
    pods.delete("p", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await.unwrap();
    assert_eq!(pods.get_opt("p").await.unwrap(), None);
}

#[tokio::test]
async fn lists_are_selected_by_labels_and_may_be_metadata_only() {
    let server = server();
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut map = config_map(name, json!({ "x": "1" }));
        map["metadata"]["namespace"] = "shop".into();
        map["metadata"]["labels"] = json!({ "color": color });
        server.create::<ConfigMap>("test", map).unwrap();
    }
    let named = async |selector: &str| {
        let found = api::<ConfigMap>(&server).list(&ListParams::default().labels(selector)).await.unwrap();
        found.items.iter().map(ResourceExt::name_any).collect::<String>()
    };
    for (selector, names) in [
        ("color=red", "ac"),
        ("color!=red", "b"),
        ("color in (blue, red),size", ""),
        ("color notin (blue),!size", "ac"),
        ("", "abc"),
    ] {
        assert_eq!(named(selector).await, names, "{selector}");
    }
    let all = Api::<PartialObjectMeta<ConfigMap>>::all(server.client(Arc::new(Open)));
    let found = all.list(&ListParams::default()).await.unwrap();
    assert_eq!((found.items.len(), found.items[1].labels()["color"].as_str()), (3, "blue"));
}

/// What kube's own watcher makes of it: nothing is missed when watches are interrupted, and all is read again when they are too old.
#[tokio::test(start_paused = true)]
async fn watchers_miss_nothing() {
    let server = server();
    let put = |name: &str, color: &str| {
        let mut map = config_map(name, json!({}));
        map["metadata"]["namespace"] = "shop".into();
        map["metadata"]["labels"] = json!({ "color": color });
        if server.get::<ConfigMap>("shop", name).is_some() {
            server.update::<ConfigMap>("test", ("shop", name), |there| {
                there["metadata"]["labels"] = json!({ "color": color });
            })
        } else {
            server.create::<ConfigMap>("test", map)
        }
        .unwrap();
    };
    put("a", "red");
    let config = watcher::Config::default().labels("color=red");
    let seen = watcher(api::<PartialObjectMeta<ConfigMap>>(&server), config).filter_map(async |event| match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => Some(format!("+{}", object.name_any())),
        Ok(Event::Delete(object)) => Some(format!("-{}", object.name_any())),
        _ => None,
    });
    pin_mut!(seen);
    assert_eq!(seen.next().await.unwrap(), "+a");
    put("b", "red");
    assert_eq!(seen.next().await.unwrap(), "+b");
    server.interrupt();
    put("c", "blue");
    put("a", "blue");
    assert_eq!(seen.next().await.unwrap(), "-a", "it does not match any more");
    put("c", "red");
    assert_eq!(seen.next().await.unwrap(), "+c");
    server.remove::<ConfigMap>("shop", "b").unwrap();
    assert_eq!(seen.next().await.unwrap(), "-b");
    put("d", "red");
    server.compact();
    assert_eq!(seen.next().await.unwrap(), "+c", "too old: all is read again");
    assert_eq!(seen.next().await.unwrap(), "+d");
    // Longer than the watch lasts.
    tokio::time::sleep(Duration::from_secs(1000)).await;
    put("e", "red");
    assert_eq!(seen.next().await.unwrap(), "+e");
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_says_how_far_it_is() {
    let server = server();
    let maps = api::<ConfigMap>(&server);
    let mut other = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "shop" } });
    other["metadata"]["labels"] = json!({});
    let events = maps.watch(&WatchParams::default(), "1").await.unwrap();
    server.create::<Pod>("test", other).unwrap();
    pin_mut!(events);
    let Some(WatchEvent::Bookmark(mark)) = events.try_next().await.unwrap() else { panic!("no bookmark") };
    assert_eq!(mark.metadata.resource_version, "2");
}

/// Dies at a moment, and the request never comes back.
struct Dies(Moment, Verb);

impl Gate for Dies {
    fn pass(&self, moment: Moment, asked: &Asked) -> futures::future::BoxFuture<'static, ()> {
        if (moment, asked.verb) == (self.0, self.1) {
            Box::pin(std::future::pending())
        } else {
            Box::pin(std::future::ready(()))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_may_die_before_and_after_what_it_asks_for() {
    for (moment, done) in [(Moment::Before, false), (Moment::After, true)] {
        let server = server();
        let maps = Api::<ConfigMap>::namespaced(server.client(Arc::new(Dies(moment, Verb::Create))), "shop");
        let (map, params) = (read(config_map("a", json!({}))), PostParams::default());
        let made = tokio::time::timeout(Duration::from_secs(1), maps.create(&params, &map));
        assert!(made.await.is_err(), "it came back");
        assert_eq!(server.get::<ConfigMap>("shop", "a").is_some(), done);
    }
}
