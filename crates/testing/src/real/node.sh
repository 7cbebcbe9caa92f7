# The first process of a node's own process and mount namespaces: whatever is started or mounted here ends with it.
#
#   node.sh DIRECTORY KUBELET FLAG...
set -eu
directory=$1 kubelet=$2
shift 2

# Places that containerd, its shims, CNI plug-ins and the kubelet have beside those they are given. What this machine
# has there is neither seen nor touched.
for place in /run /var/lib /var/log; do
    mount -t tmpfs none "$place"
done
mkdir -p /run/netns

containerd --config "$directory/containerd.toml" >"$directory/containerd.log" 2>&1 &
until ctr --address "$directory/containerd.sock" version >/dev/null 2>&1; do
    kill -0 $! || exit 1
    sleep 0.2
done
for archive in "$directory"/*.tar; do
    ctr --address "$directory/containerd.sock" --namespace k8s.io images import --snapshotter native "$archive"
done
"$kubelet" "$@" >"$directory/kubelet.log" 2>&1 &
wait $!
