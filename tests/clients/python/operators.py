"""Operators of the sorts that people write with kopf. They know nothing of Hanse.

    kopf run --standalone -A operators.py

Which of them works is in the variable OPERATOR, so that each has handlers for its own kind alone.
"""

import os

import kopf
import kubernetes

GROUP = "operators.hanse.test"
OPERATOR = os.environ["OPERATOR"]
HOME = os.environ.get("POD_NAMESPACE", "default")


@kopf.on.startup()
def configure(settings, **_):
    # Progress in the status, as kopf does where a definition lets it.
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.posting.enabled = True


def ready(patch, generation, **fields):
    """Tells the status of a resource that has all it asked for."""
    patch.status.update(fields)
    patch.status["observedGeneration"] = generation
    patch.status["conditions"] = [{"type": "Ready", "status": "True", "reason": "Done"}]


def claim(name, spec):
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": {"purpose": spec["purpose"]}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": spec["size"]}}},
    }


if OPERATOR == "disk":
    # A claim that the resource adopts; its labels follow those of the resource.

    @kopf.on.create(GROUP, "v1", "disks")
    def make_claim(name, namespace, spec, meta, patch, **_):
        wanted = claim(name, spec)
        kopf.adopt(wanted)
        made = kubernetes.client.CoreV1Api().create_namespaced_persistent_volume_claim(namespace, wanted)
        ready(patch, meta["generation"], claim=made.metadata.name)

    @kopf.on.update(GROUP, "v1", "disks", field="spec.purpose")
    def relabel(name, namespace, new, meta, patch, **_):
        change = {"metadata": {"labels": {"purpose": new}}}
        kubernetes.client.CoreV1Api().patch_namespaced_persistent_volume_claim(name, namespace, change)
        ready(patch, meta["generation"], purpose=new)


if OPERATOR == "fleet":
    # Deployments by a list; how they do is heard of from them; what is kept elsewhere is removed by a finalizer.

    def deployment(fleet, ship, replicas):
        labels = {"fleet": fleet, "ship": ship}
        return {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": f"{fleet}-{ship}", "labels": labels},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "ship", "image": "example.com/ship:1"}]}},
            },
        }

    @kopf.on.create(GROUP, "v1", "fleets")
    @kopf.on.update(GROUP, "v1", "fleets", field="spec")
    def keep(name, namespace, spec, meta, patch, **_):
        apps, core = kubernetes.client.AppsV1Api(), kubernetes.client.CoreV1Api()
        there = {it.metadata.labels["ship"]: it for it in apps.list_namespaced_deployment(namespace, label_selector=f"fleet={name}").items}
        for ship, replicas in spec["ships"].items():
            if ship in there:
                apps.patch_namespaced_deployment_scale(f"{name}-{ship}", namespace, {"spec": {"replicas": replicas}})
                continue
            wanted = deployment(name, ship, replicas)
            kopf.adopt(wanted)
            apps.create_namespaced_deployment(namespace, wanted)
        for ship in there.keys() - spec["ships"].keys():
            apps.delete_namespaced_deployment(f"{name}-{ship}", namespace)
        register = {"metadata": {"name": f"{namespace}-{name}"}, "data": dict.fromkeys(spec["ships"], "at sea")}
        try:
            core.create_namespaced_config_map(HOME, register)
        except kubernetes.client.ApiException as refusal:
            if refusal.status != 409:
                raise
            core.replace_namespaced_config_map(register["metadata"]["name"], HOME, register)
        patch.status["wanted"], patch.status["observedGeneration"] = sum(spec["ships"].values()), meta["generation"]

    @kopf.on.event("apps", "v1", "deployments", labels={"fleet": kopf.PRESENT})
    def heard(namespace, labels, **_):
        apps, custom = kubernetes.client.AppsV1Api(), kubernetes.client.CustomObjectsApi()
        fleet = labels["fleet"]
        all_of_it = apps.list_namespaced_deployment(namespace, label_selector=f"fleet={fleet}").items
        at_sea = sum(it.status.ready_replicas or 0 for it in all_of_it)
        try:
            resource = custom.get_namespaced_custom_object(GROUP, "v1", namespace, "fleets", fleet)
            status = resource.get("status", {})
            done = at_sea == status.get("wanted") and all(it.status.observed_generation == it.metadata.generation for it in all_of_it)
            condition = {"type": "Ready", "status": "True" if done else "False", "reason": "Sailing" if done else "Waiting"}
            told = {"atSea": at_sea, "ships": len(all_of_it), "conditions": [condition]}
            if any(status.get(key) != value for key, value in told.items()):
                custom.patch_namespaced_custom_object_status(GROUP, "v1", namespace, "fleets", fleet, {"status": told})
        except kubernetes.client.ApiException as refusal:
            if refusal.status != 404:
                raise

    @kopf.on.field(GROUP, "v1", "fleets", field="status.wanted")
    def counted(namespace, name, **_):
        # The last Deployment may have said all before it was known how many are wanted.
        heard(namespace=namespace, labels={"fleet": name})

    @kopf.on.delete(GROUP, "v1", "fleets")
    def forget(name, namespace, **_):
        kubernetes.client.CoreV1Api().delete_namespaced_config_map(f"{namespace}-{name}", HOME)


if OPERATOR == "beacon":
    # A timer that counts as far as it is told, and then has nothing to write.

    @kopf.timer(GROUP, "v1", "beacons", interval=1, initial_delay=1)
    def blink(spec, status, meta, patch, **_):
        blinks = status.get("blinks", 0)
        if blinks < spec["times"]:
            patch.status["blinks"] = blinks + 1
        elif status.get("observedGeneration") != meta["generation"]:
            ready(patch, meta["generation"])
