"""The official Python client: typed and dynamic, patches, apply, watches, informers, custom resources, elections."""

import logging
import os
import queue
import sys
import threading
import time
import uuid

from kubernetes import client, config, dynamic, informer, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

NAMESPACE = f"clients-python-{uuid.uuid4().hex[:6]}"
GROUP = f"{NAMESPACE}.hanse.test"
LIMIT = 30
CHECKS = []


def check(name):
    """Adds a check; they run in the order in which they stand here."""

    def add(function):
        CHECKS.append((name, function))
        return function

    return add


def want(holds, what):
    if not holds:
        raise AssertionError(f"wanted {what}")


def refused(status, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except ApiException as error:
        want(error.status == status, f"a refusal with {status}, not {error.status}: {error.body}")
        return error
    raise AssertionError(f"was not refused with {status}")


def eventually(what, holds):
    deadline = time.monotonic() + LIMIT
    while not holds():
        want(time.monotonic() < deadline, what)
        time.sleep(0.05)


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": name}), data=data)


def pod_template(name):
    container = client.V1Container(name="main", image="example.com/app:1")
    return client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": name}), spec=client.V1PodSpec(containers=[container])
    )


def deployment(name, replicas=2):
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name=name),
        spec=client.V1DeploymentSpec(
            replicas=replicas,
            selector=client.V1LabelSelector(match_labels={"app": name}),
            template=pod_template(name),
        ),
    )


class Dynamic:
    """The dynamic client reads discovery once, so it is made when a check first asks for it."""

    made = None

    @classmethod
    def resource(cls, api_version, kind):
        cls.made = cls.made or dynamic.DynamicClient(client.ApiClient())
        return cls.made.resources.get(api_version=api_version, kind=kind)


@check("a namespace is made")
def create_namespace():
    body = client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE))
    made = client.CoreV1Api().create_namespace(body)
    want(made.status.phase == "Active", "an active namespace")


@check("the server names its version and groups")
def discovery():
    want(client.VersionApi().get_code().major == "1", "version 1")
    groups = {group.name for group in client.ApisApi().get_api_versions().groups}
    want({"apps", "batch", "apiextensions.k8s.io", "rbac.authorization.k8s.io"} <= groups, f"groups, not {groups}")


@check("a ConfigMap lives")
def life_of_config_map():
    core = client.CoreV1Api()
    made = core.create_namespaced_config_map(NAMESPACE, config_map("life", a="1"))
    refused(409, core.create_namespaced_config_map, NAMESPACE, config_map("life"))
    made.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("life", NAMESPACE, made)
    want(replaced.data == {"a": "1", "b": "2"}, f"both keys, not {replaced.data}")
    refused(409, core.replace_namespaced_config_map, "life", NAMESPACE, made)
    want(len(core.list_namespaced_config_map(NAMESPACE, label_selector="app=life").items) == 1, "one in the list")
    core.delete_namespaced_config_map("life", NAMESPACE)
    refused(404, core.read_namespaced_config_map, "life", NAMESPACE)


@check("a Deployment, its scale and its status")
def workloads():
    apps = client.AppsV1Api()
    made = apps.create_namespaced_deployment(NAMESPACE, deployment("web"))
    want(made.spec.progress_deadline_seconds == 600, "defaults")
    apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 5}})
    want(apps.read_namespaced_deployment_scale("web", NAMESPACE).spec.replicas == 5, "five replicas")
    patched = apps.patch_namespaced_deployment_status("web", NAMESPACE, {"status": {"replicas": 5}})
    want(patched.status.replicas == 5 and patched.metadata.generation == 2, "a status apart")
    invalid = refused(422, apps.create_namespaced_deployment, NAMESPACE, deployment("bad", replicas=-1))
    want("spec.replicas" in invalid.body, "the field named")


@check("Job, CronJob, Service, Ingress and Secret are made from YAML")
def from_yaml():
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/app:1"}]}
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    objects = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": pod}}},
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
         "spec": {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": {"spec": {"template": {"spec": pod}}}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"},
         "spec": {"defaultBackend": backend}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"password": "hunter2"}},
    ]
    utils.create_from_yaml(client.ApiClient(), yaml_objects=objects, namespace=NAMESPACE)
    core = client.CoreV1Api()
    want(core.read_namespaced_service("web", NAMESPACE).spec.cluster_ip, "an address")
    want(core.read_namespaced_secret("login", NAMESPACE).data["password"] == "aHVudGVyMg==", "encoded data")
    want(client.BatchV1Api().read_namespaced_job("once", NAMESPACE).spec.backoff_limit == 6, "a Job with defaults")


@check("four kinds of patch")
def patches():
    apps = Dynamic.resource("apps/v1", "Deployment")

    def patch(body, content_type, **kwargs):
        return apps.patch(body=body, name="web", namespace=NAMESPACE, content_type=content_type, **kwargs)

    container = {"name": "side", "image": "example.com/side:1"}
    both = patch({"spec": {"template": {"spec": {"containers": [container]}}}}, "application/strategic-merge-patch+json")
    want(len(both.spec.template.spec.containers) == 2, "containers merged by name")
    one = patch({"spec": {"template": {"spec": {"containers": [container]}}}}, "application/merge-patch+json")
    want(len(one.spec.template.spec.containers) == 1, "the list replaced")
    moved = patch([{"op": "replace", "path": "/spec/replicas", "value": 3}], "application/json-patch+json")
    want(moved.spec.replicas == 3, "three replicas")
    refused(422, patch, [{"op": "test", "path": "/spec/replicas", "value": 9}], "application/json-patch+json")


@check("server-side apply through the dynamic client")
def apply():
    maps = Dynamic.resource("v1", "ConfigMap")

    def applied(manager, force=None, **data):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data}
        return maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager=manager, force_conflicts=force)

    first = applied("one", a="1", b="1")
    want(first.data.to_dict() == {"a": "1", "b": "1"}, "both keys")
    want(applied("one", a="1", b="1").metadata.resourceVersion == first.metadata.resourceVersion, "no change")
    conflict = refused(409, applied, "two", a="2")
    want("conflict with" in str(conflict.body), "the manager named")
    forced = applied("two", force=True, a="2")
    want(forced.data.to_dict() == {"a": "2", "b": "1"}, "one key taken over")
    want({entry.manager for entry in forced.metadata.managedFields} == {"one", "two"}, "two managers")
    want(applied("two").data.to_dict() == {"b": "1"}, "given up, and gone")


@check("a watch tells of every change")
def watches():
    core = client.CoreV1Api()
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    seen = []

    def change():
        core.create_namespaced_config_map(NAMESPACE, config_map("watched"))
        core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"a": "1"}})
        core.delete_namespaced_config_map("watched", NAMESPACE)

    changes = threading.Thread(target=change)
    changes.start()
    watcher = watch.Watch()
    selected = {"field_selector": "metadata.name=watched", "resource_version": version, "timeout_seconds": LIMIT}
    for event in watcher.stream(core.list_namespaced_config_map, NAMESPACE, **selected):
        seen.append(event["type"])
        if len(seen) == 3:
            watcher.stop()
    changes.join()
    want(seen == ["ADDED", "MODIFIED", "DELETED"], f"three events, not {seen}")


def heard(told, kind, name):
    while told.get(timeout=LIMIT) != (kind, name):
        pass


@check("an informer follows")
def informs():
    core = client.CoreV1Api()
    told = queue.Queue()
    follower = informer.SharedInformer(list_func=core.list_namespaced_config_map, namespace=NAMESPACE)
    for kind in (informer.ADDED, informer.MODIFIED, informer.DELETED):
        follower.add_event_handler(kind, lambda seen, kind=kind: told.put((kind, seen.metadata.name)))
    follower.start()
    try:
        # Each change is awaited: the informer lists at a time of its own, and a list tells of no change before it.
        core.create_namespaced_config_map(NAMESPACE, config_map("followed"))
        heard(told, informer.ADDED, "followed")
        core.patch_namespaced_config_map("followed", NAMESPACE, {"data": {"a": "1"}})
        heard(told, informer.MODIFIED, "followed")
        want(follower.cache.get_by_key(f"{NAMESPACE}/followed").data == {"a": "1"}, "the change in the cache")
        core.delete_namespaced_config_map("followed", NAMESPACE)
        heard(told, informer.DELETED, "followed")
    finally:
        follower.stop()


@check("a list comes in pages")
def pages():
    core = client.CoreV1Api()
    for number in range(7):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{number}"))
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(NAMESPACE, limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    want(len(names) == len(set(names)) and {f"page-{number}" for number in range(7)} <= set(names), "every object once")


@check("a custom resource is defined and served")
def custom_resource():
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {"size": {"type": "integer", "maximum": 10}, "colour": {"type": "string", "default": "red"}},
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"hats.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "hats", "kind": "Hat"}, "versions": [version]},
    }
    extensions = client.ApiextensionsV1Api()
    extensions.create_custom_resource_definition(body)

    def established():
        found = extensions.read_custom_resource_definition(f"hats.{GROUP}")
        return any(c.type == "Established" and c.status == "True" for c in found.status.conditions or [])

    eventually("an established definition", established)
    hats = client.CustomObjectsApi()
    hat = {"apiVersion": f"{GROUP}/v1", "kind": "Hat", "metadata": {"name": "top"}, "spec": {"size": 3}}

    def served():
        try:
            hats.create_namespaced_custom_object(GROUP, "v1", NAMESPACE, "hats", hat)
        except ApiException as error:
            want(error.status == 404, f"a Hat, not {error.status}")
            return False
        return True

    eventually("a served resource", served)
    found = hats.get_namespaced_custom_object(GROUP, "v1", NAMESPACE, "hats", "top")
    want(found["spec"] == {"size": 3, "colour": "red"}, f"a default, not {found['spec']}")
    patched = hats.patch_namespaced_custom_object_status(GROUP, "v1", NAMESPACE, "hats", "top", {"status": {"worn": True}})
    want(patched["status"] == {"worn": True} and patched["metadata"]["generation"] == 1, "a status apart")
    hat["metadata"]["name"], hat["spec"]["size"] = "big", 11
    invalid = refused(422, hats.create_namespaced_custom_object, GROUP, "v1", NAMESPACE, "hats", hat)
    want("spec.size" in invalid.body, "the field named")


@check("a custom resource is applied through the dynamic client")
def custom_apply():
    Dynamic.made = None  # It must see the new kind.
    hats = Dynamic.resource(f"{GROUP}/v1", "Hat")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Hat", "metadata": {"name": "cap"}, "spec": {"size": 1}}
    made = hats.server_side_apply(body=body, namespace=NAMESPACE, field_manager="one")
    want(made.spec.colour == "red", "a default")
    body["spec"] = {"size": 2}
    refused(409, hats.server_side_apply, body=body, namespace=NAMESPACE, field_manager="two")
    seen = []
    for event in hats.watch(namespace=NAMESPACE, timeout=1):
        seen.append(event["object"].metadata.name)
    want(sorted(seen) == ["cap", "top"], f"both hats, not {seen}")


@check("access is reviewed and granted")
def access():
    rules = client.RbacAuthorizationV1Api()
    subject = client.RbacV1Subject(kind="User", name="ann", api_group="rbac.authorization.k8s.io")
    role = client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="reader")
    rule = client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get"])
    rules.create_namespaced_role(NAMESPACE, client.V1Role(metadata=client.V1ObjectMeta(name="reader"), rules=[rule]))

    def may():
        attributes = client.V1ResourceAttributes(namespace=NAMESPACE, verb="get", resource="configmaps")
        review = client.V1SubjectAccessReview(spec=client.V1SubjectAccessReviewSpec(user="ann", resource_attributes=attributes))
        return client.AuthorizationV1Api().create_subject_access_review(review).status.allowed

    want(not may(), "ann to be refused")
    metadata = client.V1ObjectMeta(name="ann")
    rules.create_namespaced_role_binding(NAMESPACE, client.V1RoleBinding(metadata=metadata, role_ref=role, subjects=[subject]))
    eventually("ann to be allowed", may)


@check("a second candidate leads when the first one is gone")
def election():
    leading = queue.Queue()

    def stand(name, lock):
        def led():
            leading.put(name)

        settings = electionconfig.Config(
            lock, lease_duration=3, renew_deadline=2, retry_period=1, onstarted_leading=led, onstopped_leading=lambda: None
        )
        threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True).start()

    first = ConfigMapLock("leader", NAMESPACE, "first")
    stand("first", first)
    want(leading.get(timeout=LIMIT) == "first", "the first to lead")
    stand("second", ConfigMapLock("leader", NAMESPACE, "second"))
    # From now on the first one's writes fail, as if it had lost its network.
    first.update = lambda *_: False
    want(leading.get(timeout=LIMIT) == "second", "the second to lead")


@check("the definition and the namespace go")
def clean_up():
    extensions, core = client.ApiextensionsV1Api(), client.CoreV1Api()
    extensions.delete_custom_resource_definition(f"hats.{GROUP}")
    core.delete_namespace(NAMESPACE)

    def gone(read, name):
        try:
            read(name)
        except ApiException as error:
            return error.status == 404
        return False

    eventually("no definition", lambda: gone(extensions.read_custom_resource_definition, f"hats.{GROUP}"))
    eventually("no namespace", lambda: gone(core.read_namespace, NAMESPACE))


def main():
    if not os.environ.get("KUBECONFIG"):
        sys.exit("KUBECONFIG names no server")
    logging.disable()  # Of the client; an informer that is stopped says so at length.
    config.load_kube_config()
    failed = 0
    for name, function in CHECKS:
        try:
            function()
        except Exception as error:  # A check may fail in any way; the next one runs all the same.
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"ok {name}", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed", flush=True)
    # Candidates of an election stand for ever, in threads of their own.
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
