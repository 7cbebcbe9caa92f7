"""In a pod: says what the ConfigMap `note` of its namespace says."""

from kubernetes import client, config

config.load_incluster_config()
with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="ascii") as file:
    namespace = file.read()
print(f"{client.CoreV1Api().read_namespaced_config_map('note', namespace).data['of']} in {namespace}")
